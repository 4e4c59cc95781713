"""The devices on a path where a packet can be seen, in the order in which it passes them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lab.topology.path import Hop, Packet

Passing = Literal["in", "out"]
StationKind = Literal["endpoint", "port", "bridge", "tunnel", "card"]
"""``port``: of whatever bridge; there everything comes in for another's MAC."""


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


def stations(hops: Sequence[Hop]) -> tuple[Station, ...]:
    """Where a packet shows on one way, there or back.

    A bridge that only passes a packet from one of its ports to another does not see it itself,
    and so it is with a hypervisor's switch.
    """
    seen = [(number, hop) for number, hop in enumerate(hops) if _shows(hop)]
    found: list[Station] = []
    for place, (number, hop) in enumerate(seen):
        before = seen[place - 1][1].kind if place else None
        after = seen[place + 1][1].kind if place + 1 < len(seen) else None
        match hop.kind:
            case "endpoint":
                found.append(_station("endpoint", hop, "in" if place else "out"))
            case "port":
                found.append(_station("port", hop, "in" if before == "endpoint" else "out"))
            case "bridge" if not before == after == "port":
                found.append(_station("bridge", hop, "in" if before == "port" else "out"))
            case "tunnel":
                enters = [one.kind for one in hops[number + 1 : number + 2]] == ["entry"]
                kind: StationKind = "port" if "switch" in {before, after} else "tunnel"
                found.append(_station(kind, hop, "out" if enters else "in"))
            case "card":
                sent = hops[number - 1].kind == "card" and found[-1].passing == "out"
                arrives = sent or before == "switch"
                found.append(_station("card", hop, "in" if arrives else "out"))
            case "switch":
                found.append(_station("port", hop, "in" if before == "card" else "out"))
            case _:
                pass
    return tuple(found)


def _shows(hop: Hop) -> bool:
    """Whether it is a device; of a hypervisor's switch only its ports are."""
    return bool(hop.device) and hop.object != f"switch {hop.device}"


def _station(kind: StationKind, hop: Hop, passing: Passing) -> Station:
    packet, tunnelled = hop.carried or hop.packet, hop.carried is not None
    return Station(kind, hop.machine, hop.place, hop.device, passing, packet, tunnelled)
