"""Finds which captured packets belong to one probe, whatever was done to them. Pure.

Translation changes addresses and ports, and a tunnel hides them; TCP's sequence numbers, the
identification of an IPv4 datagram and a UDP payload stay the same. So packets are identified by
these, starting where the probe is sent: a flow with an identified packet at one device belongs to
the probe there, and its packets are identified everywhere else.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import Literal
from zlib import crc32

from lab.providers.capture import Frame, Taken, Tap

_ETHERNET, _IPV4, _ARP = 14, 0x0800, 0x0806
_VLAN = 0x8100
_ICMP, _TCP, _UDP = 1, 6, 17
NAMES = {_ICMP: "icmp", _TCP: "tcp", _UDP: "udp"}
_FIXED = struct.Struct("!BxHHHBBxx4s4s")
"""IPv4 header: version and length, total length, id, flags and offset, TTL, protocol, addresses."""
_PORTS = struct.Struct("!HH")
_TCP_HEADER = struct.Struct("!HHIIBB")
_UDP_BYTES, _TUNNEL_BYTES = 8, 8
_MOST_TUNNELS = 3
_VXLAN_FLAGS = b"\x08\x00\x00\x00"
_GENEVE_PORT, _ETHERNET_INSIDE = 6081, 0x6558
_ARP_BODY = struct.Struct("!HHBBH6s4s6s4s")
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16
_ICMP_ERRORS = frozenset({3, 4, 5, 11, 12})
_DIGESTED = 64
"""Bytes of a payload that identify it."""


@dataclass(frozen=True, slots=True)
class Outer:
    """The outer packet of a tunnel."""

    kind: str
    """``"VXLAN"`` or ``"Geneve"``."""
    vni: int
    source: str
    target: str
    port: int

    def __str__(self) -> str:
        return f"{self.kind} {self.vni} {self.source} > {self.target}:{self.port}"


@dataclass(frozen=True, slots=True)
class PacketEnds:
    """Addresses and ports of a packet; ports are None for later fragments and other protocols."""

    protocol: int
    source: str
    source_port: int | None
    target: str
    target_port: int | None

    def reversed(self) -> PacketEnds:
        """The ends of an answer."""
        return PacketEnds(
            self.protocol, self.target, self.target_port, self.source, self.source_port
        )

    def __str__(self) -> str:
        return f"{_end(self.source, self.source_port)} > {_end(self.target, self.target_port)}"


def _end(address: str, port: int | None) -> str:
    return address if port is None else f"{address}:{port}"


@dataclass(frozen=True, slots=True)
class Quoted:
    """The error of an ICMP message, and the packet that it quotes."""

    kind: int
    code: int
    flow: PacketEnds | None


@dataclass(frozen=True, slots=True)
class InnerPacket:
    """An IPv4 packet without tunnel headers."""

    flow: PacketEnds
    ident: int
    offset: int
    """Bytes of the datagram before this fragment."""
    fragment: bool
    """Whether it is a fragment of a datagram."""
    length: int
    """Bytes after the IPv4 header, according to that header."""
    digest: int
    """Digest of the first bytes of a UDP payload; 0 for other packets."""
    sequence: int = 0
    acknowledged: int = 0
    flags: int = 0
    data: int = 0
    """Bytes of TCP payload."""
    ttl: int = 0
    error: Quoted | None = None

    @property
    def reset(self) -> bool:
        """Whether it is a TCP RST."""
        return bool(self.flags & _RST)

    @property
    def confirms(self) -> bool:
        """Whether it acknowledges TCP data."""
        return bool(self.flags & _ACK)

    @property
    def opens(self) -> bool:
        """Whether it opens a TCP connection, or accepts one."""
        return bool(self.flags & _SYN)

    @property
    def ends(self) -> bool:
        """Whether it is the end of a TCP stream."""
        return bool(self.flags & _FIN)


@dataclass(frozen=True, slots=True)
class Arp:
    """An ARP request or reply."""

    asks: bool
    sender: str
    target: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """One decoded frame."""

    target_mac: str
    outers: tuple[Outer, ...] = ()
    inside: InnerPacket | None = None
    arp: Arp | None = None


def decode(frame: bytes) -> Decoded:
    """Decode a frame from its Ethernet header on; parts that it does not have are None."""
    mac = frame[:6].hex(":")
    kind, body = _ethernet(frame)
    if kind == _ARP:
        return Decoded(mac, arp=_arp(body))
    if kind != _IPV4:
        return Decoded(mac)
    outers, inside = _ip(body, ())
    return Decoded(mac, outers, inside)


def _ethernet(frame: bytes) -> tuple[int, bytes]:
    if len(frame) < _ETHERNET:
        return 0, b""
    at, kind = _ETHERNET, int.from_bytes(frame[12:14])
    if kind == _VLAN and len(frame) >= _ETHERNET + 4:
        at, kind = _ETHERNET + 4, int.from_bytes(frame[16:18])
    return kind, frame[at:]


def _arp(body: bytes) -> Arp | None:
    if len(body) < _ARP_BODY.size:
        return None
    _, kind, _, _, operation, _, sender, _, target = _ARP_BODY.unpack_from(body)
    if kind != _IPV4:
        return None
    return Arp(operation == 1, _address(sender), _address(target))


def _ip(body: bytes, outers: tuple[Outer, ...]) -> tuple[tuple[Outer, ...], InnerPacket | None]:
    if len(body) < _FIXED.size or body[0] >> 4 != 4:  # noqa: PLR2004  IP's version
        return outers, None
    first, total, ident, cut, ttl, protocol, source, target = _FIXED.unpack_from(body)
    header = (first & 0xF) * 4
    ends = _address(source), _address(target)
    offset, more = (cut & 0x1FFF) * 8, bool(cut & 0x2000)
    rest = body[header : max(total, header)]
    length = max(total - header, 0)
    if protocol == _UDP and not offset and not more and len(outers) < _MOST_TUNNELS:
        outer = _tunnel(rest, ends)
        if outer is not None:
            inner = rest[_UDP_BYTES + _TUNNEL_BYTES + _options(outer, rest) :]
            kind, carried = _ethernet(inner)
            deeper, inside = _ip(carried, (*outers, outer)) if kind == _IPV4 else ((), None)
            if inside is not None:
                return deeper, inside
    cut_short = bool(offset or more)
    if offset:
        flow = PacketEnds(protocol, ends[0], None, ends[1], None)
        return outers, InnerPacket(flow, ident, offset, cut_short, length, 0, ttl=ttl)
    inside = _first(protocol, ends, ident, cut_short, length, rest)
    return outers, replace(inside, ttl=ttl)


def _first(  # noqa: PLR0913, PLR0917  what stands in an IPv4 header
    protocol: int, ends: tuple[str, str], ident: int, fragment: bool, length: int, rest: bytes
) -> InnerPacket:
    """A whole packet, or its first fragment."""
    if protocol == _ICMP:
        flow = PacketEnds(protocol, ends[0], None, ends[1], None)
        return InnerPacket(flow, ident, 0, fragment, length, 0, error=_error(rest))
    if protocol not in {_TCP, _UDP} or len(rest) < _PORTS.size:
        return InnerPacket(
            PacketEnds(protocol, ends[0], None, ends[1], None), ident, 0, fragment, length, 0
        )
    source_port, target_port = _PORTS.unpack_from(rest)
    flow = PacketEnds(protocol, ends[0], source_port, ends[1], target_port)
    if protocol == _UDP:
        digest = crc32(rest[_UDP_BYTES : _UDP_BYTES + _DIGESTED])
        return InnerPacket(flow, ident, 0, fragment, length, digest)
    if len(rest) < _TCP_HEADER.size:
        return InnerPacket(flow, ident, 0, fragment, length, 0)
    _, _, sequence, acknowledged, size, flags = _TCP_HEADER.unpack_from(rest)
    data = max(length - (size >> 4) * 4, 0)
    return InnerPacket(flow, ident, 0, fragment, length, 0, sequence, acknowledged, flags, data)


def _error(rest: bytes) -> Quoted | None:
    """For an ICMP error: its type, and the innermost packet that it quotes."""
    if len(rest) < _TUNNEL_BYTES or rest[0] not in _ICMP_ERRORS:
        return None
    _, inside = _ip(rest[8:], ())
    return Quoted(rest[0], rest[1], inside.flow if inside else None)


def _tunnel(rest: bytes, ends: tuple[str, str]) -> Outer | None:
    """VXLAN on any port, because a wrong one may be the fault; Geneve on its own port."""
    if len(rest) < _UDP_BYTES + _TUNNEL_BYTES:
        return None
    port = _PORTS.unpack_from(rest)[1]
    head = rest[_UDP_BYTES : _UDP_BYTES + _TUNNEL_BYTES]
    vni = int.from_bytes(head[4:7])
    if head[:4] == _VXLAN_FLAGS and not head[7]:
        return Outer("VXLAN", vni, *ends, port)
    inside = int.from_bytes(head[2:4])
    if port == _GENEVE_PORT and head[0] >> 6 == 0 and inside == _ETHERNET_INSIDE:
        return Outer("Geneve", vni, *ends, port)
    return None


def _options(outer: Outer, rest: bytes) -> int:
    """Bytes of Geneve's options."""
    return (rest[_UDP_BYTES] & 0x3F) * 4 if outer.kind == "Geneve" else 0


def _address(packed: bytes) -> str:
    return str(IPv4Address(packed))


Leg = Literal["request", "reply"]
_Mark = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class ProbeIdentity:
    """How to identify the probe's own packets where it is sent."""

    place: str
    protocols: frozenset[str]
    sources: frozenset[str]
    """Its possible source addresses there."""
    targets: frozenset[tuple[str, int]]
    """Its possible targets, before and after translation."""
    ports: frozenset[int] = frozenset()
    """If the place itself translates: target ports with which any address belongs to the probe."""


@dataclass(frozen=True, slots=True)
class Passed:
    """One packet of the probe at one tap."""

    tap: Tap
    frame: Frame
    decoded: Decoded
    inside: InnerPacket
    leg: Leg


@dataclass(frozen=True, slots=True)
class Refused:
    """An ICMP error about the probe at one tap."""

    tap: Tap
    frame: Frame
    inside: InnerPacket
    error: Quoted


@dataclass(frozen=True, slots=True)
class Unanswered:
    """An address with unanswered ARP requests at a tap, and their number."""

    tap: Tap
    address: str
    times: int


@dataclass(frozen=True, slots=True)
class Matched:
    """The packets of one probe, each list in the order of time."""

    passed: tuple[Passed, ...]
    errors: tuple[Refused, ...]
    unanswered: tuple[Unanswered, ...]


def match(taken: Sequence[Taken], request: ProbeIdentity) -> Matched:
    """Find the probe's packets, ICMP errors about them, and unanswered ARP requests."""
    read = [_Reading(capture) for capture in taken]
    flows_at = _closure(read, request)
    flows = {flow for own in flows_at.values() for ends in own for flow in (ends, ends.reversed())}
    passed = [
        Passed(reading.tap, frame, decoded, inside, leg)
        for reading in read
        for frame, decoded, inside, flow in reading.packets
        if (leg := _leg(flow, flows_at[reading.tap]))
    ]
    errors = [
        Refused(reading.tap, frame, inside, inside.error)
        for reading in read
        for frame, _, inside, _ in reading.packets
        if inside.error and inside.error.flow in flows
    ]
    return Matched(
        tuple(sorted(passed, key=lambda packet: packet.frame.at)),
        tuple(sorted(errors, key=lambda error: error.frame.at)),
        tuple(silence for reading in read for silence in reading.unanswered()),
    )


class _Reading:
    """The decoded frames of one tap; later fragments get the ends of the first."""

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
        """Addresses with unanswered ARP requests."""
        answered = {arp.sender for arp in self._arps if not arp.asks}
        targets = [arp.target for arp in self._arps if arp.asks and arp.sender != arp.target]
        for address in dict.fromkeys(targets):
            if address not in answered:
                yield Unanswered(self.tap, address, targets.count(address))


def _datagram(inside: InnerPacket) -> tuple[object, ...]:
    flow = inside.flow
    return inside.ident, flow.protocol, flow.source, flow.target, inside.fragment


def _leg(flow: PacketEnds, requests: set[PacketEnds]) -> Leg | None:
    if flow in requests:
        return "request"
    return "reply" if flow.reversed() in requests else None


def _closure(read: Sequence[_Reading], request: ProbeIdentity) -> Mapping[Tap, set[PacketEnds]]:
    """The probe's flows at each tap, in the direction of its request."""
    flows_at: dict[Tap, set[PacketEnds]] = {
        reading.tap: set(_seeds(reading, request)) for reading in read
    }
    marks: dict[_Mark, Leg] = {}
    growing = True
    while growing:
        growing = False
        for reading in read:
            own = flows_at[reading.tap]
            for _, _, inside, flow in reading.packets:
                mark = _mark(inside)
                leg = _leg(flow, own)
                if leg is None and mark in marks and flow.source_port is not None:
                    leg = marks[mark]
                    own.add(flow if leg == "request" else flow.reversed())
                    growing = True
                if leg is not None and mark not in marks:
                    marks[mark] = leg
                    growing = True
    return flows_at


def _seeds(reading: _Reading, request: ProbeIdentity) -> Iterator[PacketEnds]:
    if reading.tap.place != request.place:
        return
    for frame, _, inside, flow in reading.packets:
        if frame.direction != "out" or NAMES.get(flow.protocol) not in request.protocols:
            continue
        if flow.source not in request.sources or flow.target_port is None or inside.error:
            continue
        if (flow.target, flow.target_port) in request.targets or flow.target_port in request.ports:
            yield flow


def _mark(inside: InnerPacket) -> _Mark:
    """What stays the same in a packet from its sender to its receiver."""
    flow = inside.flow
    if inside.sequence or inside.acknowledged:
        return "tcp", inside.sequence, inside.acknowledged, inside.flags
    if inside.fragment:
        return "part", flow.protocol, inside.ident, inside.offset
    return "whole", flow.protocol, inside.ident, inside.digest, inside.length


def covered(packets: Iterable[InnerPacket]) -> int:
    """Bytes of the stream, each counted once; RSTs and pure acknowledgements have none."""
    pieces: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for packet in packets:
        if packet.flags:
            length = packet.data + packet.opens + packet.ends
            pieces["stream"].append((packet.sequence, packet.sequence + length))
        else:
            key = packet.ident or ("digest", packet.digest)
            pieces[key].append((packet.offset, packet.offset + packet.length))
    return sum(_union(spans) for spans in pieces.values())


def repeated(packets: Iterable[InnerPacket]) -> bool:
    """Whether a part of a TCP stream was sent again."""
    reached: int | None = None
    for packet in packets:
        length = packet.data + packet.opens + packet.ends
        if packet.flags and length:
            if reached is not None and packet.sequence < reached:
                return True
            reached = packet.sequence + length
    return False


def _union(spans: Sequence[tuple[int, int]]) -> int:
    total, reached = 0, -1
    for begin, end in sorted(spans):
        total += max(end - max(begin, reached), 0)
        reached = max(reached, end)
    return total
