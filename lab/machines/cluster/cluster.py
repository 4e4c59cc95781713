"""One cluster as planned: its nodes, their machines' traits, and the network below it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from lab._errors import PreflightError
from lab.machines.bundle.manifest import Manifest
from lab.scenario.terms import Os, ProxyMode, Role
from lab.topology.intent import Intent, MachineIntent
from lab.topology.services_node import NAME_SERVER


@dataclass(frozen=True, slots=True)
class HostTraits:
    """How a Linux node differs from a whole computer; the defaults describe a virtual machine.

    They are the same for all nodes of a cluster.
    """

    shared_kernel: bool = False
    """Whether the node runs on the host's kernel. The kernel's modules, swap and the settings that
    all network namespaces share are then left alone.
    """
    cgroup_v1: bool = False
    """Whether the node has control groups v1, which a kubelet refuses by default."""
    can_lower_oom_score: bool = True
    """Whether a process may make itself less likely to be killed when memory runs out
    (``CAP_SYS_RESOURCE``)."""


VIRTUAL_MACHINE = HostTraits()


API_PORT = 6443
"""kubeadm's default for the API server."""

How = Literal["kubeadm", "by-hand"]
"""How the cluster is made: ``by-hand`` is Kubernetes the hard way, without kubeadm."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One machine of the cluster."""

    name: str
    os: Os
    role: Role
    address: str
    """On the node segment, without prefix."""
    pod_cidr: str | None
    """None if no kubelet runs on it."""
    version: str
    """Version of its kubelet: a patch version if the bundle has that minor."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The whole cluster."""

    name: str
    how: How
    version: str
    """Version of the control plane, such as ``"1.36.1"``."""
    topology: str
    endpoint: str
    """The API address that every node uses: the services node's or, with several control planes and
    no services node, the router's; either one balances the load.
    """
    domain: str
    pod_cidr: str
    service_cidr: str
    dns_address: str
    proxy_mode: ProxyMode
    pod_mtu: int
    nodes: tuple[ClusterNode, ...]
    networks: tuple[str, ...] = ()
    """CIDRs of the networks that the nodes have addresses in."""
    name_server: str | None = None
    """Address of the services node's name server, which resolves names outside the cluster."""
    host: HostTraits = VIRTUAL_MACHINE
    """Traits of the machines that the Linux nodes run on."""

    def control_planes(self) -> tuple[ClusterNode, ...]:
        """Nodes with an API server, the first one leading."""
        return tuple(node for node in self.nodes if node.role == "control-plane")


def plan_cluster(
    lab: str, intent: Intent, bundle: Manifest, host: HostTraits = VIRTUAL_MACHINE
) -> Cluster:
    """The cluster that an Intent asks for, from a bundle, on machines with these traits.

    Raises PreflightError when the bundle has another Kubernetes minor than the scenario asks for.
    """
    kubernetes = intent.kubernetes
    assert kubernetes is not None, "every topology says what its cluster is"
    minor = bundle.kubernetes.rpartition(".")[0]
    if minor != kubernetes.version:
        raise PreflightError(
            f"looking for Kubernetes {kubernetes.version} for lab '{lab}'",
            f"the bundle holds Kubernetes {bundle.kubernetes}",
            f"lab bundle create --kubernetes {kubernetes.version}",
        )
    nodes = tuple(_node(machine, bundle) for machine in intent.machines if machine.kubelet)
    planes = [node for node in nodes if node.role == "control-plane"]
    by_hand = any(node.pod_cidr is None for node in planes)
    front = intent.balancer()
    segments = {
        card.segment
        for machine in intent.machines
        if machine.kubelet
        for card in machine.interfaces
    }
    servers = (
        machine.address()
        for machine in intent.machines
        for daemon in machine.daemons
        if daemon.name == NAME_SERVER
    )
    return Cluster(
        name=lab,
        how="by-hand" if by_hand else "kubeadm",
        version=bundle.kubernetes,
        topology=intent.topology,
        endpoint=front.address() if front else planes[0].address,
        domain=intent.domain,
        pod_cidr=kubernetes.pod_cidr,
        service_cidr=kubernetes.service_cidr,
        dns_address=kubernetes.dns_address,
        proxy_mode=kubernetes.proxy_mode,
        pod_mtu=intent.pod_mtu,
        nodes=nodes,
        networks=tuple(segment.cidr for segment in intent.segments if segment.name in segments),
        name_server=next(servers, None),
        host=host,
    )


def _node(machine: MachineIntent, bundle: Manifest) -> ClusterNode:
    kubelet = machine.kubelet
    assert kubelet is not None, "the intent has a kubelet"
    minor = bundle.kubernetes.rpartition(".")[0]
    return ClusterNode(
        name=machine.name,
        os=machine.os,
        role=kubelet.role,
        address=machine.address(),
        pod_cidr=kubelet.pod_cidr,
        version=bundle.kubernetes if kubelet.version == minor else kubelet.version,
    )


OWN_TUNNELS = frozenset({"upstream-vrrp"})
"""Topologies whose nodes are joined by a tunnel that no network add-on creates."""


def underlay(intent: Intent) -> Intent:
    """The Intent without everything that the kubelet, kube-proxy and the network add-on create.

    What remains on a node: interfaces and their addresses, the default route, static routes from
    the scenario, the router's configuration, and a tunnel that no add-on creates, with its entries.
    An interface that the add-on's virtual switch will take over is still a plain interface.
    """
    tunnels = intent.topology in OWN_TUNNELS
    return replace(
        intent,
        machines=tuple(_underlay_machine(machine, tunnels=tunnels) for machine in intent.machines),
    )


def _underlay_machine(machine: MachineIntent, *, tunnels: bool) -> MachineIntent:
    if machine.kind != "node":
        return machine
    tunnel = machine.tunnel if tunnels else None
    bare = {card.name: card.card or card.name for card in machine.interfaces}
    return replace(
        machine,
        bridge=None,
        tunnel=tunnel,
        interfaces=tuple(
            replace(card, name=bare[card.name], card=None) for card in machine.interfaces
        ),
        routes=tuple(
            replace(route, device=bare.get(route.device, route.device))
            for route in machine.routes
            if route.destination == "default" or route.requested
        ),
        neighbours=tuple(
            neighbour
            for neighbour in machine.neighbours
            if tunnel and neighbour.device == tunnel.name
        ),
        forwarding=machine.forwarding if tunnel else (),
        proxies=(),
        pods=(),
        translation=None,
        drops=(),
    )
