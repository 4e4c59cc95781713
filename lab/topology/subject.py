"""What a packet passes, and what can differ on a machine: a frozen record for each kind of thing.

A hop of a path, a check and the comparison of whole states name the same thing by equal subjects.
Whoever decides (what ranks first, what follows, which packets meet it) uses these fields; ``str()``
is only a name for readers.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from ipaddress import IPv4Network
from typing import Literal

_EVERYWHERE = "0.0.0.0/0"


@dataclass(frozen=True, slots=True)
class MachineSubject:
    """A machine as the end of a request."""

    name: str

    def __str__(self) -> str:
        return f"machine {self.name}"


@dataclass(frozen=True, slots=True)
class PodSubject:
    """A pod: its interface, its way out, its programs."""

    name: str

    def __str__(self) -> str:
        return f"pod {self.name}"


@dataclass(frozen=True, slots=True)
class DeviceSubject:
    """A network device; ``kind`` is its part in the Intent, ``"device"`` if it has none."""

    name: str
    kind: Literal["card", "bridge", "switch", "tunnel", "device"] = "device"

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class PortSubject:
    """A port of a bridge or switch: a pod's, a machine's, or the tunnel's (without owner)."""

    name: str
    owner: str = ""
    of_pod: bool = False

    def __str__(self) -> str:
        whose = self.owner or "the tunnel"
        # HNS names no port of a pod
        return " ".join(filter(None, ("port", self.name, "of", "pod" * self.of_pod, whose)))


@dataclass(frozen=True, slots=True)
class RouteSubject:
    """A route, by its destination as ``ip`` prints it: a prefix, an address or ``"default"``."""

    destination: str
    table: str = "main"
    metric: str = ""
    tos: str = ""
    number: int = 1
    """Of several with the same destination, table and metric."""
    device: str = ""
    via: str = ""
    """The next hop; of several, all of them."""
    maker: str = ""
    """Its ``proto`` of rtnetlink(7): ``"kernel"``, ``"bird"``."""
    source: str = ""
    """Source address for the machine's own packets; empty if it is not said."""

    @property
    def prefix(self) -> str:
        """The destination as a prefix, or as an address."""
        return _EVERYWHERE if self.destination == "default" else self.destination

    @property
    def length(self) -> int:
        """The prefix length."""
        return IPv4Network(self.prefix).prefixlen

    def __str__(self) -> str:
        name = f"route to {self.destination}"
        name += f" in table {self.table}" if self.table != "main" else ""
        name += f" metric {self.metric}" if self.metric else ""
        name += f" tos {self.tos}" if self.tos else ""
        return name + (f" ({self.number})" if self.number > 1 else "")


@dataclass(frozen=True, slots=True)
class RuleSubject:
    """A rule of the routing policy (ip-rule(8))."""

    priority: str
    rule: str

    def __str__(self) -> str:
        return f"rule {self.priority} {self.rule}"


@dataclass(frozen=True, slots=True)
class NexthopSubject:
    """A nexthop object (ip-nexthop(8))."""

    id: str

    def __str__(self) -> str:
        return f"nexthop {self.id}"


@dataclass(frozen=True, slots=True)
class AddressSubject:
    """An address of a device, with its prefix length."""

    address: str
    device: str

    def __str__(self) -> str:
        return f"{self.address} dev {self.device}"


@dataclass(frozen=True, slots=True)
class ProxySubject:
    """An address for which a machine answers ARP."""

    address: str
    device: str

    def __str__(self) -> str:
        return f"address {self.address}"


@dataclass(frozen=True, slots=True)
class GatewaySubject:
    """A virtual gateway's address, with its prefix length."""

    address: str

    def __str__(self) -> str:
        return f"gateway {self.address}"


@dataclass(frozen=True, slots=True)
class ClaimSubject:
    """An address, MAC or pod CIDR that only one may have, at one that has it."""

    claim: Literal["address", "MAC", "pod CIDR"]
    value: str
    device: str = ""
    """The device that has it, on a machine."""
    pod: str = ""
    """The pod that has it."""

    def __str__(self) -> str:
        return f"{self.claim} {self.value} of {f'pod {self.pod}' if self.pod else self.device}"


@dataclass(frozen=True, slots=True)
class NeighbourSubject:
    """The MAC of an address, as known on a device, in a pod, or to the switch of tunnels."""

    address: str
    device: str = ""
    pod: str = ""
    of_tunnel: bool = False
    state: str = ""
    """Of ip-neighbour(8), in capitals: ``"STALE"``; empty if it is not known."""

    def __str__(self) -> str:
        where = f"of pod {self.pod}" if self.pod else f"on {self.device}"
        return f"{'tunnel ' if self.of_tunnel else ''}neighbour {self.address} {where}"


@dataclass(frozen=True, slots=True)
class EntrySubject:
    """A forwarding entry of a bridge or tunnel."""

    mac: str
    device: str
    remote: str = ""
    """The other end, where a MAC may have several."""
    vlan: str = ""

    def __str__(self) -> str:
        return f"forwarding entry {self.mac} on {self.device}"


@dataclass(frozen=True, slots=True)
class VlanSubject:
    """A VLAN of a bridge's port."""

    vid: str
    device: str

    def __str__(self) -> str:
        return f"vlan {self.vid} of {self.device}"


@dataclass(frozen=True, slots=True)
class SettingSubject:
    """A setting of the kernel, by its path below ``/proc/sys/net``."""

    path: str
    device: str = ""
    """The only device that it is for."""

    @property
    def name(self) -> str:
        """``"ip_forward"``, ``"rp_filter"``."""
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        return self.name


FORWARDING = SettingSubject("ipv4/ip_forward")


@dataclass(frozen=True, slots=True)
class TableSubject:
    """A table of nftables."""

    family: str
    table: str

    def __str__(self) -> str:
        return f"table {self.family} {self.table}"


@dataclass(frozen=True, slots=True)
class ChainSubject:
    """A chain of nftables; of iptables, whose tables have no family."""

    family: str
    table: str
    chain: str

    @property
    def whole(self) -> TableSubject:
        """Its table."""
        return TableSubject(self.family, self.table)

    def __str__(self) -> str:
        table = str(self.whole) if self.family else f"iptables table {self.table}"
        return f"{table}, chain {self.chain}"


@dataclass(frozen=True, slots=True)
class SetSubject:
    """A set, map or other named object of an nftables table."""

    kind: str
    family: str
    table: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.family} {self.table} {self.name}"


@dataclass(frozen=True, slots=True)
class IptablesSubject:
    """A rule of iptables' own, or a chain's policy (without a rule)."""

    table: str
    chain: str
    rule: str = ""

    def __str__(self) -> str:
        return f"iptables {self.table} {self.rule or f'{self.chain} policy'}"


@dataclass(frozen=True, slots=True)
class IpSetSubject:
    """An IP set, or an entry of it."""

    name: str
    entry: str = ""

    def __str__(self) -> str:
        return f"ipset {self.name}" + (f" entry {self.entry}" if self.entry else "")


@dataclass(frozen=True, slots=True)
class FirewallSubject:
    """The rules of a machine that may block; a firewall rule of Windows by its name."""

    hook: str = ""
    """``"input"``, ``"forward"``, ``"output"``: those that a packet passes there."""
    rule: str = ""

    def __str__(self) -> str:
        return self.hook or (f"firewall rule '{self.rule}'" if self.rule else "the firewall")


@dataclass(frozen=True, slots=True)
class FlowsSubject:
    """The flows of a virtual switch."""

    bridge: str

    def __str__(self) -> str:
        return f"flows of {self.bridge}"


@dataclass(frozen=True, slots=True)
class XfrmSubject:
    """A policy or state of ip-xfrm(8), or the default policies."""

    kind: Literal["policy", "state", "default"]
    selector: str = ""

    def __str__(self) -> str:
        return f"xfrm {self.kind} {self.selector}" if self.selector else "xfrm default policies"


@dataclass(frozen=True, slots=True)
class QueueSubject:
    """A queueing discipline, class or filter of tc(8)."""

    kind: Literal["queue", "class", "filter"]
    handle: str
    device: str

    def __str__(self) -> str:
        return f"{self.kind} {self.handle} of {self.device}"


@dataclass(frozen=True, slots=True)
class SocketSubject:
    """A socket that listens."""

    protocol: str
    address: str
    port: str

    def __str__(self) -> str:
        return f"socket {self.protocol} {self.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class ProgramSubject:
    """A program, by its process's name."""

    name: str

    def __str__(self) -> str:
        return f"program {self.name}"


@dataclass(frozen=True, slots=True)
class UnitSubject:
    """A service of the operating system."""

    name: str

    def __str__(self) -> str:
        return f"service {self.name}"


@dataclass(frozen=True, slots=True)
class FileSubject:
    """A configuration file."""

    path: str

    def __str__(self) -> str:
        return f"file {self.path}"


@dataclass(frozen=True, slots=True)
class CachedMtuSubject:
    """A path MTU that ICMP errors taught."""

    mtu: int

    def __str__(self) -> str:
        return f"cached path MTU {self.mtu}"


@dataclass(frozen=True, slots=True)
class ServiceSubject:
    """A Kubernetes Service; without a name, all of them."""

    name: str = ""

    def __str__(self) -> str:
        return f"Service {self.name}" if self.name else "Services"


@dataclass(frozen=True, slots=True)
class EntranceSubject:
    """An address and port of a Service; without an address, a node port."""

    service: str
    address: str | None
    port: int
    protocols: tuple[str, ...]

    def is_asked_by(self, target: str, port: int, protocol: str) -> bool:
        """Whether a packet to the address and port is for it."""
        return protocol in self.protocols and port == self.port and self.address in {None, target}

    def __str__(self) -> str:
        entrance = f"{self.address}:{self.port}" if self.address else f"NodePort {self.port}"
        return f"Service {self.service}, {entrance}, {' and '.join(self.protocols)}"


@dataclass(frozen=True, slots=True)
class LeavingSubject:
    """Packets that leave a node: those of a source; without one, those that kube-proxy marks."""

    source: str = ""
    target: str = ""
    """Where they go; empty for everywhere outside the lab."""

    def __str__(self) -> str:
        if not self.source:
            return "packets marked by kube-proxy"
        return f"packets of {self.source}" + (f" to {self.target}" if self.target else "")


@dataclass(frozen=True, slots=True)
class TrackingSubject:
    """Connection tracking: an answer gets back the addresses of its request."""

    def __str__(self) -> str:
        return "connection tracking"


@dataclass(frozen=True, slots=True)
class LogicalSubject:
    """A part of a logical network."""

    kind: Literal["port", "route", "router", "balancers", "access control list"]
    name: str

    def __str__(self) -> str:
        match self.kind:
            case "route":
                return f"logical route of {self.name}"
            case "balancers":
                return f"load balancers of logical switch {self.name}"
            case "access control list":
                return f"access control list of logical switch {self.name}"
        return f"logical {self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class ChassisSubject:
    """A node as the others' tunnels know it."""

    name: str

    def __str__(self) -> str:
        return f"chassis {self.name}"


@dataclass(frozen=True, slots=True)
class TunnelSubject:
    """The tunnel from one chassis to another machine."""

    machine: str

    def __str__(self) -> str:
        return f"tunnel to {self.machine}"


@dataclass(frozen=True, slots=True)
class BgpSubject:
    """A BGP session with another machine."""

    machine: str

    def __str__(self) -> str:
        return f"BGP session with {self.machine}"


@dataclass(frozen=True, slots=True)
class ApiSubject:
    """An object of the Kubernetes API."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (
            f" in namespace {self.namespace}" if self.namespace else ""
        )


@dataclass(frozen=True, slots=True)
class OtherSubject:
    """What no decision asks about, by its name for readers."""

    name: str = ""

    def __str__(self) -> str:
        return self.name


NO_SUBJECT = OtherSubject()
Subject = (
    MachineSubject | PodSubject | DeviceSubject | PortSubject | RouteSubject | RuleSubject
    | NexthopSubject | AddressSubject | ProxySubject | GatewaySubject | ClaimSubject
    | NeighbourSubject | EntrySubject | VlanSubject | SettingSubject | TableSubject | ChainSubject
    | SetSubject | IptablesSubject | IpSetSubject | FirewallSubject | FlowsSubject | XfrmSubject
    | QueueSubject | SocketSubject | ProgramSubject | UnitSubject | FileSubject | CachedMtuSubject
    | ServiceSubject | EntranceSubject | LeavingSubject | TrackingSubject | LogicalSubject
    | ChassisSubject | TunnelSubject | BgpSubject | ApiSubject | OtherSubject
)  # fmt: skip


def device_of(subject: Subject) -> str:
    """The only device that a subject is about; empty if none or all are."""
    match subject:
        case DeviceSubject(name=name) | PortSubject(name=name):
            return name
        case (
            RouteSubject() | AddressSubject() | ProxySubject() | ClaimSubject()
            | NeighbourSubject() | EntrySubject() | VlanSubject() | SettingSubject()
            | QueueSubject()
        ):  # fmt: skip
            return subject.device
        case _:
            return ""


def values_of(subject: Subject) -> tuple[str, ...]:
    """The machine's own names, addresses and numbers in a subject."""
    return tuple(str(value) for value in astuple(subject) if isinstance(value, str | int))
