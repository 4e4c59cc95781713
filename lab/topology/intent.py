"""The intended network of each machine: the one form that every provider and the explainer read.

Addresses are text (``"10.244.1.2"``, with ``/24`` where a prefix belongs), MACs are lower-case text
with colons, MTUs are bytes of an IP packet. Device names are Linux interface names of at most 15
characters. Everything has a fixed order.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Literal

from lab._dataclass import dataclass
from lab.scenario.terms import Impairment, Os, Policy, ProxyMode, Role, ServicePort
from lab.topology.daemon import Daemon
from lab.topology.logical import Chassis, LogicalNetwork

NODE_SEGMENT = "cluster"


@dataclass(frozen=True, slots=True)
class Segment:
    """One broadcast domain: ``cluster``, ``outside``, or the one between ``hypervisors``."""

    name: str
    cidr: str
    mtu: int


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface of a machine, plugged into a segment."""

    name: str
    segment: str
    mac: str
    addresses: tuple[str, ...]
    mtu: int
    card: str | None = None
    """If a virtual switch has the interface as a port: the interface's name. ``name`` is then the
    switch's bridge, which has the interface's MAC and addresses.
    """
    host: str | None = None
    """The scenario's own hypervisor whose switch it is plugged into; None if the segment is not
    split among hypervisors.
    """
    virtual: tuple[str, ...] = ()
    """Addresses that a daemon adds while the machine holds them; see ``Intent.gateways``."""

    @property
    def held(self) -> tuple[str, ...]:
        """All its addresses, its own first."""
        return (*self.addresses, *self.virtual)


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """A port of a hypervisor's switch: an interface of a machine."""

    name: str
    machine: str
    card: str


@dataclass(frozen=True, slots=True)
class Switch:
    """The bridge of a hypervisor that carries a segment; the hypervisor's tunnel is a port too."""

    name: str
    segment: str
    mac: str
    mtu: int
    ports: tuple[SwitchPort, ...]


@dataclass(frozen=True, slots=True)
class AddedCard:
    """A further network card of a real machine, on a network of its hypervisor."""

    network: str
    address: str | None
    """None if the network gives one."""
    mac: str | None
    """None for one by the lab's and the machine's name."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The hardware of a real machine; the embedded provider ignores it.

    Memory is MiB, disk GiB.
    """

    image: str
    vcpus: int
    memory_mib: int
    disk_gib: int
    hypervisor: str | None = None
    """The hypervisor that the scenario requests; None for any."""
    place: int | None = None
    """The number of the real hypervisor, counted from 1, if the scenario has hypervisors of its
    own; None for any.
    """
    nics: tuple[AddedCard, ...] = ()


SMALL = Hardware("debian-12", vcpus=1, memory_mib=512, disk_gib=8)


@dataclass(frozen=True, slots=True)
class Session:
    """One BGP session, seen from one end."""

    machine: str
    address: str
    asn: int
    """The peer's AS number."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """One machine as a BGP speaker."""

    address: str
    """Local address of every session, and the router id."""
    asn: int
    sessions: tuple[Session, ...]
    announces: tuple[str, ...]
    """Devices whose connected networks it announces, limited to pod networks."""
    hold_seconds: int
    """Hold time: a peer that is silent for longer is lost."""
    passes_on: bool = False
    """Whether it announces learned routes, with itself as the next hop."""
    tunnel: str | None = None
    """The device that learned routes use; None for the device towards the peer."""
    bfd_milliseconds: int | None = None
    """Interval of BFD packets; a peer is lost after three missing ones. None without BFD: only the
    hold time counts.
    """
    blocks: tuple[str, ...] = ()
    """Prefixes that it always announces: Calico's blocks."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One ready endpoint of a Service."""

    pod: str
    address: str
    node: str
    hairpin: bool = True
    """Whether the pod reaches itself through the Service."""


@dataclass(frozen=True, slots=True)
class ProxiedService:
    """One Service, as this node's kube-proxy must program it."""

    name: str
    address: str
    ports: tuple[ServicePort, ...]
    backends: tuple[Backend, ...]
    affinity: int | None = None
    """Session affinity: seconds that a client keeps its backend after its last connection. None
    without affinity.
    """
    inside: Policy = "cluster"
    """Kubernetes' internalTrafficPolicy, for packets to the Service's address."""
    outside: Policy = "cluster"
    """Kubernetes' externalTrafficPolicy, for packets to its ports on nodes."""
    health_port: int | None = None
    """Port on which each node reports its number of backends (healthCheckNodePort)."""

    def node_ports(self) -> tuple[int, ...]:
        """The node ports of all its ports."""
        return tuple(port.node_port for port in self.ports if port.node_port is not None)


@dataclass(frozen=True, slots=True)
class HeadlessService:
    """A Service without an address; its name resolves to its backends' addresses."""

    name: str
    backends: tuple[Backend, ...]


@dataclass(frozen=True, slots=True)
class Translation:
    """The address translation of a node.

    Traffic to Services from outside ``local_cidr`` (the node's own pod CIDR) is masqueraded, and so
    is NodePort and hairpin traffic. Pods' traffic to destinations outside ``not_masqueraded``
    leaves with the node's address (flannel's ip-masq, the Windows OutBoundNAT policy).
    """

    local_cidr: str | None
    """None on a node without pods."""
    not_masqueraded: tuple[str, ...]
    services: tuple[ProxiedService, ...]
    refuses: bool = True
    """Whether packets to a Service without backends are rejected, as by kube-proxy on Linux;
    otherwise they are dropped.
    """
    short_circuits: bool = True
    """Whether packets from the node itself and its own pods to a port with a local policy may go to
    any backend, as with kube-proxy on Linux.
    """


@dataclass(frozen=True, slots=True)
class Bridge:
    """The bridge that a node's pods are plugged into; ports are in hairpin mode."""

    name: str
    mac: str
    addresses: tuple[str, ...]
    mtu: int
    switch: str | None = None
    """If a virtual switch has the pods: its bridge; ``name`` is then the node's own port of it."""


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A VXLAN device without learning; all forwarding entries are given."""

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
    """A route. ``destination`` is a prefix or ``"default"``; ``via`` is None for an on-link route.

    ``BLACKHOLE`` as the device means that packets are dropped.
    """

    destination: str
    device: str
    via: str | None = None
    onlink: bool = False
    by: str | None = None
    """The daemon of the machine that learns and sets the route; None for a static route."""
    requested: bool = False
    """Whether the scenario itself asks for it: then no add-on sets it."""
    source: str | None = None
    """Source address for the machine's own packets; None for the device's address."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A permanent neighbour entry."""

    address: str
    mac: str
    device: str


FLOOD = "00:00:00:00:00:00"
"""The all-zeros MAC of entries for unknown and broadcast destinations, one for each remote end."""


@dataclass(frozen=True, slots=True)
class ForwardingEntry:
    """A tunnel's FDB entry: frames to ``mac`` go to the tunnel end at ``remote``.

    Frames to a MAC without an entry go to every ``remote`` of ``FLOOD``.
    """

    mac: str
    device: str
    remote: str


@dataclass(frozen=True, slots=True)
class ProxyNeighbour:
    """Proxy ARP: the machine answers for ``address`` on ``device`` with its own MAC."""

    address: str
    device: str


@dataclass(frozen=True, slots=True)
class Resolver:
    """The content of the pod's resolv.conf."""

    server: str
    search: tuple[str, ...]
    ndots: int


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a pod cannot run, by what the cluster's API reports."""

    object: str
    """``Node worker1``, ``ResourceQuota few in namespace hybridlab-probe``."""
    observed: str
    """``cordoned, and takes no new pods``."""
    shows: str
    """The command that shows it, on a control plane; or a sentence."""
    mends: str
    """The command that removes it there; or a sentence."""

    @property
    def sentence(self) -> str:
        """``Node worker1: cordoned, and takes no new pods``."""
        return f"{self.object}: {self.observed}"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod: its ``eth0`` is the peer of the node's ``port``.

    The port belongs to the machine's bridge. Without a bridge the pod is routed: it has a /32
    address and an on-link gateway, and the machine routes to it through the port.
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
    obstacle: Obstacle | None = field(default=None, metadata={"unless None": True})
    """Why it does not run in its cluster; None if it runs. Its address is then the planned one."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Packets to drop silently: those that this machine sends itself, or receives for itself."""

    rule: str
    """Id of the rule that requires it."""
    destinations: tuple[str, ...]
    ports: tuple[int, int] | None = None
    """First and last destination port; None for all packets."""
    spared: tuple[str, ...] = ()
    """Prefixes within the destinations that are exempt."""
    hook: Literal["output", "input"] = "output"
    """``output``: packets that it sends itself; ``input``: packets for itself from anyone."""


@dataclass(frozen=True, slots=True)
class Kubelet:
    """A node's role in its cluster; the embedded provider ignores it."""

    role: Role
    version: str
    """Minor, such as ``"1.36"``."""
    pod_cidr: str | None
    """The node's own; None if no kubelet runs (a control plane of hard-way)."""


@dataclass(frozen=True, slots=True)
class KubernetesIntent:
    """The cluster as a whole, for providers with real Kubernetes."""

    version: str
    """Minor of the control plane, such as ``"1.36"``."""
    pod_cidr: str
    service_cidr: str
    dns_address: str
    proxy_mode: ProxyMode = "nftables"
    manifests: tuple[str, ...] | None = field(default=None, metadata={"unless None": True})
    """Files with the objects of a network plug-in that is none of the lab's; None for the lab's."""
    archives: tuple[str, ...] | None = field(default=None, metadata={"unless None": True})
    """Archives of that plug-in's images."""


MachineKind = Literal["node", "services", "router", "client", "hypervisor"]
"""``services``: the services node before the cluster; ``hypervisor``: a host of nodes."""


@dataclass(frozen=True, slots=True)
class MachineIntent:
    """One machine: a node, the router (ToR), the client outside, or another kind."""

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
    """None for machines that are not nodes of the cluster."""
    switch: Switch | None = None
    resolver: Resolver | None = None
    """None if it has no name server."""
    daemons: tuple[Daemon, ...] = ()
    """In starting order within each stage."""
    chassis: Chassis | None = None
    """Set if the node takes part in a logical network."""
    speaker: Speaker | None = None
    """Its BGP configuration; the BGP daemon is one of ``daemons``."""
    obstacle: Obstacle | None = field(default=None, metadata={"unless None": True})
    """Why the pod that sends its probes does not run; None if it runs, or none is needed."""
    sends: Impairment | None = field(default=None, metadata={"unless None": True})
    """What its link to the nodes' segment does to packets that it sends; None for nothing."""
    receives: Impairment | None = field(default=None, metadata={"unless None": True})
    """The same for packets that it receives."""

    def address(self, segment: str = NODE_SEGMENT) -> str:
        """Its address on a segment, without prefix; if it has none there, its first interface's."""
        cards = [card for card in self.interfaces if card.segment == segment and card.addresses]
        return (cards or self.interfaces)[0].addresses[0].partition("/")[0]

    @property
    def card(self) -> Interface:
        """The interface on the nodes' network; if it has none there, its first one."""
        cards = [card for card in self.interfaces if card.segment == NODE_SEGMENT]
        return (cards or self.interfaces)[0]

    @property
    def wire(self) -> str:
        """The device by which that interface's frames leave, behind a virtual switch too."""
        return self.card.card or self.card.name

    def addressed(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Name of every device with addresses, and all of them with prefix length."""
        cards = [(card.name, card.held) for card in self.interfaces]
        made = [(device.name, device.addresses) for device in (self.bridge, self.tunnel) if device]
        return (*cards, *made)


@dataclass(frozen=True, slots=True)
class Gateway:
    """A virtual address that one of several machines holds: the gateway of a node's pods."""

    node: str
    address: str
    """With the prefix length of the pod range."""
    device: str
    """The interface that gets it, with the same name on every candidate."""
    router_id: int
    """VRRP virtual router id; unique on the segment."""
    candidates: tuple[str, ...]
    """Machines that may hold it, the most preferred first."""
    holder: str | None
    """The current holder, at first the first candidate; None if no machine holds it."""


@dataclass(frozen=True, slots=True)
class ServicesNode:
    """The machine in front of the cluster, and what it serves."""

    machine: str
    address: str
    api_port: int
    """Port on which it forwards to the API servers."""
    api_servers: tuple[str, ...]
    domain: str
    """Domain of the nodes' own names."""
    names: tuple[tuple[str, str], ...]
    """Fully qualified names with the final dot, and their addresses, for its DNS."""
    tls: bool = False
    """Whether the API servers are real: they have certificates, and do not report their clients."""


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
    """Set if OVN provides the pod network and its load balancers implement the Services."""
    hypervisors: tuple[MachineIntent, ...] = ()
    """The scenario's own hypervisors. With virtual machines these are real hypervisors, which the
    lab does not create.
    """

    services_node: ServicesNode | None = None
    cni: str | None = field(default=None, metadata={"unless None": True})
    """The network plug-in that makes the pod network; empty if it is unknown. None where the
    network is as the lab plans it: only then do machines have bridges, tunnels and routes to pods.
    """
    existing: Literal[True] | None = field(default=None, metadata={"unless None": True})
    """Whether the cluster is somebody else's; None for a lab's own."""
    disclaimer: str | None = field(default=None, metadata={"unless None": True})
    """Which nodes of somebody else's cluster are not what their operating system's name says."""

    def everything(self) -> tuple[MachineIntent, ...]:
        """Hypervisors, then the machines on them."""
        return (*self.hypervisors, *self.machines)

    def mtus(self) -> frozenset[int]:
        """The MTU of every device, in bytes: a packet that is too large for one teaches it."""
        devices = (
            (*machine.interfaces, machine.bridge, machine.tunnel, machine.switch, *machine.pods)
            for machine in self.everything()
        )
        return frozenset(device.mtu for each in devices for device in each if device)

    def hosts(self) -> tuple[tuple[str, str], ...]:
        """Machines and their hypervisors, in the machines' order."""
        return tuple(
            (machine.name, card.host)
            for machine in self.machines
            for card in machine.interfaces
            if card.host
        )

    def balancer(self) -> MachineIntent | None:
        """The machine that balances the API servers; None for a single control plane.

        It is the services node or, with several control planes and no services node, the router.
        """
        kinds = {machine.kind: machine for machine in self.machines}
        roles = [machine.kubelet.role for machine in self.machines if machine.kubelet]
        several = roles.count("control-plane") > 1
        return kinds.get("services") or (kinds.get("router") if several else None)

    def obstacles(self) -> dict[str, Obstacle]:
        """Why pods do not run, by pod, or by the node for which one sends.

        Empty without a real cluster.
        """
        places: list[MachineIntent | Pod] = [*self.machines]
        places += [pod for machine in self.machines for pod in machine.pods]
        return {place.name: place.obstacle for place in places if place.obstacle}

    def running(self) -> Intent:
        """The Intent without the pods that do not run, and without these as backends."""
        missing = self.obstacles()
        if not missing:
            return self

        def running(backends: tuple[Backend, ...]) -> tuple[Backend, ...]:
            return tuple(backend for backend in backends if backend.pod not in missing)

        def without(machine: MachineIntent) -> MachineIntent:
            translation = machine.translation
            return replace(
                machine,
                pods=tuple(pod for pod in machine.pods if pod.name not in missing),
                translation=translation
                and replace(
                    translation,
                    services=tuple(
                        replace(service, backends=running(service.backends))
                        for service in translation.services
                    ),
                ),
            )

        return replace(
            self,
            machines=tuple(map(without, self.machines)),
            headless=tuple(
                replace(service, backends=running(service.backends)) for service in self.headless
            ),
        )

    def control_plane(self) -> str:
        """The first control plane; empty if there is no real cluster, or it is not the lab's."""
        if self.existing:
            return ""
        planes = (
            machine.name
            for machine in self.machines
            if machine.kubelet and machine.kubelet.role == "control-plane"
        )
        return next(planes, "") if self.kubernetes else ""

    def places(self) -> dict[str, tuple[MachineIntent, Pod | None]]:
        """Every machine, and every pod with its machine, by name; without hypervisors."""
        places: dict[str, tuple[MachineIntent, Pod | None]] = {}
        for machine in self.machines:
            places[machine.name] = machine, None
            places |= {pod.name: (machine, pod) for pod in machine.pods}
        return places

    def machine(self, name: str) -> MachineIntent:
        """The machine or hypervisor of this name; KeyError if there is none."""
        for machine in self.everything():
            if machine.name == name:
                return machine
        raise KeyError(name)
