"""What was seen, compared with the Intent: in the order of a packet's hops. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lab.cluster.observers import windows_words
from lab.cluster.observers.difference import By, Difference, Kind, Look
from lab.cluster.observers.facts import NodeFacts
from lab.cluster.observers.hops import bridge, endpoint, routing, services, tunnel, underlay
from lab.cluster.observers.rules import overlap
from lab.topology.intent import Intent, MachineIntent

_HOPS = (
    endpoint.check,
    bridge.check,
    services.check,
    routing.check,
    tunnel.check,
    underlay.check,
)


def differences(
    intended: MachineIntent, observed: NodeFacts, *, by: By = "lab"
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

    """
    look = Look(intended, observed, by)
    found = tuple(one for hop in _HOPS for one in hop(look))
    if observed.os == "windows":
        return tuple(windows_words.put(one, intended) for one in found)
    return found


def lab_differences(
    intent: Intent, observed: Mapping[str, NodeFacts], *, by: By = "lab"
) -> tuple[Difference, ...]:
    """What in the whole lab is not as intended: node by node, then between nodes."""
    bound = settled(intent, observed) if by == "kubernetes" else intent
    found: list[Difference] = []
    for machine in bound.machines:
        if machine.name in observed:
            found += differences(machine, observed[machine.name], by=by)
    return (*found, *_between(bound, observed))


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


def _between(intent: Intent, observed: Mapping[str, NodeFacts]) -> Iterator[Difference]:
    """Addresses, MACs and pod CIDRs that two nodes, or two pods, have."""
    ranges = [segment.cidr for segment in intent.segments]
    ranges += [
        machine.translation.local_cidr
        for machine in intent.machines
        if machine.translation and machine.translation.local_cidr
    ]
    owners: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for node, facts in observed.items():
        for kind, value, device in _claims(facts, ranges):
            owners.setdefault((kind, value), []).append((node, device))
    for (kind, value), claims in owners.items():
        if len(claims) > 1:
            yield _twice(kind, value, claims)


def _claims(facts: NodeFacts, ranges: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    devices = [(link, link.name) for link in facts.links]
    devices += [(link, f"pod {pod.name}") for pod in facts.pods or () for link in pod.links]
    for link, name in devices:
        own = [text for text in link.addresses if any(overlap(text, one) for one in ranges)]
        if link.kind == "bridge":
            yield from (("cidr", text, name) for text in own)
        else:
            yield from (("address", text.partition("/")[0], name) for text in own)
        if own:
            yield "mac", link.mac, name


def _twice(kind: str, value: str, claims: list[tuple[str, str]]) -> Difference:
    words: dict[str, tuple[Kind, str, str]] = {
        "address": ("duplicate-address", "address", "ip address"),
        "mac": ("duplicate-mac", "MAC", "ip link"),
        "cidr": ("duplicate-pod-cidr", "pod CIDR", "ip address"),
    }
    name, what, shows = words[kind]
    node, device = claims[-1]
    return Difference(
        name,
        node,
        f"{what} {value} of {device}",
        "nobody else's",
        "also " + ", ".join(f"{device} of {node}" for node, device in claims[:-1]),
        shows,
        f"give {device} of {node} its own {what}",
    )
