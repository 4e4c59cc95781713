"""What is done to make a lab's network: one typed operation per change, in one namespace each.

``messages.py`` encodes them as netlink messages, ``commands.py`` prints them as
``ip``, ``bridge``, ``sysctl`` and ``nft`` commands; neither decides anything.
Addresses, MACs and prefixes are text, as in the Intent.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import singledispatch
from ipaddress import IPv4Interface, IPv4Network
from typing import ClassVar, TypeAlias

from lab._errors import BrokenError
from lab.topology.intent import BLACKHOLE


class _Attributes(dict[str, object]):
    """The attributes of an object, by name."""

    def __init__(self, of: object) -> None:
        super().__init__()
        self._of = of

    def __missing__(self, name: str) -> object:
        return getattr(self._of, name)


class Described:
    """What every operation has in common: the words for it."""

    __slots__ = ()
    words: ClassVar[str]
    """With attributes of the operation in braces."""

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return self.words.format_map(_Attributes(self))


@dataclass(frozen=True, slots=True)
class SysctlSet(Described):
    """Write a kernel setting of the namespace."""

    key: str
    """Path below ``/proc/sys``: ``"net/ipv4/ip_forward"``."""
    value: str
    optional: bool = False
    """True where a kernel without this setting needs no setting."""

    words = "setting '{key}' to '{value}'"


@dataclass(frozen=True, slots=True)
class LinkUp(Described):
    """Set a device up."""

    device: str

    words = "setting link '{device}' up"


@dataclass(frozen=True, slots=True)
class LinkDown(Described):
    """Set a device down; its routes, neighbours and proxies go with that."""

    device: str

    words = "setting link '{device}' down"


@dataclass(frozen=True, slots=True)
class LinkRename(Described):
    """Give a device, which must be down, another name."""

    device: str
    name: str

    words = "naming link '{device}' '{name}'"


@dataclass(frozen=True, slots=True)
class LinkRemove(Described):
    """Take a device away, and the far end of a veth with it."""

    device: str

    words = "removing link '{device}'"


@dataclass(frozen=True, slots=True)
class MtuSet(Described):
    """Set the MTU of a device that is there."""

    device: str
    mtu: int

    words = "setting the MTU of '{device}' to {mtu}"


@dataclass(frozen=True, slots=True)
class VethAdd(Described):
    """Add a veth pair, this end up; the far end is made down, in another namespace."""

    name: str
    index: int
    mac: str
    peer_namespace: str
    peer_name: str
    peer_index: int
    peer_mac: str
    mtu: int

    words = "adding veth '{name}' with its far end '{peer_name}' in namespace '{peer_namespace}'"


@dataclass(frozen=True, slots=True)
class BridgeAdd(Described):
    """Add a bridge, up."""

    name: str
    index: int
    mac: str
    mtu: int

    words = "adding bridge '{name}'"


@dataclass(frozen=True, slots=True)
class VxlanAdd(Described):
    """Add a VXLAN device without learning, up."""

    name: str
    index: int
    mac: str
    mtu: int
    vni: int
    port: int
    local: str
    device: str

    words = "adding VXLAN device '{name}' with VNI {vni}"


@dataclass(frozen=True, slots=True)
class MasterSet(Described):
    """Plug a device into a bridge."""

    device: str
    master: str

    words = "plugging '{device}' into bridge '{master}'"


@dataclass(frozen=True, slots=True)
class HairpinOn(Described):
    """Let a bridge send frames out of the port they came in by."""

    device: str

    words = "setting hairpin mode on bridge port '{device}'"


@dataclass(frozen=True, slots=True)
class AddressAdd(Described):
    """Give a device an address, with prefix length."""

    device: str
    address: str

    words = "adding address '{address}' to '{device}'"


@dataclass(frozen=True, slots=True)
class AddressRemove(Described):
    """Take an address, with prefix length, from a device."""

    device: str
    address: str

    words = "removing address '{address}' from '{device}'"


@dataclass(frozen=True, slots=True)
class RouteSet(Described):
    """Set a route of the main table; ``destination`` may be ``"default"``."""

    destination: str
    device: str
    """``BLACKHOLE`` where it loses packets."""
    via: str | None
    onlink: bool
    source: str | None = None

    words = "setting route '{destination}'{way} by device '{device}'"

    @property
    def way(self) -> str:
        """Its next hop, in words."""
        return f" via '{self.via}'" if self.via else ""


@dataclass(frozen=True, slots=True)
class RouteAdd(Described):
    """Add a route of the main table beside strangers' to the same destination, which stay."""

    destination: str
    device: str
    via: str | None
    onlink: bool
    source: str | None = None
    metric: int = 0
    """The lowest is used."""

    words = "adding route '{destination}'{way} by device '{device}'"

    @property
    def way(self) -> str:
        """Its next hop, in words."""
        return f" via '{self.via}'" if self.via else ""


@dataclass(frozen=True, slots=True)
class RouteRemove(Described):
    """Take a route of the main table away."""

    destination: str
    device: str
    via: str | None
    onlink: bool
    metric: int

    words = "removing route '{destination}' by device '{device}'"


@dataclass(frozen=True, slots=True)
class NeighbourSet(Described):
    """Set a permanent neighbour entry."""

    address: str
    mac: str
    device: str

    words = "setting neighbour '{address}' on '{device}'"


@dataclass(frozen=True, slots=True)
class ForwardingSet(Described):
    """Set a permanent forwarding entry of a VXLAN device."""

    mac: str
    device: str
    remote: str

    words = "setting forwarding entry '{mac}' to '{remote}' on '{device}'"


@dataclass(frozen=True, slots=True)
class ProxySet(Described):
    """Answer ARP for an address with the device's own MAC."""

    address: str
    device: str

    words = "answering ARP for '{address}' on '{device}'"


@dataclass(frozen=True, slots=True)
class ProxyDelaySet(Described):
    """How long a proxied ARP answer waits at most.

    A netlink message, because a user namespace has no ``net/ipv4/neigh`` settings.
    """

    device: str
    milliseconds: int

    words = "setting the proxy delay of '{device}' to {milliseconds} ms"


@dataclass(frozen=True, slots=True)
class TapAdd(Described):
    """Add a persistent tap device, down; a virtual switch of that port's name takes it over."""

    name: str
    index: int
    mac: str

    words = "adding tap device '{name}'"


@dataclass(frozen=True, slots=True)
class ChecksumOff(Described):
    """Have the kernel write checksums itself into what a device sends.

    A switch in user space reads a veth's packets as they are, and the kernel leaves the checksum
    of what it sends into a veth to the far end (intro/install/userspace.rst of Open vSwitch).
    """

    device: str

    words = "switching off the checksum offload of '{device}'"


@dataclass(frozen=True, slots=True)
class RulesetLoad(Described):
    """Load an nftables script."""

    text: str

    words = "loading the nftables rules"


Message: TypeAlias = (
    LinkUp
    | LinkDown
    | LinkRename
    | LinkRemove
    | MtuSet
    | VethAdd
    | BridgeAdd
    | VxlanAdd
    | MasterSet
    | HairpinOn
    | AddressAdd
    | AddressRemove
    | RouteSet
    | RouteAdd
    | RouteRemove
    | NeighbourSet
    | ForwardingSet
    | ProxySet
    | ProxyDelaySet
)
"""An operation that is one netlink message."""

Request: TypeAlias = TapAdd | ChecksumOff
"""An operation that is a request to a device of the kernel (ioctl)."""

Operation: TypeAlias = SysctlSet | Message | Request | RulesetLoad


@dataclass(frozen=True, slots=True)
class NamespaceOperations:
    """Everything that is done in one namespace, in order."""

    namespace: str
    indexes: tuple[tuple[str, int], ...]
    """Name and interface index of every device the namespace comes to have."""
    operations: tuple[Operation, ...]


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


TUN = "/dev/net/tun"
_SET_INTERFACE, _SET_PERSISTENT, _SET_INDEX = 0x400454CA, 0x400454CB, 0x400454DA
_TAP, _NO_PACKET_INFORMATION = 0x0002, 0x1000
_SET_ADDRESS, _ETHERNET = 0x8924, 1
_TOOL, _SET_TX_CHECKSUM = 0x8946, 0x17

_NAME_FLAGS = struct.Struct("16sH22x")
_NAME_ADDRESS = struct.Struct("16sH6s16x")
_NAME_POINTER = struct.Struct("16sP16x")


def request(operation: Request, namespace: str) -> None:
    """Do it in the network namespace that the thread is in.

    Raises
    ------
    BrokenError
        Naming the operation that was refused, its namespace and the reason.

    """
    try:
        _do(operation)
    except OSError as error:
        file = f"{error.filename}: " if error.filename else ""
        raise BrokenError(
            f"{operation.describe()} in namespace '{namespace}'", f"{file}{error.strerror}"
        ) from error


@singledispatch
def _do(operation: Request) -> None:
    raise TypeError(f"no request for {operation!r}")


@_do.register
def _(operation: TapAdd) -> None:
    name = operation.name.encode()
    tap = os.open(TUN, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(tap, _SET_INDEX, struct.pack("i", operation.index))
        fcntl.ioctl(tap, _SET_INTERFACE, _NAME_FLAGS.pack(name, _TAP | _NO_PACKET_INFORMATION))
        fcntl.ioctl(tap, _SET_PERSISTENT, 1)
        address = bytes.fromhex(operation.mac.replace(":", ""))
        fcntl.ioctl(tap, _SET_ADDRESS, _NAME_ADDRESS.pack(name, _ETHERNET, address))
    finally:
        os.close(tap)


@_do.register
def _(operation: ChecksumOff) -> None:
    wanted = array.array("I", (_SET_TX_CHECKSUM, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        where = wanted.buffer_info()[0]
        fcntl.ioctl(channel, _TOOL, _NAME_POINTER.pack(operation.device.encode(), where))
