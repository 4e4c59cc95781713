"""The path of one request through the Intent and of its answer back, hop by hop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab.scenario.terms import Protocol
from lab.topology.subject import DeviceSubject, Subject

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
Service's address becomes a backend's; ``untranslated``: an answer gets back the addresses of its
request; ``firewall``: rules of a machine that may block; ``forwarding``: whether it forwards at
all; ``entry``: the tunnel's forwarding entry; ``card``: a network interface, sending or receiving;
``switch``: a hypervisor's, or a port of it; ``flows``: those of the switch that has a machine's
interface; ``logical-...``: part of a logical network.
"""


@dataclass(frozen=True, slots=True)
class Flow:
    """Source, target and protocol of a request."""

    source: str
    target: str
    """The requested address: a pod's, a Service's, a machine's."""
    port: int
    protocol: Protocol
    forwarded: bool = False
    """Whether the cluster's DNS server must forward the query to the services node."""


@dataclass(frozen=True, slots=True)
class Packet:
    """The addresses of a packet at one hop; ``port`` is the server's."""

    protocol: Protocol
    source: str
    target: str
    port: int
    answer: bool = False

    def answered(self) -> Packet:
        """The packet that the receiver sends back."""
        return replace(self, source=self.target, target=self.source, answer=not self.answer)


@dataclass(frozen=True, slots=True)
class Hop:
    """One thing that a packet passes."""

    kind: HopKind
    machine: str
    """The machine of the Intent that it is on; pods count as their machine."""
    place: str
    """The pod or machine whose network namespace it is in."""
    device: str
    """The device on which the packet can be captured; empty for a decision without a device."""
    subject: Subject
    """The same as a difference has there."""
    packet: Packet
    """The packet after this hop; between machines, the tunnel's outer packet."""
    carried: Packet | None = None
    """The inner packet of a tunnel's packet."""

    @property
    def object(self) -> str:
        """The subject's name: ``"route to 10.244.2.0/24"``, ``"tunnel flannel.4096"``."""
        return str(self.subject)

    def __str__(self) -> str:
        return f"{self.place}: {self.object}"


@dataclass(frozen=True, slots=True)
class Path:
    """The whole path of one request, for one backend if there are several."""

    flow: Flow
    request: tuple[Hop, ...]
    reply: tuple[Hop, ...]
    """Empty if the request does not arrive. If DNS forwards the query, the path of the forwarded
    query and its answer comes first.
    """
    backend: str | None = None
    """The pod that Service translation chose."""
    end: str = ""
    """Where and why the Intent leads no further; empty if the answer comes back."""
    unobserved: bool = False
    """Whether only its ends are known: what lies between them is not the lab's."""

    @property
    def hops(self) -> tuple[Hop, ...]:
        """The request's, then the reply's."""
        return (*self.request, *self.reply)

    @property
    def machines(self) -> tuple[str, ...]:
        """Every machine on the path, in order of first passing."""
        return tuple(dict.fromkeys(hop.machine for hop in self.hops))


Passing = Literal["in", "out"]
StationKind = Literal["endpoint", "port", "bridge", "tunnel", "card"]
"""``port``: of any bridge; frames arrive there for another device's MAC."""


@dataclass(frozen=True, slots=True)
class Station:
    """One packet passing one device."""

    kind: StationKind
    machine: str
    place: str
    """The pod or machine whose network namespace the device is in."""
    device: str
    passing: Passing
    """Direction seen from the device: into its namespace, or out of it."""
    packet: Packet
    """The packet that the Intent has there, without tunnel headers."""
    tunnelled: bool = False
    """Whether it is inside a tunnel there."""

    def __str__(self) -> str:
        return f"{self.place} {self.device}"


def stations(hops: Sequence[Hop]) -> tuple[Station, ...]:
    """Where a packet can be captured on the way there or back.

    A bridge or a hypervisor's switch that only passes a packet between two of its ports does not
    see it itself.
    """
    shown = [(number, hop) for number, hop in enumerate(hops) if _is_shown(hop)]
    passed: list[Station] = []
    for place, (number, hop) in enumerate(shown):
        before = shown[place - 1][1].kind if place else None
        after = shown[place + 1][1].kind if place + 1 < len(shown) else None
        match hop.kind:
            case "endpoint":
                passed.append(_make_station("endpoint", hop, "in" if place else "out"))
            case "port":
                passed.append(_make_station("port", hop, "in" if before == "endpoint" else "out"))
            case "bridge":
                from_port = place > 0 and _is_port(shown[place - 1][1])
                to_port = place + 1 < len(shown) and _is_port(shown[place + 1][1])
                if not (from_port and to_port):
                    passed.append(_make_station("bridge", hop, "in" if from_port else "out"))
            case "tunnel":
                enters = [hop.kind for hop in hops[number + 1 : number + 2]] == ["entry"]
                kind: StationKind = "port" if "switch" in {before, after} else "tunnel"
                passed.append(_make_station(kind, hop, "out" if enters else "in"))
            case "card":
                sent = hops[number - 1].kind == "card" and passed[-1].passing == "out"
                arrives = sent or before == "switch"
                passed.append(_make_station("card", hop, "in" if arrives else "out"))
            case "switch":
                passed.append(_make_station("port", hop, "in" if before == "card" else "out"))
            case _:
                pass
    return tuple(passed)


def _is_port(hop: Hop) -> bool:
    """Whether it is a port of a bridge; so is a pod whose port on the node is not known."""
    return hop.kind == "port" or (hop.kind == "endpoint" and hop.place != hop.machine)


def _is_shown(hop: Hop) -> bool:
    """Whether the hop has a device; of a hypervisor's switch only the ports have one."""
    return bool(hop.device) and hop.subject != DeviceSubject(hop.device, "switch")


def _make_station(kind: StationKind, hop: Hop, passing: Passing) -> Station:
    packet, tunnelled = hop.carried or hop.packet, hop.carried is not None
    return Station(kind, hop.machine, hop.place, hop.device, passing, packet, tunnelled)
