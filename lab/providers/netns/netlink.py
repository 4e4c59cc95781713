"""Netlink: operations in batches, lists of what is there, and connection tracking.

One socket a namespace; many messages in one ``send``; only the last message of a batch asks for
an acknowledgement, because the kernel reports every error unasked, and it has done the whole
batch when ``send`` returns. Numbers are those of linux/netlink.h, linux/rtnetlink.h and
linux/netfilter/nfnetlink_conntrack.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from lab._errors import BrokenError
from lab.providers.netns import namespaces
from lab.providers.netns.operations import Encoded, Message, Names, attribute
from lab.topology.intent import MachineIntent, Translation
from lab.topology.routing import own_addresses

GET_LINK, GET_ADDRESS, GET_ROUTE, GET_NEIGHBOUR, GET_NEIGHBOUR_TABLE = 18, 22, 26, 30, 66
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_ERROR, _DONE = 2, 3
_CAPPED, _WITH_TEXT = 0x100, 0x200
_SOL_NETLINK, _EXTENDED_ACK, _CAP_ACK = 270, 11, 10

_BATCH_MESSAGES = 256
_BATCH_BYTES = 64_000
"""Both well below the kernel's 212,992 bytes of default socket buffer."""
_HEADER = struct.Struct("=IHHII")


class Socket:
    """A netlink socket in the namespace in which it is opened."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
        self._socket.setsockopt(_SOL_NETLINK, _EXTENDED_ACK, 1)
        self._socket.bind((0, 0))
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def apply(self, operations: Iterable[Message], names: Names) -> None:
        """Do the operations, in order.

        Raises
        ------
        BrokenError
            Naming the first that the kernel refused, its namespace and the reason. Those after
            it in its batch have been tried all the same.

        """
        sent: list[Message] = []
        batch: list[Encoded] = []
        size = 0
        for operation in operations:
            encoded = operation.encode(names)
            if len(batch) == _BATCH_MESSAGES or size + len(encoded[2]) > _BATCH_BYTES:
                self._exchange(sent, batch)
                sent, batch, size = [], [], 0
            sent.append(operation)
            batch.append(encoded)
            size += len(encoded[2]) + _HEADER.size
        if batch:
            self._exchange(sent, batch)

    def _exchange(self, operations: list[Message], batch: list[Encoded]) -> None:
        first = self._sequence
        last = self._sequence = first + len(batch)
        parts: list[bytes] = []
        for sequence, (kind, flags, body) in enumerate(batch, first + 1):
            asked = flags | _REQUEST | (_ACK if sequence == last else 0)
            length = _HEADER.size + len(body)
            parts += (_HEADER.pack(length, kind, asked, sequence, 0), body, b"\0" * (-length % 4))
        self._socket.send(b"".join(parts))
        while True:
            for kind, flags, sequence, body in _messages(self._socket.recv(1 << 18)):
                if kind != _ERROR:
                    continue
                (number,) = struct.unpack_from("=i", body)
                if number:
                    raise self._refused(operations[sequence - first - 1], -number, flags, body)
                if sequence == last:
                    return

    def _refused(self, operation: Message, number: int, flags: int, body: bytes) -> BrokenError:
        name = errno.errorcode.get(number, str(number))
        said = _error_text(flags, body)
        happened = f"the kernel refused: {os.strerror(number)} ({name})"
        return BrokenError(
            f"{operation.describe()} in namespace '{self._namespace}'",
            f"{happened}: {said}" if said else happened,
        )

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """Every answer to a GET request, without its header."""
        self._sequence += 1
        length = _HEADER.size + len(body)
        header = _HEADER.pack(length, kind, _REQUEST | _DUMP, self._sequence, 0)
        self._socket.send(header + body)
        found: list[bytes] = []
        while True:
            for answer, _, _, content in _messages(self._socket.recv(1 << 18)):
                if answer == _DONE:
                    return found
                if answer == _ERROR:
                    (number,) = struct.unpack_from("=i", content)
                    raise OSError(-number, os.strerror(-number), f"netlink dump {kind}")
                found.append(content)


def _messages(data: bytes) -> Iterable[tuple[int, int, int, bytes]]:
    offset = 0
    while offset < len(data):
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, offset)
        yield kind, flags, sequence, data[offset + _HEADER.size : offset + length]
        offset += (length + 3) & ~3


def attributes(data: bytes) -> dict[int, bytes]:
    """The attributes of a message body, by type (the nested flag left out)."""
    found: dict[int, bytes] = {}
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4:  # noqa: PLR2004  the size of an attribute's own header
            break
        found[kind & 0x3FFF] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def _error_text(flags: int, body: bytes) -> str:
    if not flags & _WITH_TEXT:
        return ""
    # Error number, the request's header, and the request itself unless it was left out.
    request = _HEADER.unpack_from(body, 4)[0] if not flags & _CAPPED else _HEADER.size
    text = attributes(body[4 + ((request + 3) & ~3) :]).get(1, b"")
    return text.rstrip(b"\0").decode()


_MAC, _NAME, _MTU, _PEER, _INFO, _KIND = 1, 3, 4, 5, 18, 1
_NUMBER = struct.Struct("=I")
_LOCAL = 2
_LOWER_UP = 1 << 16
"""IFF_LOWER_UP of linux/if.h: the device has a carrier."""
_LINK_BODY, _ADDRESS_BODY, _ROUTE_BODY = 16, 8, 12
_OUT, _GATEWAY, _PRIORITY = 4, 5, 6
_MAIN_TABLE, _UNICAST, _ONLINK = 254, 1, 4


@dataclass(frozen=True, slots=True)
class Link:
    """One device of a namespace."""

    name: str
    index: int
    mac: str
    """Empty for a device without one."""
    kind: str
    """``"bridge"``, ``"veth"``, ``"vxlan"``, ...; empty for a network card."""
    carrier: bool
    mtu: int = 0
    peer: int = 0
    """Of a veth: the index of its other end, in whatever namespace that is."""


def list_links(channel: Socket) -> tuple[Link, ...]:
    """Every device of the channel's namespace."""
    return tuple(
        _link(body) for body in channel.dump(GET_LINK, struct.pack("=BxHiII", 0, 0, 0, 0, 0))
    )


def _link(body: bytes) -> Link:
    _, _, index, flags, _ = struct.unpack_from("=BxHiII", body)
    found = attributes(body[_LINK_BODY:])
    return Link(
        found[_NAME].rstrip(b"\0").decode(),
        index,
        found.get(_MAC, b"").hex(":"),
        attributes(found.get(_INFO, b"")).get(_KIND, b"").rstrip(b"\0").decode(),
        bool(flags & _LOWER_UP),
        _number(found.get(_MTU)),
        _number(found.get(_PEER)),
    )


def _number(value: bytes | None) -> int:
    found: int = 0 if value is None else _NUMBER.unpack(value)[0]
    return found


def list_addresses(channel: Socket) -> tuple[tuple[int, str], ...]:
    """Every IPv4 address of the channel's namespace: interface index, address with prefix."""
    found: list[tuple[int, str]] = []
    for body in channel.dump(GET_ADDRESS, struct.pack("=BBBBI", socket.AF_INET, 0, 0, 0, 0)):
        _, prefix, _, _, index = struct.unpack_from("=BBBBI", body)
        local = attributes(body[_ADDRESS_BODY:])[_LOCAL]
        found.append((index, f"{socket.inet_ntoa(local)}/{prefix}"))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class DefaultRoute:
    """A default route of the main table, by one device."""

    index: int
    """Of the device."""
    via: str | None
    onlink: bool
    metric: int


def list_default_routes(channel: Socket) -> tuple[DefaultRoute, ...]:
    """Every IPv4 default route of the channel's namespace but those by several devices."""
    found: list[DefaultRoute] = []
    for body in channel.dump(GET_ROUTE, struct.pack("=BBBBBBBBI", socket.AF_INET, *(0,) * 8)):
        _, length, _, _, table, _, _, kind, flags = struct.unpack_from("=BBBBBBBBI", body)
        given = attributes(body[_ROUTE_BODY:])
        if length or table != _MAIN_TABLE or kind != _UNICAST or _OUT not in given:
            continue
        gateway = given.get(_GATEWAY)
        found.append(
            DefaultRoute(
                struct.unpack("=I", given[_OUT])[0],
                None if gateway is None else socket.inet_ntoa(gateway),
                bool(flags & _ONLINK),
                struct.unpack("=I", given.get(_PRIORITY, bytes(4)))[0],
            )
        )
    return tuple(found)


_NETFILTER = 12
_NEW, _GET, _DELETE = 0x100, 0x101, 0x102
"""Of the subsystem ctnetlink (1)."""
_CONNTRACK_REQUEST, _CONNTRACK_ACK, _CONNTRACK_DUMP = 0x1, 0x4, 0x300
_CONNTRACK_ERROR, _CONNTRACK_DONE = 2, 3
_CONNTRACK_HEADER = struct.Struct("=IHHII")
_FAMILY = struct.pack("=BBH", socket.AF_INET, 0, 0)
_ORIGINAL, _REPLY = 1, 2
_IP, _TRANSPORT = 1, 2
_SOURCE, _TARGET = 1, 2
_PROTOCOL, _SOURCE_PORT, _TARGET_PORT = 1, 2, 3
_CONNTRACK_KIND = 0x3FFF
"""Without the bits that say nested and network order."""
_BUFFER = 1 << 16

UdpEnd = tuple[str, int]
"""Address and port."""


@dataclass(frozen=True, slots=True)
class UdpConnection:
    """One UDP connection."""

    asked: UdpEnd
    answers: UdpEnd
    original: bytes
    """Its first direction, as the kernel writes it: by that it is known."""


def is_stale(machine: MachineIntent, translation: Translation) -> Callable[[UdpConnection], bool]:
    """Which connections the machine leads to backends that are not there any more. Pure."""
    served = dict(_served(machine, translation))

    def stale(flow: UdpConnection) -> bool:
        backends = served.get(flow.asked)
        return bool(backends) and flow.answers not in backends  # type: ignore[operator]

    return stale


def _served(
    machine: MachineIntent, translation: Translation
) -> Iterator[tuple[UdpEnd, frozenset[UdpEnd]]]:
    """Addresses and ports of Services over UDP, and all backends, whatever the policies."""
    own = own_addresses(machine)
    for service in translation.services:
        for port in service.ports:
            if "udp" not in port.protocols:
                continue
            ends = frozenset((one.address, port.target_port) for one in service.backends)
            yield (service.address, port.port), ends
            if port.node_port is not None:
                yield from (((address, port.node_port), ends) for address in own)


def forget_stale(machines: Iterable[MachineIntent]) -> None:
    """Inside the holder: forget them on every machine that translates."""
    for machine in machines:
        if machine.translation:
            namespaces.enter(machine.name)
            if flows := _flows():  # none in a lab that is new, and what is served is a long list
                stale = is_stale(machine, machine.translation)
                _forget([flow for flow in flows if stale(flow)])


def _flows() -> list[UdpConnection]:
    """Every UDP connection of the namespace that the thread is in."""
    with _opened() as channel:
        channel.send(_message(_GET, _CONNTRACK_DUMP, _FAMILY))
        return list(_listed(channel))


def _forget(flows: Iterable[UdpConnection]) -> None:
    with _opened() as channel:
        for flow in flows:
            body = _FAMILY + attribute(_ORIGINAL | 0x8000, flow.original)
            channel.send(_message(_DELETE, _CONNTRACK_ACK, body))
            channel.recv(_BUFFER)  # an error means that it is already gone


def _opened() -> socket.socket:
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETFILTER)
    channel.bind((0, 0))
    return channel


def _message(kind: int, flags: int, body: bytes) -> bytes:
    return (
        _CONNTRACK_HEADER.pack(
            _CONNTRACK_HEADER.size + len(body), kind, _CONNTRACK_REQUEST | flags, 1, 0
        )
        + body
    )


def _listed(channel: socket.socket) -> Iterator[UdpConnection]:
    while True:
        data = channel.recv(_BUFFER)
        while data:
            length, kind, *_ = _CONNTRACK_HEADER.unpack_from(data)
            if kind in {_CONNTRACK_DONE, _CONNTRACK_ERROR}:
                return
            if kind == _NEW:
                with suppress(KeyError):  # of another protocol: it has no ports
                    flow = read_connection(data[_CONNTRACK_HEADER.size + len(_FAMILY) : length])
                    if flow is not None:
                        yield flow
            data = data[(length + 3) & ~3 :]


def read_connection(body: bytes) -> UdpConnection | None:
    """One connection; None where it is not UDP. Pure.

    Raises
    ------
    KeyError
        If it has no addresses or ports of IPv4.

    """
    parts = _attributes(body)
    original, reply = _tuple(parts[_ORIGINAL]), _tuple(parts[_REPLY])
    if original[0] != socket.IPPROTO_UDP:
        return None
    return UdpConnection(original[2], reply[1], parts[_ORIGINAL])


def _tuple(body: bytes) -> tuple[int, UdpEnd, UdpEnd]:
    """Protocol, source and target."""
    parts = _attributes(body)
    addresses, transport = _attributes(parts[_IP]), _attributes(parts[_TRANSPORT])
    source, target = (socket.inet_ntoa(addresses[one]) for one in (_SOURCE, _TARGET))
    ports = (int.from_bytes(transport[one], "big") for one in (_SOURCE_PORT, _TARGET_PORT))
    from_port, to_port = ports
    return transport[_PROTOCOL][0], (source, from_port), (target, to_port)


def _attributes(body: bytes) -> Mapping[int, bytes]:
    found = {}
    while len(body) >= struct.calcsize("=HH"):
        length, kind = struct.unpack_from("=HH", body)
        if length < struct.calcsize("=HH"):
            break
        found[kind & _CONNTRACK_KIND] = body[4:length]
        body = body[(length + 3) & ~3 :]
    return found
