"""Which of the packets that were taken down are of one probe, whatever was done to them. Pure.

Translation changes addresses and ports, and a tunnel hides them; TCP's numbers, the number of an
IPv4 datagram and a UDP payload stay what they are. So packets are known by these, from where
the probe is sent on: whatever has the ends of a known packet at one device is of the probe too,
and known everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lab.explain.capture.frames import NAMES, Arp, Decoded, InnerPacket, PacketEnds, Quoted, decode
from lab.providers.capture import Frame, Taken, Tap

Way = Literal["there", "back"]
_Mark = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """How the probe's own packets are known where it is sent."""

    place: str
    protocol: str
    sources: frozenset[str]
    """Addresses that it may have there."""
    targets: frozenset[tuple[str, int]]
    """Address and port that it may be for, before and after translation."""
    ports: frozenset[int] = frozenset()
    """Where the place translates by itself: target ports with which any address is the probe's."""


@dataclass(frozen=True, slots=True)
class Passed:
    """One packet of the probe at one tap."""

    tap: Tap
    frame: Frame
    decoded: Decoded
    inside: InnerPacket
    way: Way


@dataclass(frozen=True, slots=True)
class Refused:
    """An ICMP error about the probe at one tap."""

    tap: Tap
    frame: Frame
    inside: InnerPacket
    error: Quoted


@dataclass(frozen=True, slots=True)
class Unanswered:
    """An address that was asked for by ARP at a tap, so many times, and nobody answered."""

    tap: Tap
    address: str
    times: int


@dataclass(frozen=True, slots=True)
class Matched:
    """What was found of one probe, each in the order of time."""

    passed: tuple[Passed, ...]
    errors: tuple[Refused, ...]
    unanswered: tuple[Unanswered, ...]


def match(taken: Sequence[Taken], asked: Asked) -> Matched:
    """Find the probe's packets, the errors about them, and ARP that nobody answered."""
    read = [_Reading(one) for one in taken]
    found = _closure(read, asked)
    flows = {flow for own in found.values() for one in own for flow in (one, one.reversed())}
    passed = [
        Passed(one.tap, frame, decoded, inside, way)
        for one in read
        for frame, decoded, inside, flow in one.packets
        if (way := _way(flow, found[one.tap]))
    ]
    errors = [
        Refused(one.tap, frame, inside, inside.error)
        for one in read
        for frame, _, inside, _ in one.packets
        if inside.error and inside.error.flow in flows
    ]
    return Matched(
        tuple(sorted(passed, key=lambda one: one.frame.at)),
        tuple(sorted(errors, key=lambda one: one.frame.at)),
        tuple(silence for one in read for silence in one.unanswered()),
    )


class _Reading:
    """One tap's frames, read; later fragments have the ends of their first."""

    def __init__(self, taken: Taken) -> None:
        self.tap = taken.tap
        self._arps: list[Arp] = []
        self.packets: list[tuple[Frame, Decoded, InnerPacket, PacketEnds]] = []
        whole: dict[tuple[object, ...], PacketEnds] = {}
        read = [(frame, decode(frame.data)) for frame in taken.frames]
        for _, decoded in read:
            if decoded.inside and decoded.inside.fragment and not decoded.inside.offset:
                whole[_datagram(decoded.inside)] = decoded.inside.flow
        for frame, decoded in read:
            if decoded.arp:
                self._arps.append(decoded.arp)
            if decoded.inside:
                inside = decoded.inside
                flow = whole.get(_datagram(inside), inside.flow)
                self.packets.append((frame, decoded, inside, flow))

    def unanswered(self) -> Iterator[Unanswered]:
        """Addresses that were asked for in vain."""
        answered = {one.sender for one in self._arps if not one.asks}
        asked = [one.target for one in self._arps if one.asks and one.sender != one.target]
        for address in dict.fromkeys(asked):
            if address not in answered:
                yield Unanswered(self.tap, address, asked.count(address))


def _datagram(inside: InnerPacket) -> tuple[object, ...]:
    flow = inside.flow
    return inside.ident, flow.protocol, flow.source, flow.target, inside.fragment


def _way(flow: PacketEnds, there: set[PacketEnds]) -> Way | None:
    if flow in there:
        return "there"
    return "back" if flow.reversed() in there else None


def _closure(read: Sequence[_Reading], asked: Asked) -> Mapping[Tap, set[PacketEnds]]:
    """The probe's flows at each tap, as its questions have them."""
    found: dict[Tap, set[PacketEnds]] = {one.tap: set(_seeds(one, asked)) for one in read}
    marks: dict[_Mark, Way] = {}
    growing = True
    while growing:
        growing = False
        for one in read:
            own = found[one.tap]
            for _, _, inside, flow in one.packets:
                mark = _mark(inside)
                way = _way(flow, own)
                if way is None and mark in marks and flow.source_port is not None:
                    way = marks[mark]
                    own.add(flow if way == "there" else flow.reversed())
                    growing = True
                if way is not None and mark not in marks:
                    marks[mark] = way
                    growing = True
    return found


def _seeds(one: _Reading, asked: Asked) -> Iterator[PacketEnds]:
    if one.tap.place != asked.place:
        return
    for frame, _, inside, flow in one.packets:
        if frame.direction != "out" or NAMES.get(flow.protocol) != asked.protocol:
            continue
        if flow.source not in asked.sources or flow.target_port is None or inside.error:
            continue
        if (flow.target, flow.target_port) in asked.targets or flow.target_port in asked.ports:
            yield flow


def _mark(inside: InnerPacket) -> _Mark:
    """What of a packet stays the same from the one who sends it to the one who takes it."""
    flow = inside.flow
    if inside.sequence or inside.acknowledged:
        return "tcp", inside.sequence, inside.acknowledged, inside.flags
    if inside.fragment:
        return "part", flow.protocol, inside.ident, inside.offset
    return "whole", flow.protocol, inside.ident, inside.digest, inside.length
