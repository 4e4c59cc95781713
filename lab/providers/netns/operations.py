"""What is done to make a lab's network: one typed operation per change, in one namespace each.

``messages.py`` encodes them as netlink messages, ``commands.py`` prints them as
``ip``, ``bridge``, ``sysctl`` and ``nft`` commands; neither decides anything.
Addresses, MACs and prefixes are text, as in the Intent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias


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
