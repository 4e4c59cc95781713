"""What the user wrote, checked and frozen: the first thing in the flow, and pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Literal

Os = Literal["linux", "windows"]
Role = Literal["control-plane", "worker", "services"]
"""``services``: no node of the cluster, but the machine in front of it: HAProxy, DNS."""
Protocol = Literal["tcp", "udp"]
ProxyMode = Literal["nftables", "iptables"]
Size = Literal["small", "large"]
PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp")
Policy = Literal["cluster", "local"]
"""Which backends a Service's packets may go to: any, or those on the node that they come to."""
Family = Literal[
    "pod-pod",
    "pod-service",
    "hairpin",
    "node-service",
    "nodeport",
    "node-pod",
    "pod-node",
    "pod-external",
    "dns",
    "affinity",
    "nodeport-local",
    "cluster-ip-local",
    "ports",
    "no-endpoints",
    "headless",
    "health-check",
    "node-names",
    "api",
]
Refusal = Literal["timeout", "refused", "no-route", "no-such-name", "several-backends"]

USUAL_FAMILIES: tuple[Family, ...] = (
    "pod-pod",
    "pod-service",
    "hairpin",
    "node-service",
    "nodeport",
    "node-pod",
    "pod-node",
    "pod-external",
    "dns",
)
"""Those that every lab has cells of."""
FAMILIES: tuple[Family, ...] = (
    *USUAL_FAMILIES,
    "affinity",
    "nodeport-local",
    "cluster-ip-local",
    "ports",
    "no-endpoints",
    "headless",
    "health-check",
    "node-names",
    "api",
)
"""All of them, in their order; those after the usual are for special Services of a kind, and the
last two for a services node."""

OF_SERVICES_NODE: frozenset[Family] = frozenset({"node-names", "api"})
"""Families that only a lab with a services node has."""


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """The cluster's version and address ranges."""

    version: str
    """Minor version of the control plane, ``"1.36"``."""
    pod_cidr: IPv4Network
    node_prefix: int
    """Prefix length of each node's own part of ``pod_cidr``."""
    service_cidr: IPv4Network
    dns_address: IPv4Address
    domain: str
    proxy_mode: ProxyMode
    """kube-proxy's on Linux nodes."""


@dataclass(frozen=True, slots=True)
class Network:
    """The segment the nodes stand on."""

    cidr: IPv4Network
    mtu: int
    """Bytes of an IP packet that fit on the segment."""
    router: IPv4Address
    """The nodes' default gateway."""
    domain: str
    """Of the nodes' own names, which a services node answers."""


@dataclass(frozen=True, slots=True)
class Hypervisors:
    """What the nodes stand on, and the network between, which carries the node segment."""

    count: int
    mtu: int
    """Bytes of an IP packet that fit between two of them."""


@dataclass(frozen=True, slots=True)
class TopologyChoice:
    """Which topology, and its own parameters as written; the topology reads them."""

    kind: str
    parameters: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Nic:
    """One further network card of a machine (real machines only)."""

    network: str
    address: IPv4Address | None
    mac: str | None


@dataclass(frozen=True, slots=True)
class StaticRoute:
    """A route that each node of a group has beside its topology's own, or instead of one."""

    to: IPv4Network
    via: IPv4Address
    """On the nodes' segment."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """One entry of ``nodes``: a node, or ``count`` like nodes named NAME1, NAME2, ..."""

    name: str
    os: Os
    role: Role
    count: int
    kubelet: bool
    """False for a control-plane node that runs no kubelet, and so no pods."""
    pods: int | None
    """Pods on each node; None for the scenario's ``pods_per_node``."""
    address: IPv4Address | None
    pod_cidr: IPv4Network | None
    version: str | None
    """Minor version of the kubelet; None for the cluster's."""
    image: str | None
    memory_mib: int | None
    vcpus: int | None
    disk_gib: int | None
    nics: tuple[Nic, ...]
    routes: tuple[StaticRoute, ...]
    hypervisor: str | None
    line: int
    """Line of the entry in the scenario file, counted from 1."""


@dataclass(frozen=True, slots=True)
class ServicePort:
    """One port of a Service, for one transport protocol or for both alike."""

    name: str
    """Empty for the only port of a usual Service."""
    protocols: tuple[Protocol, ...]
    port: int
    target_port: int
    """Of the pods behind it."""
    node_port: int | None
    """On every node; None where it has none."""


@dataclass(frozen=True, slots=True)
class SharedService:
    """A Service with several backends, each of which must answer within 64 tries."""

    name: str
    backends: int


@dataclass(frozen=True, slots=True)
class SpecialService:
    """A Service that differs from the usual ones in something that Kubernetes offers."""

    name: str
    backends: int
    """How many pods stand behind it; the plan chooses them, but for those in ``pods``."""
    pods: tuple[str, ...]
    """The pods behind it where they are named: as many as ``backends``."""
    ports: tuple[ServicePort, ...]
    """Empty for the usual one. A node port stands where the scenario gives its number."""
    node_port: bool
    """Whether each port has one on every node, with a number of the plan's where none is given."""
    headless: bool
    """Whether it has no address, and its name stands for its pods' addresses."""
    affinity: int | None
    """Seconds for which a client keeps its backend; None for no affinity."""
    inside: Policy
    """For packets to its address (internalTrafficPolicy)."""
    outside: Policy
    """For packets to its ports on nodes (externalTrafficPolicy)."""
    health_check: bool
    """Whether each node says on a port of its own how many backends it has."""


@dataclass(frozen=True, slots=True)
class Match:
    """Which cells a rule speaks of: every facet that is not None must hold.

    ``source`` and ``target`` are shell patterns on endpoint names (``win*``).
    """

    families: frozenset[Family] | None = None
    protocol: Protocol | None = None
    size: Size | None = None
    source: str | None = None
    source_kind: Literal["pod", "node", "client"] | None = None
    source_os: Os | None = None
    target: str | None = None
    target_kind: Literal["pod", "service", "nodeport", "node", "client", "name"] | None = None
    target_os: Os | None = None
    relation: Literal["self", "same-node", "other-node", "outside"] | None = None
    """Where the machine that answers stands, seen from the source."""
    entry: Literal["own", "other"] | None = None
    """For NodePorts: whether the node asked is the source's own."""
    entry_os: Os | None = None
    """For NodePorts: of the node asked."""
    entry_node: str | None = None
    """For NodePorts: name of the node asked, a shell pattern."""
    name_form: Literal["short", "partial", "full"] | None = None
    """For DNS: ``svc``, ``svc.namespace``, or the fully qualified name."""
    refusal: Refusal | None = None
    """Those that Kubernetes itself has fail, and how."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Cells that are expected not to work, how they fail, why, and who says so."""

    id: str
    when: Match
    refusal: Refusal
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class MatrixChoice:
    """Which part of the matrix the scenario asks for."""

    families: tuple[Family, ...]
    protocols: tuple[Protocol, ...]
    sizes: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario file."""

    name: str
    summary: str
    kubernetes: Kubernetes
    network: Network
    topology: TopologyChoice
    pods_per_node: int
    nodes: tuple[NodeGroup, ...]
    node_ports: tuple[int, int]
    """First and last port of the NodePort range, both usable."""
    shared_services: tuple[SharedService, ...]
    matrix: MatrixChoice
    exceptions: tuple[Limit, ...]
    """What the author of the scenario expects not to work; ids ``<scenario>-exception-N``."""
    path: str
    special_services: tuple[SpecialService, ...] = ()
    hypervisors: Hypervisors | None = None
    """None where nobody says what the nodes stand on."""

    def real_machine_keys(self) -> tuple[str, ...]:
        """Keys of nodes that are written in the file and mean something to real machines alone."""
        written = {
            "image": any(group.image for group in self.nodes),
            "memory": any(group.memory_mib for group in self.nodes),
            "vcpus": any(group.vcpus for group in self.nodes),
            "disk": any(group.disk_gib for group in self.nodes),
            "nics": any(group.nics for group in self.nodes),
            "hypervisor": not self.hypervisors and any(group.hypervisor for group in self.nodes),
        }
        return tuple(key for key, there in written.items() if there)
