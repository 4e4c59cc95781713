"""What only one machine or pod may have, but two have: addresses, MACs and pod CIDRs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_interface
from typing import Literal

from lab.explain.check import Check, Kind, LabLook, concerned, differs
from lab.explain.checks.routing import is_route
from lab.facts.command_lines import IN_POD
from lab.facts.difference import Concern, Difference
from lab.facts.items import LinkFacts
from lab.facts.node import NodeFacts
from lab.facts.translations import overlap
from lab.topology.commands import replace_route, tables
from lab.topology.intent import Intent
from lab.topology.path import Hop, Path
from lab.topology.routing import bare, covers, network_of
from lab.topology.subject import (
    ClaimSubject,
    DeviceSubject,
    PodSubject,
    RouteSubject,
    Subject,
    device_of,
)

_Claim = tuple[str, str]
"""``"address"``, ``"mac"`` or ``"cidr"``, and its value."""
_Owner = tuple[str, Subject]
"""Machine, and device or pod."""


@dataclass(frozen=True, slots=True)
class _Held:
    """Something that a device has."""

    node: str
    owner: DeviceSubject | PodSubject
    device: str
    text: str
    """In the device's own form: an address with its prefix length."""

    @property
    def who(self) -> _Owner:
        return self.node, self.owner


def _at_owner(difference: Difference, hop: Hop, _: Path) -> bool:
    """At the wrong owner, or at a right one."""
    claim = difference.subject
    if not isinstance(claim, ClaimSubject):
        return False
    owner = PodSubject(claim.pod) if claim.pod else DeviceSubject(claim.device)
    return any(_is_at(hop, *holder) for holder in ((difference.node, owner), *difference.others))


def _is_at(hop: Hop, machine: str, owner: Subject) -> bool:
    if isinstance(owner, PodSubject):
        return hop.place == owner.name
    return (hop.place, hop.device) == (machine, device_of(owner))


def _at_cidr(difference: Difference, hop: Hop, path: Path) -> bool:
    """At packets that the machine keeps or attracts wrongly, for its pod CIDR."""
    if concerned(difference, hop, path):
        return True
    here = hop.machine == difference.node and hop.kind in {"route", "forwarding"}
    packets = (hop.packet, hop.carried)
    return (
        here
        and isinstance(difference.subject, ClaimSubject)
        and any(
            covers(network_of(difference.subject.value), packet.target)
            for packet in packets
            if packet
        )
    )


def _drawn(intent: Intent, observed: Mapping[str, NodeFacts], text: str) -> Iterator[Concern]:
    """The learned routes to a pod CIDR that lead to the wrong machine."""
    cidr = str(ip_interface(text).network)
    for machine in intent.machines:
        facts = observed.get(machine.name)
        for route in machine.routes if facts else ():
            if route.by and route.destination == cidr:
                actual = facts.items.route(cidr) if facts else None
                led = actual.subject if actual else None
                if isinstance(led, RouteSubject) and (led.device, led.via) != (
                    route.device,
                    route.via or "",
                ):
                    yield machine.name, RouteSubject(cidr)


def _ranges(intent: Intent) -> list[str]:
    ranges = [segment.cidr for segment in intent.segments]
    return ranges + [
        machine.translation.local_cidr
        for machine in intent.machines
        if machine.translation and machine.translation.local_cidr
    ]


def _owners(intent: Intent) -> Iterator[tuple[_Claim, _Owner]]:
    """The intended owner of each address, MAC and pod CIDR."""
    for machine in intent.everything():
        for pod in machine.pods:
            owner = (machine.name, PodSubject(pod.name))
            yield ("address", pod.address.partition("/")[0]), owner
            yield ("mac", pod.mac), owner
        tunnels = (machine.tunnel,) if machine.tunnel else ()
        for device in (*machine.interfaces, *tunnels):
            for text in device.addresses:
                yield (
                    ("address", text.partition("/")[0]),
                    (machine.name, DeviceSubject(device.name)),
                )
        bridges = (machine.bridge,) if machine.bridge else ()
        for link in (*machine.interfaces, *bridges):
            yield ("mac", link.mac), (machine.name, DeviceSubject(link.name))
        for bridge in bridges:
            yield from (
                (("cidr", text), (machine.name, DeviceSubject(bridge.name)))
                for text in bridge.addresses
            )


def _claims(node: str, facts: NodeFacts, ranges: Sequence[str]) -> Iterator[tuple[_Claim, _Held]]:
    devices: list[tuple[LinkFacts, DeviceSubject | PodSubject]] = [
        (link, DeviceSubject(link.name)) for link in facts.links
    ]
    devices += [(link, PodSubject(pod.name)) for pod in facts.pods or () for link in pod.links]
    for link, owner in devices:
        own = [text for text in link.addresses if any(overlap(text, range_) for range_ in ranges)]
        for text in own:
            held = _Held(node, owner, link.name, text)
            bridge = link.kind == "bridge"
            yield (("cidr", text) if bridge else ("address", text.partition("/")[0])), held
        if own and link.mac:  # HNS reports no MAC of a network
            yield ("mac", link.mac), _Held(node, owner, link.name, link.mac)


def _twice(intent: Intent, claim: _Claim, held: _Held, others: Sequence[_Owner]) -> Difference:
    kind, value = claim
    name, resource, shows = _CLAIMS[kind]
    pod = held.owner.name if isinstance(held.owner, PodSubject) else ""
    inside = IN_POD if pod else ""
    return differs(
        name,
        held.node,
        ClaimSubject(resource, value, "" if pod else held.device, pod),
        "unique",
        "also " + ", ".join(f"{_words_of(owner)} of {node}" for node, owner in others),
        f"{inside}{shows} show dev {held.device}",
        inside + (_mends(intent, kind, held, others) or _words(resource, held)),
        others=tuple(others),
        place=pod,
    )


_CLAIMS: Mapping[str, tuple[str, Literal["address", "MAC", "pod CIDR"], str]] = {
    "address": ("duplicate-address", "address", "ip address"),
    "mac": ("duplicate-mac", "MAC", "ip link"),
    "cidr": ("duplicate-pod-cidr", "pod CIDR", "ip address"),
}


def _words_of(owner: Subject) -> str:
    return owner.name if isinstance(owner, DeviceSubject) else str(owner)


def _words(resource: str, held: _Held) -> str:
    return f"give {_words_of(held.owner)} of {held.node} its own {resource}"


def _mends(intent: Intent, kind: str, held: _Held, others: Sequence[_Owner]) -> str:
    """The command that removes what belongs to another owner; empty if none is known."""
    machine = intent.machine(held.node)
    if kind == "mac":
        own = next(
            (interface.mac for interface in machine.interfaces if interface.name == held.device), ""
        )
        back = f"ip link set dev {held.device} address {own}"
        again = (*_resolved(intent, others, held.device), *tables(machine, held.device))
        return " && ".join((back, *again)) if own and isinstance(held.owner, DeviceSubject) else ""
    lines = [f"ip address del {held.text} dev {held.device}"]
    if kind == "cidr":
        cidr = str(ip_interface(held.text).network)
        static = [route for route in machine.routes if route.by is None]
        lines += [replace_route(route) for route in static if route.destination == cidr]
    return " && ".join(lines)


def _resolved(intent: Intent, others: Iterable[_Owner], device: str) -> Iterator[str]:
    """Have the kernel send an ARP request to each owner: by its reply switches learn its port."""
    for node, owner in others:
        for interface in intent.machine(node).interfaces:
            if interface.name == device_of(owner) and interface.addresses:
                yield f"ip neighbour replace {bare(interface.addresses[0])} dev {device} use"


def _is_of_claim(kind: str, cause: Difference, other: Difference) -> bool:
    """Whether a difference of that kind is of the pod or card that has what another one has."""
    claim = cause.subject
    return (
        (other.kind, other.node) == (kind, cause.node)
        and isinstance(claim, ClaimSubject)
        and other.subject in {PodSubject(claim.pod), DeviceSubject(claim.device, "card")}
    )


def _is_route_of_cidr(cause: Difference, other: Difference) -> bool:
    return other.node == cause.node and is_route(other)


class DuplicatesCheck(Check):
    """Addresses, MACs and pod CIDRs that two machines or two pods have.

    Reported for the one that should not have it, if the Intent names an owner. MACs come first:
    holders of a virtual gateway that do not hear each other both hold it, which is a consequence
    of the same MAC or of something else.
    """

    order = 110
    kinds = (
        Kind(
            "duplicate-address",
            fault="duplicate-pod-address",
            meets=_at_owner,
            explains=partial(_is_of_claim, "pod-address"),
        ),
        Kind("gateway-twice", meets=_at_owner, follows=True, symptom="learned"),
        Kind(
            "duplicate-mac",
            fault="two-nodes-one-mac",
            meets=_at_owner,
            explains=partial(_is_of_claim, "link-mac"),
        ),
        Kind(
            "duplicate-pod-cidr",
            fault="duplicate-node-pod-cidr",
            meets=_at_cidr,
            explains=_is_route_of_cidr,
        ),
    )

    def in_lab(self, look: LabLook) -> Iterator[Difference]:
        intent, observed = look.intent, look.observed
        owners = dict(_owners(intent))
        gateways = {
            (name, gateway.device, gateway.address)
            for gateway in intent.gateways
            for name in gateway.candidates
        }
        claims: dict[_Claim, list[_Held]] = {}
        for node, facts in observed.items():
            for claim, held in _claims(node, facts, _ranges(intent)):
                claims.setdefault(claim, []).append(held)
        for claim, holders in sorted(claims.items(), key=lambda pair: pair[0][0] != "mac"):
            owner = owners.get(claim)
            if owner is None:
                if len(holders) > 1:
                    difference = _twice(
                        intent, claim, holders[-1], [holder.who for holder in holders[:-1]]
                    )
                    yield _of_gateway(difference, holders[-1], gateways)
                continue
            for holder in holders:
                if holder.who != owner:
                    difference = _of_gateway(
                        _twice(intent, claim, holder, [owner]), holder, gateways
                    )
                    drawn = _drawn(intent, observed, holder.text) if claim[0] == "cidr" else ()
                    yield replace(difference, concerns=tuple(drawn))


def _of_gateway(
    difference: Difference, held: _Held, gateways: Collection[tuple[str, str, str]]
) -> Difference:
    """The difference, as a consequence if it is of a virtual gateway's address."""
    if (held.node, held.device, held.text) not in gateways:
        return difference
    return replace(difference, kind="gateway-twice", fault="")
