"""Operations as rtnetlink messages.

Numbers are those of linux/rtnetlink.h, linux/if_link.h, linux/neighbour.h and linux/veth.h.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping
from functools import singledispatch
from ipaddress import IPv4Interface, IPv4Network

from lab.providers.netns.operations import (
    AddressAdd,
    AddressRemove,
    BridgeAdd,
    ForwardingSet,
    HairpinOn,
    LinkDown,
    LinkRemove,
    LinkRename,
    LinkUp,
    MasterSet,
    Message,
    MtuSet,
    NeighbourSet,
    ProxyDelaySet,
    ProxySet,
    RouteAdd,
    RouteRemove,
    RouteSet,
    VethAdd,
    VxlanAdd,
)
from lab.topology.intent import BLACKHOLE

_NEW_LINK, _REMOVE_LINK, _SET_LINK = 16, 17, 19
_NEW_ADDRESS, _REMOVE_ADDRESS = 20, 21
_NEW_ROUTE, _REMOVE_ROUTE, _NEW_NEIGHBOUR, _SET_NEIGHBOUR_TABLE = 24, 25, 28, 67
_REPLACE, _EXCLUSIVE, _CREATE, _APPEND = 0x100, 0x200, 0x400, 0x800

_UP = 1
_AF_BRIDGE = 7
_PERMANENT = 0x80
_SELF, _PROXY = 0x02, 0x08
_MAIN_TABLE, _BOOT, _UNICAST, _LOST, _ONLINK = 254, 3, 1, 6, 4
_UNIVERSE, _LINK = 0, 253

Encoded = tuple[int, int, bytes]
"""Message type, flags beyond REQUEST, and the body."""
_LINK_BODY = struct.Struct("=BxHiII")
_NEIGHBOUR_BODY = struct.Struct("=BxxxiHBB")


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute: length, type, value, padded to four bytes."""
    length = len(value) + 4
    return struct.pack("=HH", length, kind) + value + b"\0" * (-length % 4)


class Names:
    """What an encoder must look up: interface indexes here, and other namespaces by name."""

    def __init__(self, indexes: Mapping[str, int], namespace: Callable[[str], int]) -> None:
        self.indexes = indexes
        self.namespace = namespace
        """Gives an open descriptor of the namespace of that name."""


def _number(kind: int, value: int) -> bytes:
    return struct.pack("=HHI", 8, kind, value)


def _text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def _link(index: int, attributes: bytes = b"", *, up: bool = False, family: int = 0) -> bytes:
    return _LINK_BODY.pack(family, 0, index, _UP * up, _UP * up) + attributes


def _device(name: str, mac: str, mtu: int) -> bytes:
    return _text(3, name) + attribute(1, _mac(mac)) + _number(4, mtu)


def _kind(kind: str, data: bytes = b"") -> bytes:
    return attribute(18, _text(1, kind) + (attribute(2, data) if data else b""))


@singledispatch
def encode(operation: Message, names: Names) -> Encoded:
    """One operation as one message."""
    raise TypeError(f"no encoding for {operation!r} with {names!r}")


@encode.register
def _(operation: LinkUp, names: Names) -> Encoded:
    return _NEW_LINK, 0, _link(names.indexes[operation.device], up=True)


@encode.register
def _(operation: LinkDown, names: Names) -> Encoded:
    body = _LINK_BODY.pack(0, 0, names.indexes[operation.device], 0, _UP)
    return _NEW_LINK, 0, body


@encode.register
def _(operation: LinkRename, names: Names) -> Encoded:
    return _NEW_LINK, 0, _link(names.indexes[operation.device], _text(3, operation.name))


@encode.register
def _(operation: LinkRemove, names: Names) -> Encoded:
    return _REMOVE_LINK, 0, _link(names.indexes[operation.device])


@encode.register
def _(operation: MtuSet, names: Names) -> Encoded:
    return _NEW_LINK, 0, _link(names.indexes[operation.device], _number(4, operation.mtu))


@encode.register
def _(operation: VethAdd, names: Names) -> Encoded:
    # The far end must not be asked to be up (the kernel answers ENOTCONN).
    far = _link(
        operation.peer_index,
        _device(operation.peer_name, operation.peer_mac, operation.mtu)
        + _number(28, names.namespace(operation.peer_namespace)),
    )
    near = _device(operation.name, operation.mac, operation.mtu)
    body = _link(operation.index, near + _kind("veth", attribute(1, far)), up=True)
    return _NEW_LINK, _CREATE | _EXCLUSIVE, body


@encode.register
def _(operation: BridgeAdd, names: Names) -> Encoded:
    del names
    attributes = _device(operation.name, operation.mac, operation.mtu) + _kind("bridge")
    return _NEW_LINK, _CREATE | _EXCLUSIVE, _link(operation.index, attributes, up=True)


@encode.register
def _(operation: VxlanAdd, names: Names) -> Encoded:
    data = (
        _number(1, operation.vni)
        + _number(3, names.indexes[operation.device])
        + attribute(4, socket.inet_aton(operation.local))
        + attribute(7, b"\0")
        + attribute(15, struct.pack(">H", operation.port))
    )
    attributes = _device(operation.name, operation.mac, operation.mtu) + _kind("vxlan", data)
    return _NEW_LINK, _CREATE | _EXCLUSIVE, _link(operation.index, attributes, up=True)


@encode.register
def _(operation: MasterSet, names: Names) -> Encoded:
    master = _number(10, names.indexes[operation.master])
    return _NEW_LINK, 0, _link(names.indexes[operation.device], master)


@encode.register
def _(operation: HairpinOn, names: Names) -> Encoded:
    port = attribute(0x8000 | 12, attribute(4, b"\1"))
    return _SET_LINK, 0, _link(names.indexes[operation.device], port, family=_AF_BRIDGE)


@encode.register
def _(operation: AddressAdd, names: Names) -> Encoded:
    return _NEW_ADDRESS, _CREATE | _EXCLUSIVE, _address(operation, names)


@encode.register
def _(operation: AddressRemove, names: Names) -> Encoded:
    return _REMOVE_ADDRESS, 0, _address(operation, names)


def _address(operation: AddressAdd | AddressRemove, names: Names) -> bytes:
    address = IPv4Interface(operation.address)
    index = names.indexes[operation.device]
    body = struct.pack("=BBBBI", socket.AF_INET, address.network.prefixlen, 0, _UNIVERSE, index)
    return body + attribute(2, address.packed) + attribute(1, address.packed)


@encode.register
def _(operation: RouteSet, names: Names) -> Encoded:
    return _NEW_ROUTE, _CREATE | _REPLACE, _route(operation, names, operation.source)


@encode.register
def _(operation: RouteAdd, names: Names) -> Encoded:
    body = _route(operation, names, operation.source)
    return _NEW_ROUTE, _CREATE, body + _number(6, operation.metric)


@encode.register
def _(operation: RouteRemove, names: Names) -> Encoded:
    return _REMOVE_ROUTE, 0, _route(operation, names) + _number(6, operation.metric)


def _route(
    operation: RouteSet | RouteAdd | RouteRemove, names: Names, source: str | None = None
) -> bytes:
    everywhere = operation.destination == "default"
    target = IPv4Network("0.0.0.0/0" if everywhere else operation.destination)
    lost = operation.device == BLACKHOLE
    scope = _UNIVERSE if operation.via or lost else _LINK
    body = struct.pack(
        "=BBBBBBBBI",
        socket.AF_INET,
        target.prefixlen,
        0,
        0,
        _MAIN_TABLE,
        _BOOT,
        scope,
        _LOST if lost else _UNICAST,
        _ONLINK if operation.onlink else 0,
    )
    if target.prefixlen:
        body += attribute(1, target.network_address.packed)
    if operation.via:
        body += attribute(5, socket.inet_aton(operation.via))
    if source:
        body += attribute(7, socket.inet_aton(source))
    return body if lost else body + _number(4, names.indexes[operation.device])


def _neighbour(family: int, index: int, flags: int, attributes: bytes) -> bytes:
    return _NEIGHBOUR_BODY.pack(family, index, _PERMANENT, flags, 0) + attributes


@encode.register
def _(operation: NeighbourSet, names: Names) -> Encoded:
    entry = attribute(1, socket.inet_aton(operation.address)) + attribute(2, _mac(operation.mac))
    index = names.indexes[operation.device]
    return _NEW_NEIGHBOUR, _CREATE | _REPLACE, _neighbour(socket.AF_INET, index, 0, entry)


@encode.register
def _(operation: ForwardingSet, names: Names) -> Encoded:
    mac = _mac(operation.mac)
    # Only the all-zero entry (frames for nobody known) may have several tunnel ends.
    flags = _CREATE | (_REPLACE if any(mac) else _APPEND)
    entry = attribute(2, mac) + attribute(1, socket.inet_aton(operation.remote))
    index = names.indexes[operation.device]
    return _NEW_NEIGHBOUR, flags, _neighbour(_AF_BRIDGE, index, _SELF, entry)


@encode.register
def _(operation: ProxySet, names: Names) -> Encoded:
    entry = attribute(1, socket.inet_aton(operation.address))
    index = names.indexes[operation.device]
    return _NEW_NEIGHBOUR, _CREATE | _REPLACE, _neighbour(socket.AF_INET, index, _PROXY, entry)


@encode.register
def _(operation: ProxyDelaySet, names: Names) -> Encoded:
    delay = attribute(13, struct.pack("=Q", operation.milliseconds))
    parameters = _number(1, names.indexes[operation.device]) + delay
    body = struct.pack("=Bxxx", socket.AF_INET) + _text(1, "arp_cache") + attribute(6, parameters)
    return _SET_NEIGHBOUR_TABLE, _REPLACE, body
