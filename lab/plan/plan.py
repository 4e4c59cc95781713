"""Every decision made: addresses, MACs, names and placement. Pure data, same input, same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Literal

from lab.scenario.scenario import Family, Limit, Nic, Os, Protocol, Role, Size


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """One pod: ``probe`` pods send and answer in the matrix, the ``dns`` pod serves names."""

    name: str
    node: str
    role: Literal["probe", "dns"]
    address: IPv4Address
    mac: str


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One node of the cluster."""

    name: str
    os: Os
    role: Role
    address: IPv4Address
    mac: str
    pod_cidr: IPv4Network | None
    """None for a node without a kubelet."""
    pods: tuple[PlannedPod, ...]
    version: str
    image: str
    memory_mib: int
    vcpus: int
    disk_gib: int
    hypervisor: str | None
    nics: tuple[Nic, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedService:
    """One Service. Every probe pod has one of its own; shared ones have several backends."""

    name: str
    purpose: Literal["single", "shared", "dns"]
    address: IPv4Address
    port: int
    target_port: int
    node_port: int | None
    backends: tuple[str, ...]
    """Names of the pods behind it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole lab, decided."""

    scenario: str
    summary: str
    topology: str
    parameters: Mapping[str, object]
    """The topology's own parameters as written in the scenario."""
    version: str
    domain: str
    pod_cidr: IPv4Network
    service_cidr: IPv4Network
    dns_address: IPv4Address
    node_cidr: IPv4Network
    node_mtu: int
    router_address: IPv4Address
    """The router on the node segment: the nodes' default gateway."""
    outside_cidr: IPv4Network
    outside_router_address: IPv4Address
    client_address: IPv4Address
    """The client (and external host) on the outside segment."""
    nodes: tuple[PlannedNode, ...]
    services: tuple[PlannedService, ...]
    families: tuple[Family, ...]
    protocols: tuple[Protocol, ...]
    sizes: tuple[Size, ...]
    exceptions: tuple[Limit, ...]

    def pods(self) -> tuple[PlannedPod, ...]:
        """Every pod, node by node."""
        return tuple(pod for node in self.nodes for pod in node.pods)

    def probe_pods(self) -> tuple[PlannedPod, ...]:
        """The pods that take part in the matrix."""
        return tuple(pod for pod in self.pods() if pod.role == "probe")

    def node(self, name: str) -> PlannedNode:
        """The node of that name; KeyError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)
