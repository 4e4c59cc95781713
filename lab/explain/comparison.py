"""Compares machines with their Intent: every check, in the order of a packet's hops. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from lab.cluster.footprint import LAB, By, Footprint, footprint
from lab.explain.check import Difference, LabLook, Look, checks
from lab.facts.node import NodeFacts, PodFacts
from lab.topology import gateways
from lab.topology.intent import Intent, MachineIntent

_LEARNED = {"learned-route-missing", "wrong-learned-route", "gateway-missing"}


def compare_machine(
    intended: MachineIntent, observed: NodeFacts, *, by: By = "lab", beside: Footprint = LAB
) -> tuple[Difference, ...]:
    """Every difference of one machine, in the order of hops.

    What could not be queried is not judged, nor what depends on a device that is down: only the
    device is then reported.

    Parameters
    ----------
    intended
        The machine; if Kubernetes made its network, with what is known only at run time
        (:func:`with_chosen_macs`).
    observed
        Its facts.
    by
        What creates its bridge, tunnel, pods and Services.
    beside
        What is created in addition.

    """
    look = Look(intended, observed, by, beside)
    return tuple(
        found
        for check in checks()
        if not check.question or observed.knows(check.question)
        for found in check.on_machine(look)
    )


def compare_between(
    intent: Intent, observed: Mapping[str, NodeFacts], *, by: By = "lab"
) -> tuple[Difference, ...]:
    """Every difference between machines, or of one machine according to another's facts."""
    look = LabLook(intent, observed, by)
    return tuple(found for check in checks() for found in check.in_lab(look))


def compare_lab(
    intent: Intent, observed: Mapping[str, NodeFacts], *, by: By = "lab"
) -> tuple[Difference, ...]:
    """Every difference in the lab: machine by machine, then between them."""
    if by == "kubernetes":
        bound, observed = with_chosen_macs(intent, observed), with_pod_names(intent, observed)
    else:
        bound = with_held_gateways(intent, observed)
    beside = footprint(intent.topology, by)
    own = [
        found
        for machine in bound.everything()
        if machine.name in observed
        for found in compare_machine(machine, observed[machine.name], by=by, beside=beside)
    ]
    return (*own, *compare_between(bound, observed, by=by))


def learning_machines(intent: Intent) -> tuple[str, ...]:
    """The machines on which daemons learn routes or hold gateways."""
    candidates = {name for one in intent.gateways for name in one.candidates}
    return tuple(
        machine.name
        for machine in intent.machines
        if machine.name in candidates or any(route.by for route in machine.routes)
    )


def unlearned(intent: Intent, observed: Mapping[str, NodeFacts]) -> Iterator[Difference]:
    """Learned routes and gateways that do not exist yet, with the current holders of gateways."""
    for machine in with_held_gateways(intent, observed).machines:
        if machine.name in observed:
            found = compare_machine(machine, observed[machine.name])
            yield from (one for one in found if one.kind in _LEARNED)


def with_held_gateways(intent: Intent, observed: Mapping[str, NodeFacts]) -> Intent:
    """The Intent with each virtual gateway on the machine that was seen holding it.

    A gateway that no machine or several machines hold stays as in the Intent.
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


def with_pod_names(intent: Intent, observed: Mapping[str, NodeFacts]) -> dict[str, NodeFacts]:
    """The facts with the names of Kubernetes pods instead of their network namespaces'.

    A pod is identified by its first address: a duplicate of another's address is added after it.
    """
    return {
        name: replace(facts, pods=tuple(_named(intent.machine(name), facts.pods)))
        if facts.pods
        else facts
        for name, facts in observed.items()
    }


def _named(machine: MachineIntent, pods: Iterable[PodFacts]) -> Iterator[PodFacts]:
    names = {pod.address.partition("/")[0]: pod.name for pod in machine.pods}
    for one in pods:
        own = next((text.partition("/")[0] for text in one.addresses()), "")
        yield replace(one, name=names.pop(own, one.name))  # the first of two with the same address


def with_chosen_macs(intent: Intent, observed: Mapping[str, NodeFacts]) -> Intent:
    """The Intent with the MACs that a cluster's network add-on has chosen for tunnels.

    Each is read on the tunnel's own node; other nodes' entries for it are adapted.
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
