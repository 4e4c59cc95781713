"""The devices on a path where a packet can be seen, in the order in which it passes them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab.topology.intent import Intent, MachineIntent
from lab.topology.path import Hop, Packet
from lab.topology.segment import Interface
from lab.topology.steering import card_of

Passing = Literal["in", "out"]
StationKind = Literal["endpoint", "port", "bridge", "tunnel", "card"]


@dataclass(frozen=True, slots=True)
class Station:
    """One passing of one device."""

    kind: StationKind
    machine: str
    place: str
    """The pod or machine whose network namespace the device is in."""
    device: str
    passing: Passing
    """Seen from the device: into its namespace, or out of it."""
    packet: Packet
    """As the Intent has it there, out of every tunnel."""
    tunnelled: bool = False
    """Whether a tunnel carries it there."""

    def __str__(self) -> str:
        return f"{self.place} {self.device}"


def stations(intent: Intent, hops: Sequence[Hop]) -> tuple[Station, ...]:
    """Where a packet shows on one way, there or back.

    A bridge that only passes a packet from one of its ports to another does not see it itself.
    """
    seen = [number for number, hop in enumerate(hops) if hop.device]
    found: list[Station] = []
    for place, number in enumerate(seen):
        hop = hops[number]
        before = hops[seen[place - 1]].kind if place else None
        after = hops[seen[place + 1]].kind if place + 1 < len(seen) else None
        match hop.kind:
            case "endpoint":
                found.append(_station(hop, "in" if place else "out"))
            case "port":
                found.append(_station(hop, "in" if before == "endpoint" else "out"))
            case "bridge" if not before == after == "port":
                found.append(_station(hop, "in" if before == "port" else "out"))
            case "tunnel":
                enters = hops[number + 1].kind == "entry" if number + 1 < len(hops) else False
                found.append(_station(hop, "out" if enters else "in"))
            case "card":
                arrives = hops[number - 1].kind == "card" and found[-1].passing == "out"
                if arrives:
                    found += _between(intent, found[-1], hop)
                found.append(_station(hop, "in" if arrives else "out"))
            case _:
                pass
    return tuple(found)


def _station(hop: Hop, passing: Passing) -> Station:
    kind: StationKind
    match hop.kind:
        case "endpoint" | "port" | "bridge" | "tunnel" | "card" as kind:
            pass
        case _:
            raise AssertionError(f"{hop.kind} is no device")
    packet, tunnelled = hop.carried or hop.packet, hop.carried is not None
    return Station(kind, hop.machine, hop.place, hop.device, passing, packet, tunnelled)


def _between(intent: Intent, left: Station, hop: Hop) -> Iterator[Station]:
    """The switches of the scenario's own hypervisors, from one machine's card to another's."""
    hosts = {one.name: one for one in intent.hypervisors}
    ends = [
        (hosts.get(card.host or ""), machine.name, card)
        for machine, card in (
            _card(intent, left.machine, left.device),
            _card(intent, hop.machine, hop.device),
        )
    ]
    (here, sender, from_card), (there, receiver, to_card) = ends
    if here is None or there is None:
        return
    yield _at(here, _port(here, sender, from_card), "port", "in", left)
    if here is not there and here.tunnel and there.tunnel:
        yield _at(here, here.tunnel.name, "tunnel", "out", left)
        between = replace(left, tunnelled=True)
        yield _at(here, here.tunnel.device, "card", "out", between)
        yield _at(there, there.tunnel.device, "card", "in", between)
        yield _at(there, there.tunnel.name, "port", "in", left)
    yield _at(there, _port(there, receiver, to_card), "port", "out", left)


def _card(intent: Intent, machine: str, device: str) -> tuple[MachineIntent, Interface]:
    found = intent.machine(machine)
    card = card_of(found, device)
    assert card is not None, "the walk went by it"
    return found, card


def _port(host: MachineIntent, machine: str, card: Interface) -> str:
    ports = host.switch.ports if host.switch else ()
    return next(one.name for one in ports if (one.machine, one.card) == (machine, card.name))


def _at(
    host: MachineIntent, device: str, kind: StationKind, passing: Passing, of: Station
) -> Station:
    return Station(kind, host.name, host.name, device, passing, of.packet, of.tunnelled)
