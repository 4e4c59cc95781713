"""The scenario that the user wrote, as checked and frozen models. Pure data.

The models check every value by itself; :mod:`lab.scenario.rules` checks values that depend on each
other. While the rest of a file is checked, the first example of a field replaces a missing or
broken value, so every required field has an example.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
)
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from lab.scenario.assertion import Assertion
from lab.scenario.families import families_of, family_terms, services_node_families
from lab.scenario.reserved import router_address
from lab.scenario.special import SpecialService
from lab.scenario.terms import (
    PROTOCOLS,
    Family,
    Impairment,
    Os,
    Protocol,
    ProxyMode,
    Refusal,
    Role,
    Size,
)
from lab.scenario.values import (
    FILE,
    MAX_MTU,
    Address,
    Choices,
    Cidr,
    Delay,
    Disk,
    Domain,
    Items,
    Label,
    Loss,
    Mac,
    Memory,
    Ports,
    Rate,
    Section,
    Sentence,
    SomeItems,
    SortedChoices,
    Unwritten,
    Version,
)

NOWHERE = IPv4Address(0)
MAX_NODES = 1000
MAX_PODS = 250
"""Pods on one node; a bridge has 1,023 ports, and Kubernetes is tested with up to 110 per node."""
MAX_BACKENDS = 4
DEFAULT_DOMAIN = "lab.internal"
"""The top-level domain is for private use (ICANN, 2024)."""
MIN_MTU = 576
"""The packet size that every IPv4 host must accept (RFC 791)."""
MAX_HYPERVISORS = 64
"""A sensible limit for lab.toml; their network has room for more."""
CARRIED = 100
"""Bytes of overhead of the tunnels between hypervisors and of the pods' overlay."""


class _KnownFamily:
    """The name of a family, checked against the plug-ins when a scenario is read."""

    def __get_pydantic_core_schema__(
        self, _source: object, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            self._check, serialization=core_schema.to_string_ser_schema()
        )

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> dict[str, object]:
        return {"enum": [*family_terms()], "type": "string"}

    def _check(self, value: Any, info: ValidationInfo) -> Any:
        if info.context == FILE and value not in [*family_terms()]:
            raise PydanticKnownError("literal_error", {"expected": ", ".join(family_terms())})
        return value


FamilyName = Annotated[Family, _KnownFamily()]


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
    """The network segment of the nodes."""

    cidr: Cidr = Field(description="The range of node addresses.", examples=["10.9.176.0/24"])
    mtu: int = Field(
        default=1500,
        ge=MIN_MTU,
        le=MAX_MTU,
        description="Bytes of an IP packet that fit on the segment; fewer where the network "
        "between hypervisors carries it.",
    )
    router: Address = Field(
        # pydantic before 2.14 calls it without a valid range, which is an error of its own
        default_factory=lambda read: router_address(read["cidr"]) if "cidr" in read else NOWHERE,
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


class TopologyChoice(Section):
    """How pod traffic crosses from node to node, with the topology's own parameters."""

    model_config = ConfigDict(extra="allow")

    kind: str = Field(description="Name of the topology.", examples=["overlay"])

    @property
    def parameters(self) -> Mapping[str, object]:
        """The topology's own parameters, as written; the topology validates them."""
        return self.model_extra or {}


class Nic(Section):
    """One further network card, on real machines only."""

    network: Label = Field(description="Name of the network it is plugged into.")
    address: Address | None = Field(
        default=None,
        description="Its address; left out, the network gives one.",
        examples=["172.16.126.9"],
    )
    mac: Mac | None = Field(
        default=None, description="Its MAC address; left out, the plan chooses one."
    )


class StaticRoute(Section):
    """A static route of a node, beside those that its topology gives it, or instead of one."""

    to: Cidr = Field(description="Destination range.", examples=["10.240.0.4/32"])
    via: Address = Field(
        description="Next hop: an address on the nodes' segment.", examples=["10.240.0.1"]
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
        description="Role of the node. services: not a node of the cluster, but the machine "
        "in front of it, with HAProxy before the API servers and DNS for the nodes' names.",
    )
    count: int = Field(default=1, ge=1, le=MAX_NODES, description="How many such nodes there are.")
    kubelet: bool = Field(
        default=True,
        validate_default=True,
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
        description="The node's address, for a single node; left out, the plan chooses one.",
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
    memory_mib: Memory | None = Field(
        default=None, alias="memory", description="Memory of a real machine."
    )
    vcpus: int | None = Field(
        default=None, ge=1, le=256, description="Processors of a real machine."
    )
    disk_gib: Disk | None = Field(default=None, alias="disk", description="Disk of a real machine.")
    nics: Items[Nic] = Field(default=(), description="Further network cards of a real machine.")
    routes: Items[StaticRoute] = Field(
        default=(),
        description="Static routes of each of its nodes, where the topology has such.",
    )
    hypervisor: str | None = Field(
        default=None,
        description="Hypervisor of a real machine: its name in lab.toml, or hypervisor-01 and so "
        "on if the scenario defines hypervisors.",
    )
    line: Unwritten[int] = 0
    """Line of the entry in the scenario file, counted from 1."""

    @field_validator("kubelet")
    @classmethod
    def _without_services_node(cls, kubelet: bool, read: ValidationInfo) -> bool:
        """A services node has no kubelet."""
        return kubelet and read.data.get("role") != "services"


class Link(Section):
    """What the links of nodes to their segment do to packets.

    At least one of delay, loss and rate is given.
    """

    node: str = Field(
        description="Shell pattern on the names of the nodes, each of which has one link.",
        examples=["worker*"],
    )
    delay_ms: Delay | None = Field(
        default=None,
        alias="delay",
        description="Time that each packet takes longer; the kernel must have netem.",
    )
    loss: Loss | None = Field(
        default=None, description="Share of the packets that are lost, at random."
    )
    rate: Rate | None = Field(default=None, description="What the link carries, so many a second.")
    direction: Literal["both", "sends", "receives"] = Field(
        default="both",
        description="Which packets: all, only those that the node sends, or that it receives.",
    )

    @property
    def impairment(self) -> Impairment:
        """What it does to the packets of each of its directions."""
        return Impairment(self.delay_ms or 0, self.loss or 0.0, self.rate or 0)


class SharedService(Section):
    """A Service with several backends; each must answer at least once in 64 tries."""

    name: Label = Field(description="Name of the Service.", examples=["everyone"])
    backends: int = Field(ge=2, description="How many pods back it.", examples=[4])


class Services(Section):
    """Services beyond the one that every probe pod has."""

    node_ports: Ports = Field(
        default=(30000, 32767), description="Range of NodePorts, FIRST-LAST, both usable."
    )
    shared: Items[SharedService] = Field(default=(), description="Services with several backends.")
    special: Items[SpecialService] = Field(
        default=(), description="Services with special properties."
    )


class MatrixChoice(Section):
    """Which part of the connectivity matrix is asked for; left out, all of it."""

    families: Choices[FamilyName] | None = Field(
        default=None,
        description="Families of cells; node-names and api need a services node. Left out, all "
        "that the lab has cells of.",
        examples=[["pod-pod", "dns"]],
    )
    protocols: Choices[Protocol] = Field(default=PROTOCOLS, description="Transport protocols.")
    sizes: Choices[Size] = Field(
        default=("small", "large"),
        description="Payload sizes: small, and larger than the path's MTU.",
    )
    min_throughput: Rate | None = Field(
        default=None,
        description="Minimum rate of a TCP stream in the family throughput; left out, any rate "
        "passes. Of a link with a rate of its own three quarters of it are enough, and through "
        "one that loses packets any rate passes. The family runs if families lists it, or with "
        "-m throughput.",
    )


class Match(Section):
    """Which cells are meant: every facet given must hold."""

    families: SortedChoices[FamilyName] | None = Field(
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
        default=None, description="Kind of the source."
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
        default=None, description="Kind of the target."
    )
    target_os: Os | None = Field(
        default=None, description="Operating system of the machine that answers."
    )
    relation: Literal["self", "same-node", "other-node", "outside"] | None = Field(
        default=None, description="Location of the answering machine relative to the source."
    )
    entry: Literal["own", "other"] | None = Field(
        default=None, description="For NodePorts: whether the node asked is the source's own."
    )
    entry_os: Unwritten[Os | None] = None
    """For NodePorts: operating system of the node probed."""
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
        default=None,
        description="Only cells that Kubernetes itself makes fail, in this way.",
    )


class Limit(Section):
    """Cells that are expected not to work: they are reported as known limits while they fail."""

    id: Unwritten[str] = ""
    """``<scenario>-exception-N``, or the id of a topology's limit."""
    when: Match = Field(description="Which cells.", examples=[{"source": "win*"}])
    refusal: Refusal = Field(alias="fails", description="How they fail.", examples=["timeout"])
    reason: Sentence = Field(
        description="Why, in one sentence.", examples=["the router drops fragments"]
    )
    source: Unwritten[str] = ""
    """Where it is documented: for an exception, file and line of the scenario."""
    exception: Unwritten[int] = 0
    """Its number among the scenario's exceptions, from 1; 0 for a topology's limit."""


class Scenario(Section):
    """A lab as its author writes it: a cluster, its nodes, how they are joined, what is asked."""

    name: Label = Field(description="Name of the scenario, and of its lab unless --name is given.")
    summary: Sentence = Field(description="What the scenario is, in one line.")
    kubernetes: Kubernetes = Field(description="The cluster's version and address ranges.")
    network: Network = Field(description="The network segment of the nodes.")
    hypervisors: Hypervisors | None = Field(
        default=None,
        description="Hypervisors of the nodes; left out, lab.toml decides.",
    )
    topology: TopologyChoice = Field(description="How pod traffic gets from node to node.")
    pods_per_node: int = Field(
        default=2, ge=0, le=MAX_PODS, description="Probe pods on each node that runs a kubelet."
    )
    nodes: SomeItems[NodeGroup] = Field(
        description="The nodes, alone or in groups.",
        examples=[[{"name": "master", "os": "linux", "role": "control-plane"}]],
    )
    links: Items[Link] = Field(
        default=(), description="Links of nodes that are slow or lose packets."
    )
    services: Services = Field(
        default_factory=Services, description="Services besides the usual ones."
    )
    matrix: MatrixChoice = Field(
        default_factory=MatrixChoice, description="Which part of the matrix is tested."
    )
    exceptions: Items[Limit] = Field(
        default=(), description="What is expected not to work in this lab, and why."
    )
    assertions: Items[Assertion] = Field(
        default=(),
        description="What commands on nodes and in pods must answer, beside the matrix.",
    )

    @property
    def families(self) -> tuple[Family, ...]:
        """The requested families of cells; by default, all that the lab has cells of."""
        if self.matrix.families is not None:
            return self.matrix.families
        with_node = any(group.role == "services" for group in self.nodes)
        of_node = (
            name
            for name in (services_node_families() if with_node else ())
            if "tcp" in self.matrix.protocols or not family_terms()[name].tcp_only
        )
        return (*families_of(self.services.special), *of_node)

    def real_machine_keys(self) -> tuple[str, ...]:
        """Keys of nodes in the file that only apply to real machines."""
        written = {
            "image": any(group.image for group in self.nodes),
            "memory": any(group.memory_mib for group in self.nodes),
            "vcpus": any(group.vcpus for group in self.nodes),
            "disk": any(group.disk_gib for group in self.nodes),
            "nics": any(group.nics for group in self.nodes),
            "hypervisor": not self.hypervisors and any(group.hypervisor for group in self.nodes),
        }
        return tuple(key for key, is_written in written.items() if is_written)


def node_names(group: NodeGroup) -> tuple[str, ...]:
    """NAME for a single node, NAME1 to NAMEn for a count above 1."""
    if group.count == 1:
        return (group.name,)
    return tuple(f"{group.name}{number}" for number in range(1, group.count + 1))


def pods_per_node(scenario: Scenario, group: NodeGroup) -> int:
    """Probe pods on each node of the group."""
    if not group.kubelet:
        return 0
    return scenario.pods_per_node if group.pods is None else group.pods


def pod_names(scenario: Scenario, group: NodeGroup) -> Iterator[str]:
    """NODE-p1 to NODE-pN, node by node."""
    for node in node_names(group):
        for number in range(1, pods_per_node(scenario, group) + 1):
            yield f"{node}-p{number}"


def impairment_of(
    scenario: Scenario, node: str, direction: Literal["sends", "receives"]
) -> Impairment | None:
    """What the node's link does to packets of one direction; None if it does nothing."""
    for link in scenario.links:
        if link.direction in {"both", direction} and fnmatchcase(node, link.node):
            return link.impairment
    return None


def service_name(pod: str) -> str:
    """The Service of one probe pod."""
    return f"to-{pod}"


def hypervisor_name(number: int) -> str:
    """The name of a scenario's hypervisor; numbers start at 1."""
    return f"hypervisor-{number:02}"


def hypervisor_names(scenario: Scenario) -> tuple[str, ...]:
    """Names of the scenario's hypervisors, in order."""
    count = scenario.hypervisors.count if scenario.hypervisors else 0
    return tuple(hypervisor_name(number) for number in range(1, count + 1))


def probe_pods(scenario: Scenario) -> int:
    """The number of probe pods in the lab."""
    return sum(group.count * pods_per_node(scenario, group) for group in scenario.nodes)
