"""The operations that build a lab's network: one type per kind of change, in one namespace each.

An operation has a description, an equivalent ``ip``, ``bridge``, ``sysctl`` or ``nft`` command, and
an encoding for the kernel: an rtnetlink message or an ioctl. It makes no decisions. Addresses, MACs
and prefixes are strings, as in the Intent.

Numbers are those of linux/rtnetlink.h, if_link.h, neighbour.h, veth.h, if_tun.h, sockios.h and
ethtool.h.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from ipaddress import IPv4Interface, IPv4Network
from shlex import quote
from typing import ClassVar

from lab._dataclass import dataclass
from lab._errors import BrokenError, os_failure
from lab.topology.commands import format_route
from lab.topology.intent import BLACKHOLE, Route

TUN = "/dev/net/tun"
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
_SET_INTERFACE, _SET_PERSISTENT, _SET_INDEX = 0x400454CA, 0x400454CB, 0x400454DA
_TAP, _NO_PACKET_INFORMATION = 0x0002, 0x1000
_SET_ADDRESS, _ETHERNET = 0x8924, 1
_TOOL, _SET_TX_CHECKSUM = 0x8946, 0x17
_NAME_FLAGS = struct.Struct("16sH22x")
_NAME_ADDRESS = struct.Struct("16sH6s16x")
_NAME_POINTER = struct.Struct("16sP16x")
_LINK_BODY = struct.Struct("=BxHiII")
_NEIGHBOUR_BODY = struct.Struct("=BxxxiHBB")
_RULES_END = "END_OF_RULES"

Encoded = tuple[int, int, bytes]
"""Message type, flags besides REQUEST, and body."""


def _no_namespace(name: str) -> int:
    raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Names:
    """What encoding looks up: interface indexes in this namespace, and other namespaces."""

    indexes: Mapping[str, int]
    namespace: Callable[[str], int] = _no_namespace
    """Returns an open file descriptor of the named namespace."""


class Operation:
    """Base of all operations."""

    __slots__ = ()
    words: ClassVar[str]
    """Format string for the description; ``{0}`` is the operation."""
    shell: ClassVar[str]
    """Format string for the equivalent shell lines; ``{ns}`` is the namespace."""

    def describe(self) -> str:
        """The change and its object, for error messages."""
        return self.words.format(self)

    def commands(self, namespace: str) -> list[str]:
        """The equivalent lines of a shell script."""
        return self.shell.format(self, ns=quote(namespace)).splitlines()


class Message(Operation, ABC):
    """An operation encoded as one netlink message."""

    __slots__ = ()

    def encode(self, names: Names) -> Encoded:
        """Encode the message."""
        return self._encode(names)

    @abstractmethod
    def _encode(self, names: Names) -> Encoded: ...


class Request(Operation, ABC):
    """An operation done with ioctl."""

    __slots__ = ()

    def perform(self, namespace: str) -> None:
        """Perform the operation in the thread's network namespace.

        Raises BrokenError: names the refused operation, its namespace and the reason.
        """
        try:
            self._do()
        except OSError as error:
            action = f"{self.describe()} in namespace '{namespace}'"
            raise BrokenError(action, os_failure(error)) from error

    @abstractmethod
    def _do(self) -> None:
        """Make the ioctl calls. Raises OSError if the kernel refuses one."""


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute: length, type, value, padded to four bytes."""
    length = len(value) + 4
    return struct.pack("=HH", length, kind) + value + b"\0" * (-length % 4)


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


@dataclass(frozen=True, slots=True)
class SysctlSet(Operation):
    """Write a kernel setting of the namespace."""

    key: str
    """Path below ``/proc/sys``: ``"net/ipv4/ip_forward"``."""
    value: str
    optional: bool = False
    """True if the setting may be missing in the kernel."""

    words = "setting '{0.key}' to '{0.value}'"

    def commands(self, namespace: str) -> list[str]:
        """One line; an optional setting is written only where it exists."""
        line = f"ip netns exec {quote(namespace)} sysctl -qw {self.key}={self.value}"
        return [f"[ ! -e /proc/sys/{self.key} ] || {line}" if self.optional else line]


@dataclass(frozen=True, slots=True)
class LinkUp(Message):
    """Set a device up."""

    device: str

    words = "setting link '{0.device}' up"
    shell = "ip -n {ns} link set dev {0.device} up"

    def _encode(self, names: Names) -> Encoded:
        return _NEW_LINK, 0, _link(names.indexes[self.device], up=True)


@dataclass(frozen=True, slots=True)
class LinkDown(Message):
    """Set a device down; the kernel then drops its routes, neighbours and proxies."""

    device: str

    words = "setting link '{0.device}' down"
    shell = "ip -n {ns} link set dev {0.device} down"

    def _encode(self, names: Names) -> Encoded:
        return _NEW_LINK, 0, _LINK_BODY.pack(0, 0, names.indexes[self.device], 0, _UP)


@dataclass(frozen=True, slots=True)
class LinkRename(Message):
    """Rename a device, which must be down."""

    device: str
    name: str

    words = "naming link '{0.device}' '{0.name}'"
    shell = "ip -n {ns} link set dev {0.device} name {0.name}"

    def _encode(self, names: Names) -> Encoded:
        return _NEW_LINK, 0, _link(names.indexes[self.device], _text(3, self.name))


@dataclass(frozen=True, slots=True)
class LinkRemove(Message):
    """Delete a device, and with a veth its far end."""

    device: str

    words = "removing link '{0.device}'"
    shell = "ip -n {ns} link delete dev {0.device}"

    def _encode(self, names: Names) -> Encoded:
        return _REMOVE_LINK, 0, _link(names.indexes[self.device])


@dataclass(frozen=True, slots=True)
class MtuSet(Message):
    """Set the MTU of an existing device."""

    device: str
    mtu: int

    words = "setting the MTU of '{0.device}' to {0.mtu}"
    shell = "ip -n {ns} link set dev {0.device} mtu {0.mtu}"

    def _encode(self, names: Names) -> Encoded:
        return _NEW_LINK, 0, _link(names.indexes[self.device], _number(4, self.mtu))


@dataclass(frozen=True, slots=True)
class VethAdd(Message):
    """Add a veth pair: this end up, the far end down in another namespace."""

    name: str
    index: int
    mac: str
    peer_namespace: str
    peer_name: str
    peer_index: int
    peer_mac: str
    mtu: int

    words = (
        "adding veth '{0.name}' with its far end '{0.peer_name}' in namespace '{0.peer_namespace}'"
    )
    shell = (
        "ip -n {ns} link add dev {0.name} index {0.index} address {0.mac} mtu {0.mtu} up type veth "
        "peer name {0.peer_name} index {0.peer_index} address {0.peer_mac} mtu {0.mtu} "
        "netns {0.far}"
    )

    @property
    def far(self) -> str:
        """The far end's namespace, quoted for a shell."""
        return quote(self.peer_namespace)

    def _encode(self, names: Names) -> Encoded:
        # The far end cannot be created up (ENOTCONN).
        far = _link(
            self.peer_index,
            _device(self.peer_name, self.peer_mac, self.mtu)
            + _number(28, names.namespace(self.peer_namespace)),
        )
        near = _device(self.name, self.mac, self.mtu)
        body = _link(self.index, near + _kind("veth", attribute(1, far)), up=True)
        return _NEW_LINK, _CREATE | _EXCLUSIVE, body


@dataclass(frozen=True, slots=True)
class BridgeAdd(Message):
    """Add a bridge, up.

    Its MTU is set afterwards (:class:`MtuSet`): bridge netfilter takes 1500 for a bridge that was
    created with another one (``br_change_mtu`` in net/bridge/br_device.c sets it, the creation
    does not).
    """

    name: str
    index: int
    mac: str

    words = "adding bridge '{0.name}'"
    shell = "ip -n {ns} link add dev {0.name} index {0.index} address {0.mac} up type bridge"

    def _encode(self, names: Names) -> Encoded:
        del names
        attributes = _text(3, self.name) + attribute(1, _mac(self.mac)) + _kind("bridge")
        return _NEW_LINK, _CREATE | _EXCLUSIVE, _link(self.index, attributes, up=True)


@dataclass(frozen=True, slots=True)
class VxlanAdd(Message):
    """Add a VXLAN device without learning, up."""

    name: str
    index: int
    mac: str
    mtu: int
    vni: int
    port: int
    local: str
    device: str

    words = "adding VXLAN device '{0.name}' with VNI {0.vni}"
    shell = (
        "ip -n {ns} link add dev {0.name} index {0.index} address {0.mac} mtu {0.mtu} "
        "up type vxlan id {0.vni} dev {0.device} local {0.local} dstport {0.port} nolearning"
    )

    def _encode(self, names: Names) -> Encoded:
        data = (
            _number(1, self.vni)
            + _number(3, names.indexes[self.device])
            + attribute(4, socket.inet_aton(self.local))
            + attribute(7, b"\0")
            + attribute(15, struct.pack(">H", self.port))
        )
        attributes = _device(self.name, self.mac, self.mtu) + _kind("vxlan", data)
        return _NEW_LINK, _CREATE | _EXCLUSIVE, _link(self.index, attributes, up=True)


@dataclass(frozen=True, slots=True)
class MasterSet(Message):
    """Plug a device into a bridge."""

    device: str
    master: str

    words = "plugging '{0.device}' into bridge '{0.master}'"
    shell = "ip -n {ns} link set dev {0.device} master {0.master}"

    def _encode(self, names: Names) -> Encoded:
        master = _number(10, names.indexes[self.master])
        return _NEW_LINK, 0, _link(names.indexes[self.device], master)


@dataclass(frozen=True, slots=True)
class HairpinOn(Message):
    """Let a bridge send frames out of the port they came in on."""

    device: str

    words = "setting hairpin mode on bridge port '{0.device}'"
    shell = "bridge -n {ns} link set dev {0.device} hairpin on"

    def _encode(self, names: Names) -> Encoded:
        port = attribute(0x8000 | 12, attribute(4, b"\1"))
        return _SET_LINK, 0, _link(names.indexes[self.device], port, family=_AF_BRIDGE)


@dataclass(frozen=True, slots=True)
class _AddressChange(Message):
    device: str
    address: str

    def _body(self, names: Names) -> bytes:
        address = IPv4Interface(self.address)
        index = names.indexes[self.device]
        body = struct.pack("=BBBBI", socket.AF_INET, address.network.prefixlen, 0, _UNIVERSE, index)
        return body + attribute(2, address.packed) + attribute(1, address.packed)


@dataclass(frozen=True, slots=True)
class AddressAdd(_AddressChange):
    """Add an address, with prefix length, to a device."""

    words = "adding address '{0.address}' to '{0.device}'"
    shell = "ip -n {ns} address add {0.address} dev {0.device}"

    def _encode(self, names: Names) -> Encoded:
        return _NEW_ADDRESS, _CREATE | _EXCLUSIVE, self._body(names)


@dataclass(frozen=True, slots=True)
class AddressRemove(_AddressChange):
    """Delete an address, with prefix length, from a device."""

    words = "removing address '{0.address}' from '{0.device}'"
    shell = "ip -n {ns} address delete {0.address} dev {0.device}"

    def _encode(self, names: Names) -> Encoded:
        return _REMOVE_ADDRESS, 0, self._body(names)


@dataclass(frozen=True, slots=True)
class _RouteChange(Message):
    destination: str
    """May be ``"default"``."""
    device: str
    """``BLACKHOLE`` for a route that drops packets."""
    via: str | None
    onlink: bool

    @property
    def next_hop(self) -> str:
        return f" via '{self.via}'" if self.via else ""

    @property
    def way(self) -> str:
        source = getattr(self, "source", None)
        route = Route(self.destination, self.device, self.via, self.onlink, source=source)
        return format_route(route)

    def _body(self, names: Names, source: str | None = None) -> bytes:
        everywhere = self.destination == "default"
        target = IPv4Network("0.0.0.0/0" if everywhere else self.destination)
        lost = self.device == BLACKHOLE
        scope = _UNIVERSE if self.via or lost else _LINK
        kind, flags = (_LOST if lost else _UNICAST), (_ONLINK if self.onlink else 0)
        head = (socket.AF_INET, target.prefixlen, 0, 0, _MAIN_TABLE, _BOOT, scope, kind, flags)
        body = struct.pack("=BBBBBBBBI", *head)
        if target.prefixlen:
            body += attribute(1, target.network_address.packed)
        if self.via:
            body += attribute(5, socket.inet_aton(self.via))
        if source:
            body += attribute(7, socket.inet_aton(source))
        return body if lost else body + _number(4, names.indexes[self.device])


@dataclass(frozen=True, slots=True)
class RouteSet(_RouteChange):
    """Set a route of the main table."""

    source: str | None = None

    words = "setting route '{0.destination}'{0.next_hop} by device '{0.device}'"
    shell = "ip -n {ns} route replace {0.way}"

    def _encode(self, names: Names) -> Encoded:
        return _NEW_ROUTE, _CREATE | _REPLACE, self._body(names, self.source)


@dataclass(frozen=True, slots=True)
class RouteAdd(_RouteChange):
    """Add a route to the main table, keeping foreign routes to the same destination."""

    source: str | None = None
    metric: int = 0
    """The kernel uses the route with the lowest metric."""

    words = "adding route '{0.destination}'{0.next_hop} by device '{0.device}'"
    shell = "ip -n {ns} route prepend {0.way} metric {0.metric}"

    def _encode(self, names: Names) -> Encoded:
        return _NEW_ROUTE, _CREATE, self._body(names, self.source) + _number(6, self.metric)


@dataclass(frozen=True, slots=True)
class RouteRemove(_RouteChange):
    """Delete a route from the main table."""

    metric: int

    words = "removing route '{0.destination}' by device '{0.device}'"
    shell = "ip -n {ns} route delete {0.way} metric {0.metric}"

    def _encode(self, names: Names) -> Encoded:
        return _REMOVE_ROUTE, 0, self._body(names) + _number(6, self.metric)


def _neighbour(family: int, index: int, flags: int, attributes: bytes) -> bytes:
    return _NEIGHBOUR_BODY.pack(family, index, _PERMANENT, flags, 0) + attributes


@dataclass(frozen=True, slots=True)
class NeighbourSet(Message):
    """Set a permanent neighbour entry."""

    address: str
    mac: str
    device: str

    words = "setting neighbour '{0.address}' on '{0.device}'"
    shell = "ip -n {ns} neighbour replace {0.address} lladdr {0.mac} dev {0.device} nud permanent"

    def _encode(self, names: Names) -> Encoded:
        entry = attribute(1, socket.inet_aton(self.address)) + attribute(2, _mac(self.mac))
        index = names.indexes[self.device]
        return _NEW_NEIGHBOUR, _CREATE | _REPLACE, _neighbour(socket.AF_INET, index, 0, entry)


@dataclass(frozen=True, slots=True)
class ForwardingSet(Message):
    """Set a permanent forwarding entry of a VXLAN device.

    Only the all-zero entry (frames to unknown MACs) may have several remotes.
    """

    mac: str
    device: str
    remote: str

    words = "setting forwarding entry '{0.mac}' to '{0.remote}' on '{0.device}'"
    shell = "bridge -n {ns} fdb {0.verb} {0.mac} dev {0.device} dst {0.remote} self permanent"

    @property
    def verb(self) -> str:
        """The ``bridge fdb`` verb."""
        return "replace" if self.mac.strip("0:") else "append"

    def _encode(self, names: Names) -> Encoded:
        mac = _mac(self.mac)
        flags = _CREATE | (_REPLACE if any(mac) else _APPEND)
        entry = attribute(2, mac) + attribute(1, socket.inet_aton(self.remote))
        index = names.indexes[self.device]
        return _NEW_NEIGHBOUR, flags, _neighbour(_AF_BRIDGE, index, _SELF, entry)


@dataclass(frozen=True, slots=True)
class ProxySet(Message):
    """Answer ARP for an address with the device's own MAC."""

    address: str
    device: str

    words = "answering ARP for '{0.address}' on '{0.device}'"
    shell = "ip -n {ns} neighbour replace proxy {0.address} dev {0.device}"

    def _encode(self, names: Names) -> Encoded:
        entry = attribute(1, socket.inet_aton(self.address))
        index = names.indexes[self.device]
        return _NEW_NEIGHBOUR, _CREATE | _REPLACE, _neighbour(socket.AF_INET, index, _PROXY, entry)


@dataclass(frozen=True, slots=True)
class ProxyDelaySet(Message):
    """Set the longest delay of a proxied ARP answer.

    By netlink, because ``net/ipv4/neigh`` sysctls are missing in a user namespace.
    """

    device: str
    milliseconds: int

    words = "setting the proxy delay of '{0.device}' to {0.milliseconds} ms"
    shell = "ip -n {ns} ntable change name arp_cache dev {0.device} proxy_delay {0.milliseconds}"

    def _encode(self, names: Names) -> Encoded:
        delay = attribute(13, struct.pack("=Q", self.milliseconds))
        table = _text(1, "arp_cache")
        table += attribute(6, _number(1, names.indexes[self.device]) + delay)
        return _SET_NEIGHBOUR_TABLE, _REPLACE, struct.pack("=Bxxx", socket.AF_INET) + table


@dataclass(frozen=True, slots=True)
class TapAdd(Request):
    """Add a persistent tap device, down; a virtual switch with a port of its name takes it over."""

    name: str
    index: int
    mac: str

    words = "adding tap device '{0.name}'"
    shell = (
        "ip -n {ns} tuntap add dev {0.name} mode tap\n"
        "ip -n {ns} link set dev {0.name} address {0.mac}"
    )

    def _do(self) -> None:
        name = self.name.encode()
        tap = os.open(TUN, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(tap, _SET_INDEX, struct.pack("i", self.index))
            fcntl.ioctl(tap, _SET_INTERFACE, _NAME_FLAGS.pack(name, _TAP | _NO_PACKET_INFORMATION))
            fcntl.ioctl(tap, _SET_PERSISTENT, 1)
            fcntl.ioctl(tap, _SET_ADDRESS, _NAME_ADDRESS.pack(name, _ETHERNET, _mac(self.mac)))
        finally:
            os.close(tap)


@dataclass(frozen=True, slots=True)
class ChecksumOff(Request):
    """Have the kernel compute the checksums of packets that a device sends.

    By default it leaves them to a veth's far end, and a user-space switch there forwards packets
    unchanged (intro/install/userspace.rst of Open vSwitch).
    """

    device: str

    words = "switching off the checksum offload of '{0.device}'"
    shell = "ip netns exec {ns} ethtool -K {0.device} tx off"

    def _do(self) -> None:
        wanted = array.array("I", (_SET_TX_CHECKSUM, 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            where = wanted.buffer_info()[0]
            fcntl.ioctl(channel, _TOOL, _NAME_POINTER.pack(self.device.encode(), where))


@dataclass(frozen=True, slots=True)
class RulesetLoad(Operation):
    """Load an nftables script."""

    text: str

    words = "loading the nftables rules"

    def commands(self, namespace: str) -> list[str]:
        """A here-document with the script for ``nft``."""
        head = f"ip netns exec {quote(namespace)} nft -f - <<'{_RULES_END}'"
        return [head, *self.text.splitlines(), _RULES_END]


@dataclass(frozen=True, slots=True)
class NamespaceOperations:
    """All operations of one namespace, in order."""

    namespace: str
    indexes: tuple[tuple[str, int], ...]
    """Name and interface index of every device that the namespace will have."""
    operations: tuple[Operation, ...]
