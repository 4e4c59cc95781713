"""The way of one question through the Intent, and of its answer back: hop by hop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab.scenario.terms import Protocol

HopKind = Literal[
    "endpoint",
    "way-out",
    "port",
    "bridge",
    "service",
    "masquerade",
    "untranslated",
    "firewall",
    "forwarding",
    "route",
    "neighbour",
    "tunnel",
    "entry",
    "card",
    "switch",
    "flows",
    "logical-port",
    "logical-router",
    "logical-route",
]
"""``way-out``: a pod's default route; ``port``: the node's end of a pod's cable; ``service``: a
Service's address becomes a backend's; ``untranslated``: an answer is given back the addresses
that its question had; ``firewall``: what a machine's rules may bar; ``forwarding``: whether it
forwards at all; ``entry``: the tunnel's forwarding entry; ``card``: a network card, sending or
receiving; ``switch``: a hypervisor's, or a port of it;
``flows``: those of the switch that has a machine's card; ``logical-...``: of a logical network."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Who asks which address, and how."""

    source: str
    target: str
    """Address as it is asked for: a pod's, a Service's, a machine's."""
    port: int
    protocol: Protocol
    forwarded: bool = False
    """Whether the cluster's DNS server, which is asked, has to ask the services node's."""


@dataclass(frozen=True, slots=True)
class Packet:
    """The addresses that a packet carries at one hop; ``port`` is the answering side's."""

    protocol: Protocol
    source: str
    target: str
    port: int
    answer: bool = False

    def answered(self) -> Packet:
        """What the receiver sends back."""
        return replace(self, source=self.target, target=self.source, answer=not self.answer)


@dataclass(frozen=True, slots=True)
class Hop:
    """One thing that a packet meets."""

    kind: HopKind
    machine: str
    """The machine of the Intent that it is on, its pods included."""
    place: str
    """The pod or machine whose network namespace it is in."""
    device: str
    """Where the packet can be seen there; empty for a decision, which has no device."""
    object: str
    """In the observers' words: ``"route to 10.244.2.0/24"``, ``"tunnel flannel.4096"``."""
    packet: Packet
    """As it is after this hop; on the network between machines, a tunnel's own."""
    carried: Packet | None = None
    """What the tunnel's packet has inside."""

    def __str__(self) -> str:
        return f"{self.place}: {self.object}"


@dataclass(frozen=True, slots=True)
class Path:
    """One question's whole way; with several backends, of one of them."""

    flow: Flow
    there: tuple[Hop, ...]
    back: tuple[Hop, ...]
    """Empty where the question arrives nowhere. Of one that is forwarded, the way of that question
    and its answer comes first."""
    backend: str | None = None
    """The pod that a Service's translation chose."""
    end: str = ""
    """Where the Intent itself leads no further, and why; empty where the answer comes back."""

    @property
    def hops(self) -> tuple[Hop, ...]:
        """There, then back."""
        return (*self.there, *self.back)

    @property
    def machines(self) -> tuple[str, ...]:
        """Every machine that is passed, in order of first passing."""
        return tuple(dict.fromkeys(hop.machine for hop in self.hops))


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
