"""What is done to make a lab's network: one typed operation per change, in one namespace each.

The executor (``netlink.py``) encodes them as netlink messages, ``commands.py`` prints them as
``ip``, ``bridge``, ``sysctl`` and ``nft`` commands; neither decides anything.
Addresses, MACs and prefixes are text, as in the Intent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class SysctlSet:
    """Write a kernel setting of the namespace."""

    key: str
    """Path below ``/proc/sys``: ``"net/ipv4/ip_forward"``."""
    value: str
    optional: bool = False
    """True where a kernel without this setting needs no setting."""

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"setting '{self.key}' to '{self.value}'"


@dataclass(frozen=True, slots=True)
class LinkUp:
    """Set a device up."""

    device: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"setting link '{self.device}' up"


@dataclass(frozen=True, slots=True)
class LinkDown:
    """Set a device down; its routes, neighbours and proxies go with that."""

    device: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"setting link '{self.device}' down"


@dataclass(frozen=True, slots=True)
class LinkRename:
    """Give a device, which must be down, another name."""

    device: str
    name: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"naming link '{self.device}' '{self.name}'"


@dataclass(frozen=True, slots=True)
class LinkRemove:
    """Take a device away, and the far end of a veth with it."""

    device: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"removing link '{self.device}'"


@dataclass(frozen=True, slots=True)
class MtuSet:
    """Set the MTU of a device that is there."""

    device: str
    mtu: int

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"setting the MTU of '{self.device}' to {self.mtu}"


@dataclass(frozen=True, slots=True)
class VethAdd:
    """Add a veth pair, this end up; the far end is made down, in another namespace."""

    name: str
    index: int
    mac: str
    peer_namespace: str
    peer_name: str
    peer_index: int
    peer_mac: str
    mtu: int

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return (
            f"adding veth '{self.name}' with its far end "
            f"'{self.peer_name}' in namespace '{self.peer_namespace}'"
        )


@dataclass(frozen=True, slots=True)
class BridgeAdd:
    """Add a bridge, up."""

    name: str
    index: int
    mac: str
    mtu: int

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"adding bridge '{self.name}'"


@dataclass(frozen=True, slots=True)
class VxlanAdd:
    """Add a VXLAN device without learning, up."""

    name: str
    index: int
    mac: str
    mtu: int
    vni: int
    port: int
    local: str
    device: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"adding VXLAN device '{self.name}' with VNI {self.vni}"


@dataclass(frozen=True, slots=True)
class MasterSet:
    """Plug a device into a bridge."""

    device: str
    master: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"plugging '{self.device}' into bridge '{self.master}'"


@dataclass(frozen=True, slots=True)
class HairpinOn:
    """Let a bridge send frames out of the port they came in by."""

    device: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"setting hairpin mode on bridge port '{self.device}'"


@dataclass(frozen=True, slots=True)
class AddressAdd:
    """Give a device an address, with prefix length."""

    device: str
    address: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"adding address '{self.address}' to '{self.device}'"


@dataclass(frozen=True, slots=True)
class AddressRemove:
    """Take an address, with prefix length, from a device."""

    device: str
    address: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"removing address '{self.address}' from '{self.device}'"


@dataclass(frozen=True, slots=True)
class RouteSet:
    """Set a route of the main table; ``destination`` may be ``"default"``."""

    destination: str
    device: str
    via: str | None
    onlink: bool

    def describe(self) -> str:
        """What is done to which object, for an error."""
        via = f" via '{self.via}'" if self.via else ""
        return f"setting route '{self.destination}'{via} by device '{self.device}'"


@dataclass(frozen=True, slots=True)
class RouteAdd:
    """Add a route of the main table beside strangers' to the same destination, which stay."""

    destination: str
    device: str
    via: str | None
    onlink: bool
    metric: int = 0
    """The lowest is used."""

    def describe(self) -> str:
        """What is done to which object, for an error."""
        via = f" via '{self.via}'" if self.via else ""
        return f"adding route '{self.destination}'{via} by device '{self.device}'"


@dataclass(frozen=True, slots=True)
class RouteRemove:
    """Take a route of the main table away."""

    destination: str
    device: str
    via: str | None
    onlink: bool
    metric: int

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"removing route '{self.destination}' by device '{self.device}'"


@dataclass(frozen=True, slots=True)
class NeighbourSet:
    """Set a permanent neighbour entry."""

    address: str
    mac: str
    device: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"setting neighbour '{self.address}' on '{self.device}'"


@dataclass(frozen=True, slots=True)
class ForwardingSet:
    """Set a permanent forwarding entry of a VXLAN device."""

    mac: str
    device: str
    remote: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"setting forwarding entry '{self.mac}' to '{self.remote}' on '{self.device}'"


@dataclass(frozen=True, slots=True)
class ProxySet:
    """Answer ARP for an address with the device's own MAC."""

    address: str
    device: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"answering ARP for '{self.address}' on '{self.device}'"


@dataclass(frozen=True, slots=True)
class ProxyDelaySet:
    """How long a proxied ARP answer waits at most.

    A netlink message, because a user namespace has no ``net/ipv4/neigh`` settings.
    """

    device: str
    milliseconds: int

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"setting the proxy delay of '{self.device}' to {self.milliseconds} ms"


@dataclass(frozen=True, slots=True)
class TapAdd:
    """Add a persistent tap device, down; a virtual switch of that port's name takes it over."""

    name: str
    index: int
    mac: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"adding tap device '{self.name}'"


@dataclass(frozen=True, slots=True)
class ChecksumOff:
    """Have the kernel write checksums itself into what a device sends.

    A switch in user space reads a veth's packets as they are, and the kernel leaves the checksum
    of what it sends into a veth to the far end (intro/install/userspace.rst of Open vSwitch).
    """

    device: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return f"switching off the checksum offload of '{self.device}'"


@dataclass(frozen=True, slots=True)
class RulesetLoad:
    """Load an nftables script."""

    text: str

    def describe(self) -> str:
        """What is done to which object, for an error."""
        return "loading the nftables rules"


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
