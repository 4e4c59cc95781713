"""What was seen, compared with the Intent: in the order of a packet's hops. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from lab.cluster.footprint import LAB, By, Footprint, footprint
from lab.cluster.observers import calico_objects, logical, node_software, sessions, windows_words
from lab.cluster.observers.difference import Difference, Look
from lab.cluster.observers.facts import NodeFacts, PodFacts
from lab.cluster.observers.hops import (
    bridge,
    chassis,
    endpoint,
    routing,
    services,
    switch,
    tunnel,
    underlay,
)
from lab.cluster.observers.twice import between
from lab.topology import gateways
from lab.topology.intent import Intent, MachineIntent

_HOPS = (
    endpoint.check,
    bridge.check,
    services.check,
    routing.check,
    tunnel.check,
    switch.check,
    chassis.check,
    underlay.check,
)


def differences(
    intended: MachineIntent, observed: NodeFacts, *, by: By = "lab", beside: Footprint = LAB
) -> tuple[Difference, ...]:
    """What on one node is not as intended, the first hop first; empty where all is.

    What could not be asked is not judged, nor what hangs on a device that is down: that the
    device is down is told.

    Parameters
    ----------
    intended
        The machine, bound to what is known at run time only (:func:`settled`) where Kubernetes
        has made its network.
    observed
        What was seen on it.
    by
        Who has made its bridge, tunnel, pods and Services.
    beside
        What they make beside that.

    """
    look = Look(intended, observed, by, beside)
    found = tuple(one for hop in _HOPS for one in hop(look))
    if observed.os == "windows":
        return tuple(windows_words.put(one, intended) for one in found)
    return found


def lab_differences(
    intent: Intent, observed: Mapping[str, NodeFacts], *, by: By = "lab"
) -> tuple[Difference, ...]:
    """What in the whole lab is not as intended: node by node, then between nodes."""
    if by == "kubernetes":
        bound, observed = settled(intent, observed), named(intent, observed)
    else:
        bound = as_held(intent, observed)
    beside = footprint(intent.topology, by)
    found: list[Difference] = []
    for machine in bound.everything():
        if machine.name in observed:
            found += differences(machine, observed[machine.name], by=by, beside=beside)
    return (
        *found,
        *sessions.differences(bound, observed, by=by),
        *between(bound, observed),
        *logical.differences(bound, observed),
        *node_software.differences(bound, observed),
        *calico_objects.differences(bound, observed),
    )


def as_held(intent: Intent, observed: Mapping[str, NodeFacts]) -> Intent:
    """The Intent with the virtual gateways where they were seen, each on one machine.

    One that nobody holds, or several do, stays where the Intent has it.
    """
    seen = {
        gateway.node: [
            name
            for name in gateway.candidates
            if name in observed
            and (link := observed[name].link(gateway.device))
            and gateway.address in link.addresses
        ]
        for gateway in intent.gateways
    }
    return gateways.settled(intent, seen)


def named(intent: Intent, observed: Mapping[str, NodeFacts]) -> dict[str, NodeFacts]:
    """What was seen, each of Kubernetes' pods by its name instead of its network namespace's.

    It is known by the first of its addresses: one that is another's, too, was added behind it.
    """
    return {
        name: replace(facts, pods=tuple(_named(intent.machine(name), facts.pods)))
        if facts.pods
        else facts
        for name, facts in observed.items()
    }


def _named(machine: MachineIntent, pods: Iterable[PodFacts]) -> Iterator[PodFacts]:
    names = {pod.address.partition("/")[0]: pod.name for pod in machine.pods}
    for pod in pods:
        own = next((text.partition("/")[0] for text in pod.addresses()), "")
        yield replace(pod, name=names.pop(own, pod.name))  # of two with one address the first


def settled(intent: Intent, observed: Mapping[str, NodeFacts]) -> Intent:
    """The Intent with the MACs that Kubernetes' network add-on has chosen for tunnels.

    Each is taken from the node whose tunnel it is; the other nodes' entries for it follow.
    """
    macs = dict(_chosen(intent, observed))
    return replace(
        intent,
        machines=tuple(
            replace(
                machine,
                tunnel=replace(machine.tunnel, mac=macs.get(machine.tunnel.mac, machine.tunnel.mac))
                if machine.tunnel
                else None,
                neighbours=tuple(
                    replace(one, mac=macs.get(one.mac, one.mac)) for one in machine.neighbours
                ),
                forwarding=tuple(
                    replace(one, mac=macs.get(one.mac, one.mac)) for one in machine.forwarding
                ),
            )
            for machine in intent.machines
        ),
    )


def _chosen(intent: Intent, observed: Mapping[str, NodeFacts]) -> Iterator[tuple[str, str]]:
    for machine in intent.machines:
        there = observed[machine.name].tunnels if machine.name in observed else ()
        for one in there:
            if machine.tunnel and one.name == machine.tunnel.name and one.mac:
                yield machine.tunnel.mac, one.mac
