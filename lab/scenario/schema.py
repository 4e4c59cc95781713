"""The shape of a scenario file, as pydantic models: the edge between YAML and the product.

The models check every value on its own; what values mean together is checked in
:mod:`lab.scenario.rules`. The first example of a field stands in for a missing or broken value
while the rest of the file is checked, so every required field has one.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from lab.scenario.scenario import Family, Os, Protocol, ProxyMode, Refusal, Role, Size
from lab.scenario.section import (
    Address,
    Cidr,
    Disk,
    Domain,
    Label,
    Mac,
    Memory,
    Section,
    Sentence,
    Version,
)
from lab.scenario.service_schema import Services

MAX_NODES = 1000
MAX_PODS = 250
"""Pods on one node; a bridge carries 1,023 ports, and Kubernetes is tested to 110 a node."""
MAX_BACKENDS = 4
DEFAULT_DOMAIN = "lab.internal"
"""For private use (ICANN, 2024)."""
MIN_MTU = 576
"""What every IPv4 host must accept (RFC 791)."""
MAX_HYPERVISORS = 64
"""As many as lab.toml may sensibly name; their network has room for more."""
CARRIED = 100
"""Bytes that the network between hypervisors, and the pods' own overlay, take of a packet."""
MAX_MTU = 9216
"""The largest frame that network cards and switches commonly carry."""


class Kubernetes(Section):
    """The cluster's version and address ranges."""

    version: Version = Field(description="Minor version of the control plane, in quotes.")
    pod_cidr: Cidr = Field(
        description="The range that every node's pod range is taken from.",
        examples=["10.244.0.0/16"],
    )
    node_prefix: int = Field(
        ge=8,
        le=29,
        description="Prefix length of each node's own part of pod_cidr. The network address and "
        "the three after it, and the last one, are kept free of pods.",
        examples=[24],
    )
    service_cidr: Cidr = Field(
        description="The range of Service addresses; kube-apiserver accepts none wider than /12.",
        examples=["10.96.0.0/12"],
    )
    dns_address: Address = Field(
        description="Address of the cluster's DNS Service, within service_cidr.",
        examples=["10.96.0.10"],
    )
    domain: Domain = Field(default="cluster.local", description="The cluster's DNS domain.")
    proxy_mode: ProxyMode = Field(
        default="nftables",
        description="kube-proxy's mode on the Linux nodes of a real cluster. Network namespaces "
        "have the lab's own rules, by nftables.",
    )


class Network(Section):
    """The segment the nodes stand on."""

    cidr: Cidr = Field(description="The range of node addresses.", examples=["10.9.176.0/24"])
    mtu: int = Field(
        default=1500,
        ge=MIN_MTU,
        le=MAX_MTU,
        description="Bytes of an IP packet that fit on the segment; fewer where the network "
        "between hypervisors carries it.",
    )
    router: Address | None = Field(
        default=None,
        description="Address of the router; left out, the first of the range.",
        examples=["10.0.0.254"],
    )
    domain: Domain = Field(
        default=DEFAULT_DOMAIN,
        description="DNS domain of the nodes' own names, which a services node answers.",
        examples=["k8scluster.kubeinit.local"],
    )


class Hypervisors(Section):
    """What the nodes stand on: hypervisor-01, hypervisor-02 and so on, and their network."""

    count: int = Field(ge=1, le=MAX_HYPERVISORS, description="How many there are.", examples=[2])
    mtu: int = Field(
        default=1500,
        ge=MIN_MTU + CARRIED,
        le=MAX_MTU,
        description="Bytes of an IP packet that fit between two of them.",
    )


class Topology(Section):
    """How pod traffic crosses from node to node, with the topology's own parameters."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    kind: str = Field(description="Name of the topology.", examples=["overlay"])


class Nic(Section):
    """One further network card, on real machines only."""

    network: Label = Field(description="Name of the network it is plugged into.")
    address: Address | None = Field(
        default=None,
        description="Its address; left out, the network gives one.",
        examples=["172.16.126.9"],
    )
    mac: Mac | None = Field(
        default=None, description="Its MAC address; left out, the plan gives one."
    )


class StaticRoute(Section):
    """A static route of a node, beside those that its topology gives it, or instead of one."""

    to: Cidr = Field(description="The range that it leads to.", examples=["10.240.0.4/32"])
    via: Address = Field(
        description="Where it leads: an address on the nodes' segment.", examples=["10.240.0.1"]
    )


class NodeGroup(Section):
    """One node, or ``count`` like nodes named NAME1, NAME2 and so on."""

    name: Label = Field(
        description="Name of the node; with a count above 1, what its nodes' names begin with. "
        "At most 15 characters on Windows (NetBIOS).",
        examples=["worker"],
    )
    os: Os = Field(description="Operating system.", examples=["linux"])
    role: Role = Field(
        default="worker",
        description="Part that the node plays. services: no node of the cluster, but the machine "
        "in front of it, with HAProxy before the API servers and DNS for the nodes' names.",
    )
    count: int = Field(default=1, ge=1, le=MAX_NODES, description="How many such nodes there are.")
    kubelet: bool = Field(
        default=True,
        description="false for a control-plane node that runs no kubelet, and so no pods.",
    )
    pods: int | None = Field(
        default=None,
        ge=0,
        le=MAX_PODS,
        description="Probe pods on each node; left out, pods_per_node of the scenario.",
    )
    address: Address | None = Field(
        default=None,
        description="The node's address, for a single node; left out, the plan gives one.",
        examples=["10.9.176.94"],
    )
    pod_cidr: Cidr | None = Field(
        default=None,
        description="The node's part of the pod range, for a single node; left out, the plan "
        "gives one.",
        examples=["10.244.3.0/24"],
    )
    version: Version | None = Field(
        default=None, description="Minor version of the kubelet; left out, the cluster's."
    )
    image: Label | None = Field(
        default=None,
        description="Image recipe of a real machine; left out, the default of its system.",
        examples=["windows-server-2022"],
    )
    memory: Memory | None = Field(default=None, description="Memory of a real machine.")
    vcpus: int | None = Field(
        default=None, ge=1, le=256, description="Processors of a real machine."
    )
    disk: Disk | None = Field(default=None, description="Disk of a real machine.")
    nics: list[Nic] = Field(default=[], description="Further network cards of a real machine.")
    routes: list[StaticRoute] = Field(
        default=[],
        description="Static routes of each of its nodes, where the topology has such.",
    )
    hypervisor: str | None = Field(
        default=None,
        description="Hypervisor to stand on: its name in lab.toml, of a real machine; or, where "
        "the scenario has hypervisors itself, hypervisor-01 and so on.",
    )


class Matrix(Section):
    """Which part of the connectivity matrix is asked for; left out, all of it."""

    families: Annotated[list[Family], Field(min_length=1)] | None = Field(
        default=None,
        description="Families of cells; node-names and api need a services node. Left out, all "
        "that the lab has cells of.",
        examples=[["pod-pod", "dns"]],
    )
    protocols: Annotated[list[Protocol], Field(min_length=1)] = Field(
        default=["tcp", "udp"], description="Transport protocols."
    )
    sizes: Annotated[list[Size], Field(min_length=1)] = Field(
        default=["small", "large"],
        description="Payload sizes: small, and larger than the path's MTU.",
    )


class When(Section):
    """Which cells are meant: every facet given must hold."""

    families: Annotated[list[Family], Field(min_length=1)] | None = Field(
        default=None, description="Families of cells."
    )
    protocol: Protocol | None = Field(default=None, description="Transport protocol.")
    size: Size | None = Field(default=None, description="Payload size.")
    source: str | None = Field(
        default=None,
        description="Shell pattern on the name of the source: NODE, NODE-pN or client.",
        examples=["win*"],
    )
    source_kind: Literal["pod", "node", "client"] | None = Field(
        default=None, description="What kind of thing asks."
    )
    source_os: Os | None = Field(
        default=None, description="Operating system of the source's machine."
    )
    target: str | None = Field(
        default=None,
        description="Shell pattern on the name of the target: NODE, NODE-pN, to-POD (a Service), "
        "NODE:to-POD (a NodePort) or client.",
        examples=["win1-p1"],
    )
    target_kind: Literal["pod", "service", "nodeport", "node", "client", "name"] | None = Field(
        default=None, description="What kind of thing is asked."
    )
    target_os: Os | None = Field(
        default=None, description="Operating system of the machine that answers."
    )
    relation: Literal["self", "same-node", "other-node", "outside"] | None = Field(
        default=None, description="Where the machine that answers stands, seen from the source."
    )
    entry: Literal["own", "other"] | None = Field(
        default=None, description="For NodePorts: whether the node asked is the source's own."
    )
    entry_node: str | None = Field(
        default=None,
        description="For NodePorts: shell pattern on the name of the node asked.",
        examples=["win*"],
    )
    name_form: Literal["short", "partial", "full"] | None = Field(
        default=None,
        description="For DNS: SERVICE, SERVICE.NAMESPACE, or the fully qualified name.",
    )
    refusal: Refusal | None = Field(
        default=None, description="Those that Kubernetes itself has fail, and how."
    )


class Expected(Section):
    """Cells that are expected not to work: they are reported as known limits while they fail."""

    when: When = Field(description="Which cells.", examples=[{"source": "win*"}])
    fails: Refusal = Field(description="How they fail.", examples=["timeout"])
    reason: Sentence = Field(
        description="Why, in one sentence.", examples=["the router drops fragments"]
    )


class ScenarioFile(Section):
    """A lab as its author writes it: a cluster, its nodes, how they are joined, what is asked."""

    name: Label = Field(description="Name of the scenario, and of its lab unless --name is given.")
    summary: Sentence = Field(description="What the scenario is, in one line.")
    kubernetes: Kubernetes = Field(description="The cluster's version and address ranges.")
    network: Network = Field(description="The segment the nodes stand on.")
    hypervisors: Hypervisors | None = Field(
        default=None,
        description="What the nodes stand on; left out, that is nobody's business but lab.toml's.",
    )
    topology: Topology = Field(description="How pod traffic crosses from node to node.")
    pods_per_node: int = Field(
        default=2, ge=0, le=MAX_PODS, description="Probe pods on each node that runs a kubelet."
    )
    nodes: Annotated[list[NodeGroup], Field(min_length=1)] = Field(
        description="The nodes, alone or in groups.",
        examples=[[{"name": "master", "os": "linux", "role": "control-plane"}]],
    )
    services: Services = Field(
        default_factory=Services, description="Services beyond the usual ones."
    )
    matrix: Matrix = Field(
        default_factory=Matrix, description="Which part of the matrix is asked for."
    )
    exceptions: list[Expected] = Field(
        default=[], description="What is expected not to work in this lab, and why."
    )
