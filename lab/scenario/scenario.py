"""What the user wrote, checked and frozen: the first thing in the flow, and pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Literal

Os = Literal["linux", "windows"]
Role = Literal["control-plane", "worker"]
Protocol = Literal["tcp", "udp"]
Size = Literal["small", "large"]
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
]
Refusal = Literal["timeout", "refused", "no-route", "no-such-name"]

FAMILIES: tuple[Family, ...] = (
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


@dataclass(frozen=True, slots=True)
class Network:
    """The segment the nodes stand on."""

    cidr: IPv4Network
    mtu: int
    """Bytes of an IP packet that fit on the segment."""


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
    hypervisor: str | None
    line: int
    """Line of the entry in the scenario file, counted from 1."""


@dataclass(frozen=True, slots=True)
class SharedService:
    """A Service with several backends, each of which must answer within 64 tries."""

    name: str
    backends: int


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
    target_os: Os | None = None
    relation: Literal["self", "same-node", "other-node", "outside"] | None = None
    """Where the machine that answers stands, seen from the source."""
    entry: Literal["own", "other"] | None = None
    """For NodePorts: whether the node asked is the source's own."""
    name_form: Literal["short", "partial", "full"] | None = None
    """For DNS: ``svc``, ``svc.namespace``, or the fully qualified name."""


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

    def real_machine_keys(self) -> tuple[str, ...]:
        """Keys of nodes that are written in the file and mean something to real machines alone."""
        written = {
            "image": any(group.image for group in self.nodes),
            "memory": any(group.memory_mib for group in self.nodes),
            "vcpus": any(group.vcpus for group in self.nodes),
            "disk": any(group.disk_gib for group in self.nodes),
            "nics": any(group.nics for group in self.nodes),
            "hypervisor": any(group.hypervisor for group in self.nodes),
        }
        return tuple(key for key, there in written.items() if there)
