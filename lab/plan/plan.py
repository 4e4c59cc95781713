"""The Plan: every address, MAC, name and placement. Pure data, the same for the same input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Literal

from lab._dataclass import dataclass
from lab.scenario.terms import (
    Family,
    Impairment,
    Os,
    Policy,
    Protocol,
    ProxyMode,
    Role,
    ServicePort,
    Size,
)

if TYPE_CHECKING:
    from lab.scenario.scenario import Limit, Nic, StaticRoute  # agents on nodes have no pydantic
from collections.abc import Collection, Iterator
from itertools import chain

from lab.scenario.reserved import OUTSIDE_CIDR

FIRST_NODE_OFFSET = 10
"""Nodes start at network + 10, so that they are easy to tell from infrastructure."""
FIRST_SERVICE_OFFSET = 20
"""Services start at network + 20; +1 is the API server and +10 usually DNS."""

OUTSIDE_ROUTER = OUTSIDE_CIDR[1]
OUTSIDE_CLIENT = OUTSIDE_CIDR[10]


def mac(address: IPv4Address) -> str:
    """``0a:58`` and the four bytes of the address, as in the CNI bridge plugin."""
    return "0a:58:" + ":".join(f"{byte:02x}" for byte in address.packed)


def hand_out(
    network: IPv4Network, start: int, taken: Collection[IPv4Address]
) -> Iterator[IPv4Address]:
    """Yield the network's free host addresses from ``start`` on, then those before it."""
    last = network.num_addresses - 1
    for offset in chain(range(start, last), range(2, min(start, last))):
        address = network[offset]
        if address not in taken:
            yield address


def hand_out_subnets(
    network: IPv4Network, prefix: int, taken: Collection[IPv4Network]
) -> Iterator[IPv4Network]:
    """Yield the network's subnets of length ``prefix`` that overlap none of ``taken``."""
    for subnet in network.subnets(new_prefix=prefix):
        if not any(subnet.overlaps(other) for other in taken):
            yield subnet


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """One pod: ``probe`` pods send and answer probes, the ``dns`` pod serves names."""

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
    """Hypervisor to run on: one of the scenario, or one named in lab.toml."""
    nics: tuple[Nic, ...] = ()
    routes: tuple[StaticRoute, ...] = ()
    """Static routes from the scenario."""
    sends: Impairment | None = field(default=None, metadata={"unless None": True})
    """What its link does to packets that it sends; None if it does nothing."""
    receives: Impairment | None = field(default=None, metadata={"unless None": True})
    """The same for packets that it receives."""


@dataclass(frozen=True, slots=True)
class PlannedHypervisor:
    """One of the scenario's hypervisors."""

    name: str
    address: IPv4Address
    """Address on the network between hypervisors."""
    mac: str


@dataclass(frozen=True, slots=True)
class PlannedService:
    """One Service. Every probe pod has one of its own; shared ones have several backends."""

    name: str
    purpose: Literal["single", "shared", "dns", "special"]
    address: IPv4Address
    ports: tuple[ServicePort, ...]
    backends: tuple[str, ...]
    """Names of the pods behind it."""
    affinity: int | None = None
    """Seconds for which a client keeps its backend; None for no affinity."""
    inside: Policy = "cluster"
    outside: Policy = "cluster"
    health_port: int | None = None
    """The health check port on every node; None if there is none."""


@dataclass(frozen=True, slots=True)
class PlannedHeadless:
    """A Service without an address: its name resolves to its pods' addresses."""

    name: str
    backends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a whole lab."""

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
    proxy_mode: ProxyMode
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
    headless: tuple[PlannedHeadless, ...] = ()
    node_domain: str = ""
    """DNS domain of the nodes' names."""
    hypervisors: tuple[PlannedHypervisor, ...] = ()
    """Empty if the scenario has no hypervisors."""
    hypervisor_mtu: int = 0
    """Bytes of an IP packet between two hypervisors."""
    min_throughput: int | None = field(default=None, metadata={"unless None": True})
    """Bits a second that a TCP stream must carry; None where any rate will do."""

    def services_node(self) -> PlannedNode | None:
        """The machine in front of the cluster, with HAProxy and DNS; None if there is none."""
        return next((node for node in self.nodes if node.role == "services"), None)

    def control_planes(self) -> tuple[PlannedNode, ...]:
        """The nodes with an API server."""
        return tuple(node for node in self.nodes if node.role == "control-plane")

    def pods(self) -> tuple[PlannedPod, ...]:
        """Every pod, node by node."""
        return tuple(pod for node in self.nodes for pod in node.pods)

    def node(self, name: str) -> PlannedNode:
        """The node of this name; KeyError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)
