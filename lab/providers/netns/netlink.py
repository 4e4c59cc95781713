"""Netlink: apply operations in batches; list links, addresses and routes.

One socket per namespace, many messages per ``send``. Only the last message of a batch requests an
acknowledgement: the kernel reports every error anyway, and has processed the whole batch when
``send`` returns. Numbers are those of linux/netlink.h and linux/rtnetlink.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from lab._dataclass import dataclass
from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.providers.netns.namespaces import enter, inside, path_of
from lab.providers.netns.operations import (
    Encoded,
    Message,
    Names,
    NamespaceOperations,
    Request,
    SysctlSet,
    VethAdd,
)

GET_LINK, GET_ADDRESS, GET_ROUTE, GET_NEIGHBOUR, GET_NEIGHBOUR_TABLE = 18, 22, 26, 30, 66
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_ERROR, _DONE = 2, 3
_CAPPED, _WITH_TEXT = 0x100, 0x200
_SOL_NETLINK, _EXTENDED_ACK, _CAP_ACK = 270, 11, 10

_BATCH_MESSAGES = 256
_BATCH_BYTES = 64_000
"""Both stay well below the kernel's default socket buffer of 212,992 bytes."""
_HEADER = struct.Struct("=IHHII")


class Socket:
    """A netlink socket in the current namespace; ``family`` 0 is rtnetlink."""

    def __init__(self, namespace: str, family: int = 0) -> None:
        self._namespace = namespace
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, family)
        self._socket.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
        self._socket.setsockopt(_SOL_NETLINK, _EXTENDED_ACK, 1)
        self._socket.bind((0, 0))
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def apply(self, operations: Iterable[Message], names: Names) -> None:
        """Apply the operations in order.

        Raises BrokenError: names the first operation that the kernel refused, its namespace and the
        reason. The kernel has still tried the later operations of its batch.
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
            request_flags = flags | _REQUEST | (_ACK if sequence == last else 0)
            length = _HEADER.size + len(body)
            parts += (
                _HEADER.pack(length, kind, request_flags, sequence, 0),
                body,
                b"\0" * (-length % 4),
            )
        self._socket.send(b"".join(parts))
        for kind, flags, sequence, body in self._answers():
            if kind != _ERROR:
                continue
            (number,) = struct.unpack_from("=i", body)
            if number:
                raise self._refused(operations[sequence - first - 1], -number, flags, body)
            if sequence == last:
                return

    def _refused(self, operation: Message, number: int, flags: int, body: bytes) -> BrokenError:
        name = errno.errorcode.get(number, str(number))
        text = _error_text(flags, body)
        happened = f"the kernel refused: {os.strerror(number)} ({name})"
        return BrokenError(
            f"{operation.describe()} in namespace '{self._namespace}'",
            f"{happened}: {text}" if text else happened,
        )

    def request(self, kind: int, body: bytes) -> None:
        """Send one request and wait for its acknowledgement, ignoring any error in it."""
        self._send(kind, _ACK, body)
        self._socket.recv(1 << 18)

    def _send(self, kind: int, flags: int, body: bytes) -> None:
        self._sequence += 1
        length = _HEADER.size + len(body)
        self._socket.send(_HEADER.pack(length, kind, _REQUEST | flags, self._sequence, 0) + body)

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """The body of every answer to a GET request."""
        self._send(kind, _DUMP, body)
        contents: list[bytes] = []
        for answer, _, _, content in self._answers():
            if answer == _DONE:
                break
            if answer == _ERROR:
                (number,) = struct.unpack_from("=i", content)
                raise OSError(-number, os.strerror(-number), f"netlink dump {kind}")
            contents.append(content)
        return contents

    def _answers(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield type, flags, sequence and body of each message, without end."""
        for data in iter(lambda: self._socket.recv(1 << 18), b""):
            yield from _messages(data)


def _messages(data: bytes) -> Iterable[tuple[int, int, int, bytes]]:
    offset = 0
    while offset < len(data):
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, offset)
        yield kind, flags, sequence, data[offset + _HEADER.size : offset + length]
        offset += (length + 3) & ~3


def attributes(data: bytes) -> dict[int, bytes]:
    """The attributes of a message body, by type without the nested flag."""
    values: dict[int, bytes] = {}
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4:  # noqa: PLR2004  the size of an attribute's own header
            break
        values[kind & 0x3FFF] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return values


def _error_text(flags: int, body: bytes) -> str:
    if not flags & _WITH_TEXT:
        return ""
    # Error number, the request's header, and its body unless capped.
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
    """Empty if the device has none."""
    kind: str
    """``"bridge"``, ``"veth"``, ``"vxlan"``, ...; empty for a network card."""
    carrier: bool
    mtu: int = 0
    peer: int = 0
    """For a veth: the index of its other end, in that end's namespace."""


def list_links(channel: Socket) -> tuple[Link, ...]:
    """Every device of the channel's namespace."""
    return tuple(
        _link(body) for body in channel.dump(GET_LINK, struct.pack("=BxHiII", 0, 0, 0, 0, 0))
    )


def _link(body: bytes) -> Link:
    _, _, index, flags, _ = struct.unpack_from("=BxHiII", body)
    values = attributes(body[_LINK_BODY:])
    return Link(
        values[_NAME].rstrip(b"\0").decode(),
        index,
        values.get(_MAC, b"").hex(":"),
        attributes(values.get(_INFO, b"")).get(_KIND, b"").rstrip(b"\0").decode(),
        bool(flags & _LOWER_UP),
        _number(values.get(_MTU)),
        _number(values.get(_PEER)),
    )


def _number(value: bytes | None) -> int:
    number: int = 0 if value is None else _NUMBER.unpack(value)[0]
    return number


def list_addresses(channel: Socket) -> tuple[tuple[int, str], ...]:
    """Every IPv4 address of the channel's namespace: interface index, address with prefix."""
    addresses: list[tuple[int, str]] = []
    for body in channel.dump(GET_ADDRESS, struct.pack("=BBBBI", socket.AF_INET, 0, 0, 0, 0)):
        _, prefix, _, _, index = struct.unpack_from("=BBBBI", body)
        local = attributes(body[_ADDRESS_BODY:])[_LOCAL]
        addresses.append((index, f"{socket.inet_ntoa(local)}/{prefix}"))
    return tuple(addresses)


@dataclass(frozen=True, slots=True)
class DefaultRoute:
    """A default route of the main table with a single device."""

    index: int
    """The device's index."""
    via: str | None
    onlink: bool
    metric: int


def list_default_routes(channel: Socket) -> tuple[DefaultRoute, ...]:
    """The IPv4 default routes of the channel's namespace, except multipath routes."""
    routes: list[DefaultRoute] = []
    for body in channel.dump(GET_ROUTE, struct.pack("=BBBBBBBBI", socket.AF_INET, *(0,) * 8)):
        _, length, _, _, table, _, _, kind, flags = struct.unpack_from("=BBBBBBBBI", body)
        given = attributes(body[_ROUTE_BODY:])
        if length or table != _MAIN_TABLE or kind != _UNICAST or _OUT not in given:
            continue
        gateway = given.get(_GATEWAY)
        routes.append(
            DefaultRoute(
                struct.unpack("=I", given[_OUT])[0],
                None if gateway is None else socket.inet_ntoa(gateway),
                bool(flags & _ONLINK),
                struct.unpack("=I", given.get(_PRIORITY, bytes(4)))[0],
            )
        )
    return tuple(routes)


def apply_operations(namespaces: Sequence[NamespaceOperations]) -> None:
    """Apply every operation except nftables scripts, namespace by namespace.

    Leaves the calling thread in the last namespace.

    Raises BrokenError: names the refused operation, its namespace and the reason.
    """
    for namespace in namespaces:
        enter(namespace.namespace)
        with Socket(namespace.namespace) as channel, _Descriptors() as descriptors:
            _apply_here(namespace, channel, Names(dict(namespace.indexes), descriptors.of))


class _Descriptors:
    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    def of(self, name: str) -> int:
        if name not in self._open:
            self._open[name] = os.open(path_of(name), os.O_RDONLY | os.O_CLOEXEC)
        return self._open[name]


def _apply_here(operations: NamespaceOperations, channel: Socket, names: Names) -> None:
    waiting: list[Message] = []
    for operation in operations.operations:
        if isinstance(operation, SysctlSet):
            channel.apply(waiting, names)
            waiting = []
            set_sysctl(operation, operations.namespace)
        elif isinstance(operation, Request):
            channel.apply(waiting, names)
            waiting = []
            operation.perform(operations.namespace)
        elif isinstance(operation, Message):
            waiting.append(operation)
    channel.apply(waiting, names)


def set_sysctl(setting: SysctlSet, namespace: str) -> None:
    """Write one kernel setting in the thread's namespace.

    Raises BrokenError if the kernel refuses the value, or lacks the setting and it is not optional.
    """
    action = f"{setting.describe()} in namespace '{namespace}'"
    try:
        descriptor = os.open(f"/proc/sys/{setting.key}", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if setting.optional:
            return
        raise BrokenError(action, "this kernel has no such setting") from None
    except OSError as error:
        raise BrokenError(action, f"{error.strerror}") from error
    try:
        os.write(descriptor, setting.value.encode())
    except OSError as error:
        raise BrokenError(action, f"{error.strerror}") from error
    finally:
        os.close(descriptor)


def wait_for_carrier(wanted: Sequence[NamespaceOperations], deadline: Deadline) -> None:
    """Wait until every veth has a carrier; checking one end is enough.

    Raises DeadlineError: names the links without a carrier.
    """
    for operations in wanted:
        veths = {op.name for op in operations.operations if isinstance(op, VethAdd)}
        if veths:
            wait_for_links(operations.namespace, veths, deadline)


def wait_for_links(namespace: str, wanted: set[str], deadline: Deadline) -> None:
    """Wait until the ``wanted`` links of the namespace have a carrier.

    Raises DeadlineError: names the links without a carrier.
    """
    with inside(namespace), Socket(namespace) as channel:
        deadline.wait(
            f"waiting for the carrier of links in namespace '{namespace}'",
            lambda: sorted(wanted - {link.name for link in list_links(channel) if link.carrier}),
            until=lambda down: not down,
            every=0.001,
        )
