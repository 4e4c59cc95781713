"""What each machine's network must be: the one form that every provider and the explainer read.

Addresses are text (``"10.244.1.2"``, with ``/24`` where a prefix belongs), MACs are
lower-case text with colons, MTUs are bytes of an IP packet. Device names are Linux
interface names of at most 15 characters. Everything is in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lab.scenario.terms import Os, ProxyMode, Role
from lab.topology.daemon import Daemon
from lab.topology.logical import Chassis, LogicalNetwork

if TYPE_CHECKING:
    from lab.scenario.scenario import Nic  # agents on nodes have no pydantic
from lab.scenario.terms import Policy, ServicePort

NODE_SEGMENT = "cluster"


@dataclass(frozen=True, slots=True)
class Segment:
    """One broadcast domain: ``cluster``, ``outside``, or the one between ``hypervisors``."""

    name: str
    cidr: str
    mtu: int


@dataclass(frozen=True, slots=True)
class Interface:
    """A network card of a machine, plugged into a segment."""

    name: str
    segment: str
    mac: str
    addresses: tuple[str, ...]
    mtu: int
    card: str | None = None
    """Where a virtual switch has the card as a port: the card's name, while ``name`` is the
    bridge of that switch, which then has the card's MAC and addresses."""
    host: str | None = None
    """The scenario's own hypervisor whose switch it is plugged into; None where the segment is
    one piece."""
    virtual: tuple[str, ...] = ()
    """Addresses that a daemon gives it, as far as the machine holds them: see the intent."""

    @property
    def held(self) -> tuple[str, ...]:
        """Every address that it has: its own first."""
        return (*self.addresses, *self.virtual)


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """What is plugged into a hypervisor's switch: a card of a machine."""

    name: str
    machine: str
    card: str


@dataclass(frozen=True, slots=True)
class Switch:
    """The bridge of a hypervisor that carries a segment; the hypervisor's tunnel is in it too."""

    name: str
    segment: str
    mac: str
    mtu: int
    ports: tuple[SwitchPort, ...]


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a real machine is made of; the embedded provider has no use for it.

    Memory is MiB, disk GiB.
    """

    image: str
    vcpus: int
    memory_mib: int
    disk_gib: int
    hypervisor: str | None = None
    """The hypervisor that the scenario asks for; None for any."""
    place: int | None = None
    """The how manieth hypervisor, from 1, where the scenario counts its own and real ones are
    there; None for any."""
    nics: tuple[Nic, ...] = ()
    """Further network cards, on networks of the hypervisor."""


SMALL = Hardware("debian-12", vcpus=1, memory_mib=512, disk_gib=8)


@dataclass(frozen=True, slots=True)
class Session:
    """One BGP session, seen from one of its ends."""

    machine: str
    address: str
    asn: int
    """The other end's autonomous system."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """One machine as a speaker of BGP."""

    address: str
    """Its own end of every session, and its router id."""
    asn: int
    sessions: tuple[Session, ...]
    announces: tuple[str, ...]
    """Devices whose networks it announces, as far as pods have them."""
    hold_seconds: int
    """A peer that says nothing for so long is lost."""
    passes_on: bool = False
    """Whether it announces what it has learned, with itself as the next hop."""
    tunnel: str | None = None
    """The device that what it learns leads into; None for the one that peers are on."""
    bfd_milliseconds: int | None = None
    """Between two packets that say it is alive; three missing, and a peer takes it for lost.
    None where only the hold time tells."""
    blocks: tuple[str, ...] = ()
    """Prefixes that it announces whatever stands behind them: Calico's blocks."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One ready endpoint of a Service."""

    pod: str
    address: str
    node: str


@dataclass(frozen=True, slots=True)
class ProxiedService:
    """One Service, as this node's kube-proxy must program it."""

    name: str
    address: str
    ports: tuple[ServicePort, ...]
    backends: tuple[Backend, ...]
    affinity: int | None = None
    """Seconds for which a client keeps its backend after its last connection; None where each
    connection draws anew."""
    inside: Policy = "cluster"
    """Kubernetes' internalTrafficPolicy: of packets to the Service's address."""
    outside: Policy = "cluster"
    """Kubernetes' externalTrafficPolicy: of packets to its ports on nodes."""
    health_port: int | None = None
    """Where each node says how many backends it has (healthCheckNodePort)."""

    def node_ports(self) -> tuple[int, ...]:
        """The ports that it has on every node."""
        return tuple(port.node_port for port in self.ports if port.node_port is not None)


@dataclass(frozen=True, slots=True)
class HeadlessService:
    """A Service without an address: its name stands for its backends' addresses."""

    name: str
    backends: tuple[Backend, ...]


@dataclass(frozen=True, slots=True)
class Translation:
    """What a node translates.

    Traffic to Services from outside ``local_cidr`` (the node's own pod CIDR) is masqueraded,
    and so is NodePort and hairpin traffic. Pods' traffic to anything outside ``not_masqueraded``
    leaves with the node's address (flannel's ip-masq, the Windows OutBoundNAT policy).
    """

    local_cidr: str | None
    """None on a node without pods."""
    not_masqueraded: tuple[str, ...]
    services: tuple[ProxiedService, ...]
    refuses: bool = True
    """Whether packets that no backend is there for are refused, as by kube-proxy on Linux;
    else they are lost."""
    short_circuits: bool = True
    """Whether a port that is for local backends alone takes packets of the node's own, and of
    its own pods, to any backend, as kube-proxy on Linux has it."""


@dataclass(frozen=True, slots=True)
class Bridge:
    """The bridge that a node's pods are plugged into; ports are in hairpin mode."""

    name: str
    mac: str
    addresses: tuple[str, ...]
    mtu: int
    switch: str | None = None
    """Where a virtual switch has the pods: its bridge, of which this is the node's own port."""


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A VXLAN device without learning: forwarding entries are given, never guessed."""

    name: str
    vni: int
    port: int
    local: str
    device: str
    mac: str
    addresses: tuple[str, ...]
    mtu: int


BLACKHOLE = "blackhole"


@dataclass(frozen=True, slots=True)
class Route:
    """``destination`` is a prefix or ``"default"``; ``via`` None means on the link.

    The device of a route that loses packets is ``BLACKHOLE``.
    """

    destination: str
    device: str
    via: str | None = None
    onlink: bool = False
    by: str | None = None
    """The daemon of the machine that learns the route and sets it; None where it is static."""
    asked: bool = False
    """Whether the scenario asks for it itself: then it is the machine's own, and no add-on's."""
    source: str | None = None
    """What the machine's own packets by it have for their source; None where the device says."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A permanent neighbour entry."""

    address: str
    mac: str
    device: str


FLOOD = "00:00:00:00:00:00"
"""The MAC of entries for frames to nobody known, and to all: one for each other end."""


@dataclass(frozen=True, slots=True)
class ForwardingEntry:
    """On a tunnel: frames to ``mac`` go to the tunnel end at ``remote``.

    Those to a MAC that no entry has go to each ``remote`` of ``FLOOD``.
    """

    mac: str
    device: str
    remote: str


@dataclass(frozen=True, slots=True)
class ProxyNeighbour:
    """The machine answers ARP for ``address`` on ``device`` with its own MAC."""

    address: str
    device: str


@dataclass(frozen=True, slots=True)
class Resolver:
    """What stands in the pod's resolv.conf."""

    server: str
    search: tuple[str, ...]
    ndots: int


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod: its ``eth0`` is the far end of the node's ``port``.

    The port is the bridge's; where the machine has none, the pod is routed: it has a /32 address,
    a gateway that is on the link, and the machine a route to it by the port.
    """

    name: str
    role: Literal["probe", "dns"]
    port: str
    mac: str
    address: str
    """With prefix length."""
    gateway: str
    mtu: int
    neighbours: tuple[Neighbour, ...]
    resolver: Resolver


@dataclass(frozen=True, slots=True)
class Drop:
    """Packets that this machine sends itself, or that are for itself, and silently loses."""

    rule: str
    """Id of the rule that asks for it."""
    destinations: tuple[str, ...]
    ports: tuple[int, int] | None = None
    """First and last destination port, or None for every packet."""
    spared: tuple[str, ...] = ()
    """Prefixes within the destinations that are let through."""
    hook: Literal["output", "input"] = "output"
    """``output``: what it sends itself; ``input``: what is for itself, whoever sent it."""


@dataclass(frozen=True, slots=True)
class Kubelet:
    """What a node is in its cluster; the embedded provider has no use for it."""

    role: Role
    version: str
    """Minor, such as ``"1.36"``."""
    pod_cidr: str | None
    """The node's own; None where no kubelet runs (a control plane of the hard way)."""


@dataclass(frozen=True, slots=True)
class KubernetesIntent:
    """The cluster as a whole, where machines get a real one."""

    version: str
    """Minor of the control plane, such as ``"1.36"``."""
    pod_cidr: str
    service_cidr: str
    dns_address: str
    proxy_mode: ProxyMode = "nftables"


MachineKind = Literal["node", "services", "router", "client", "hypervisor"]
"""``services`` stands in front of the cluster; nodes stand on a ``hypervisor``."""


@dataclass(frozen=True, slots=True)
class MachineIntent:
    """One machine: a node, the router (ToR), the client outside, or what its kind says."""

    name: str
    kind: MachineKind
    os: Os
    interfaces: tuple[Interface, ...]
    bridge: Bridge | None = None
    tunnel: Tunnel | None = None
    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    forwarding: tuple[ForwardingEntry, ...] = ()
    proxies: tuple[ProxyNeighbour, ...] = ()
    pods: tuple[Pod, ...] = ()
    translation: Translation | None = None
    drops: tuple[Drop, ...] = ()
    forwards: bool = False
    """Whether the machine routes packets that are not its own."""
    hardware: Hardware = SMALL
    kubelet: Kubelet | None = None
    """None for all that are no nodes of the cluster."""
    switch: Switch | None = None
    resolver: Resolver | None = None
    """None where it asks nobody for names."""
    daemons: tuple[Daemon, ...] = ()
    """In the order in which those of one stage are started."""
    chassis: Chassis | None = None
    """Where the node takes part in a logical network."""
    speaker: Speaker | None = None
    """What the machine says by BGP, and to whom; its daemon is among the others."""

    def address(self, segment: str = NODE_SEGMENT) -> str:
        """Its address on a segment, without prefix; that of its first card where it has none."""
        there = [card for card in self.interfaces if card.segment == segment and card.addresses]
        return (there or self.interfaces)[0].addresses[0].partition("/")[0]

    def addressed(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Name of every device that has addresses, and all that it has, with prefix length."""
        cards = [(card.name, card.held) for card in self.interfaces]
        made = [(one.name, one.addresses) for one in (self.bridge, self.tunnel) if one]
        return (*cards, *made)


@dataclass(frozen=True, slots=True)
class Gateway:
    """An address that one of several machines holds at a time: a Windows node's pods' gateway."""

    node: str
    address: str
    """With the prefix length of those pods' range."""
    device: str
    """The card that it is given to, of the same name on every candidate."""
    router_id: int
    """Of VRRP; unique on the segment."""
    candidates: tuple[str, ...]
    """Machines that may hold it, the most preferred first."""
    holder: str | None
    """The one that does: the first, until it is lost. None where nobody does."""


@dataclass(frozen=True, slots=True)
class ServicesNode:
    """The machine in front of the cluster, and what it answers for."""

    machine: str
    address: str
    api_port: int
    """There it passes the API on to the API servers."""
    api_servers: tuple[str, ...]
    domain: str
    """Of the nodes' own names."""
    names: tuple[tuple[str, str], ...]
    """Fully qualified, with the final dot, and their addresses: what its DNS answers."""
    tls: bool = False
    """Whether the API servers are Kubernetes' own: known by their certificates, and silent about
    whom they see."""


@dataclass(frozen=True, slots=True)
class Intent:
    """The network of the whole lab."""

    scenario: str
    topology: str
    domain: str
    segments: tuple[Segment, ...]
    machines: tuple[MachineIntent, ...]
    pod_mtu: int
    node_mtu: int
    kubernetes: KubernetesIntent | None = None
    gateways: tuple[Gateway, ...] = ()
    headless: tuple[HeadlessService, ...] = ()
    logical: LogicalNetwork | None = None
    """Where OVN makes the pods' network, and its load balancers are the Services."""
    hypervisors: tuple[MachineIntent, ...] = ()
    """What the scenario says that its machines stand on. Where those are computers of virtual
    machines, these are real, and none of the lab's to make."""

    services_node: ServicesNode | None = None

    def everything(self) -> tuple[MachineIntent, ...]:
        """Hypervisors, then the machines on them."""
        return (*self.hypervisors, *self.machines)

    def hosts(self) -> tuple[tuple[str, str], ...]:
        """Machines and the hypervisors that they stand on, in the machines' order."""
        return tuple(
            (machine.name, card.host)
            for machine in self.machines
            for card in machine.interfaces
            if card.host
        )

    def balancer(self) -> MachineIntent | None:
        """The machine in front of the API servers; None where one control plane is asked itself.

        It is the services node or, of several control planes without one, the router.
        """
        kinds = {machine.kind: machine for machine in self.machines}
        roles = [machine.kubelet.role for machine in self.machines if machine.kubelet]
        several = roles.count("control-plane") > 1
        return kinds.get("services") or (kinds.get("router") if several else None)

    def control_plane(self) -> str:
        """The machine that a cluster begins on; empty where pods are the lab's own."""
        planes = (
            machine.name
            for machine in self.machines
            if machine.kubelet and machine.kubelet.role == "control-plane"
        )
        return next(planes, "") if self.kubernetes else ""

    def machine(self, name: str) -> MachineIntent:
        """The machine or hypervisor of that name; KeyError if there is none."""
        for machine in self.everything():
            if machine.name == name:
                return machine
        raise KeyError(name)
