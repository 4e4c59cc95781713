"""What topologies share: segments, router, client, and a node with its bridge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv4Address

from lab._dataclass import dataclass
from lab.plan.plan import Plan, PlannedNode, PlannedPod, mac
from lab.topology.intent import (
    BLACKHOLE,
    NODE_SEGMENT,
    AddedCard,
    Backend,
    Bridge,
    ForwardingEntry,
    Hardware,
    HeadlessService,
    Intent,
    Interface,
    Kubelet,
    KubernetesIntent,
    MachineIntent,
    Neighbour,
    Pod,
    ProxiedService,
    ProxyNeighbour,
    Resolver,
    Route,
    Segment,
    Translation,
    Tunnel,
)

CLUSTER = NODE_SEGMENT
OUTSIDE = "outside"
UPLINK = "eth0"
ROUTER = "router"
CLIENT = "client"
ROUTED_GATEWAY = "169.254.1.1"
"""Gateway of every routed pod; the node's end of the cable has the MAC below. Both as in Calico."""
ROUTED_MAC = "ee:ee:ee:ee:ee:ee"
NDOTS = 5
"""Options that the kubelet writes into every pod's resolv.conf (Kubernetes, DNS for Services and
Pods)."""


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """What a topology decides for one node; the rest is the same for all topologies."""

    bridge: str | None
    """None if pods are routed, as with Calico, instead of plugged into a bridge."""
    gateway_offset: int
    """Offset of the pod gateway in the node's pod CIDR; unused without a bridge."""
    mtu: int
    """MTU of pods and bridge."""
    not_masqueraded: tuple[str, ...]
    routes: tuple[Route, ...] = ()
    tunnel: Tunnel | None = None
    neighbours: tuple[Neighbour, ...] = ()
    forwarding: tuple[ForwardingEntry, ...] = ()
    answers_for_pods: bool = False
    """Whether the node answers ARP for its pods on the node segment (l2bridge)."""
    uplink: str = UPLINK
    """The interface on the nodes' network."""
    gateway_elsewhere: int | None = None
    """Offset of the pod gateway in the pod CIDR if another machine holds it."""


def assemble(plan: Plan, nodes: tuple[MachineIntent, ...], router: MachineIntent) -> Intent:
    """The whole lab: the nodes, the router and the client outside.

    All nodes have the same tuple of Services: with a hundred nodes, separate copies of two thousand
    Services would take most of the time and memory of an Intent.
    """
    services = tuple(_services(plan))
    nodes = tuple(
        replace(machine, translation=replace(machine.translation, services=services))
        if machine.translation
        else machine
        for machine in nodes
    )
    pods = {pod.name: pod for pod in plan.pods()}
    mtus = {node.bridge.mtu for node in nodes if node.bridge}
    mtus |= {pod.mtu for node in nodes for pod in node.pods}
    return Intent(
        scenario=plan.scenario,
        topology=plan.topology,
        domain=plan.domain,
        segments=(
            Segment(CLUSTER, str(plan.node_cidr), plan.node_mtu),
            Segment(OUTSIDE, str(plan.outside_cidr), plan.node_mtu),
        ),
        machines=(*nodes, router, client(plan)),
        pod_mtu=min(mtus, default=plan.node_mtu),
        node_mtu=plan.node_mtu,
        kubernetes=KubernetesIntent(
            plan.version,
            str(plan.pod_cidr),
            str(plan.service_cidr),
            str(plan.dns_address),
            plan.proxy_mode,
        ),
        headless=tuple(
            HeadlessService(service.name, _list_backends(pods, service.backends))
            for service in plan.headless
        ),
    )


def router(plan: Plan, routes: tuple[Route, ...] = ()) -> MachineIntent:
    """The router between the node segment and the outside: the ToR."""
    inside, outside = plan.router_address, plan.outside_router_address
    return MachineIntent(
        name=ROUTER,
        kind="router",
        os="linux",
        interfaces=(
            Interface(
                UPLINK,
                CLUSTER,
                mac(inside),
                (f"{inside}/{plan.node_cidr.prefixlen}",),
                plan.node_mtu,
            ),
            Interface(
                "eth1",
                OUTSIDE,
                mac(outside),
                (f"{outside}/{plan.outside_cidr.prefixlen}",),
                plan.node_mtu,
            ),
        ),
        routes=routes,
        neighbours=(
            *(Neighbour(str(node.address), node.mac, UPLINK) for node in plan.nodes),
            Neighbour(str(plan.client_address), mac(plan.client_address), "eth1"),
        ),
        forwards=True,
    )


def client(plan: Plan) -> MachineIntent:
    """The host outside the cluster: it connects to NodePorts, and pods connect to it."""
    gateway = plan.outside_router_address
    return MachineIntent(
        name=CLIENT,
        kind="client",
        os="linux",
        interfaces=(
            Interface(
                UPLINK,
                OUTSIDE,
                mac(plan.client_address),
                (f"{plan.client_address}/{plan.outside_cidr.prefixlen}",),
                plan.node_mtu,
            ),
        ),
        routes=(Route("default", UPLINK, str(gateway)),),
        neighbours=(Neighbour(str(gateway), mac(gateway), UPLINK),),
    )


def blocks(plan: Plan) -> tuple[str, ...]:
    """Every node's pod CIDR: Calico's pools, which it does not masquerade."""
    return tuple(str(node.pod_cidr) for node in plan.nodes if node.pod_cidr)


def node(plan: Plan, planned: PlannedNode, network: NodeNetwork) -> MachineIntent:
    """One node: its uplink, its bridge with pods, and its Services."""
    bridged = planned.pod_cidr if network.bridge else None
    gateway = bridged[network.gateway_offset] if bridged else None
    pods = tuple(_pods(plan, planned, network, gateway))
    return MachineIntent(
        name=planned.name,
        kind="services" if planned.role == "services" else "node",
        os=planned.os,
        interfaces=(
            Interface(
                network.uplink,
                CLUSTER,
                planned.mac,
                (f"{planned.address}/{plan.node_cidr.prefixlen}",),
                plan.node_mtu,
            ),
        ),
        bridge=_make_bridge(planned, network, gateway),
        tunnel=network.tunnel,
        routes=(
            Route("default", network.uplink, str(plan.router_address)),
            *network.routes,
            *(() if network.bridge else _to_pods(planned, pods)),
        ),
        neighbours=(*_list_neighbours(plan, planned, network), *network.neighbours),
        forwarding=network.forwarding,
        proxies=tuple(ProxyNeighbour(str(pod.address), network.uplink) for pod in planned.pods)
        if network.answers_for_pods
        else (),
        pods=pods,
        translation=_make_translation(planned, network),
        forwards=planned.role != "services",
        hardware=Hardware(
            image=planned.image,
            vcpus=planned.vcpus,
            memory_mib=planned.memory_mib,
            disk_gib=planned.disk_gib,
            hypervisor=planned.hypervisor,
            nics=tuple(
                AddedCard(nic.network, str(nic.address) if nic.address else None, nic.mac)
                for nic in planned.nics
            ),
        ),
        kubelet=_make_kubelet(planned),
        sends=planned.sends,
        receives=planned.receives,
    )


def _make_kubelet(planned: PlannedNode) -> Kubelet | None:
    if planned.role == "services":
        return None
    pod_cidr = str(planned.pod_cidr) if planned.pod_cidr else None
    return Kubelet(planned.role, planned.version, pod_cidr)


def _make_bridge(
    planned: PlannedNode, network: NodeNetwork, gateway: IPv4Address | None
) -> Bridge | None:
    if planned.pod_cidr is None or gateway is None or network.bridge is None:
        return None
    return Bridge(
        network.bridge,
        mac(gateway),
        (f"{gateway}/{planned.pod_cidr.prefixlen}",),
        network.mtu,
    )


def _list_neighbours(plan: Plan, planned: PlannedNode, network: NodeNetwork) -> Iterator[Neighbour]:
    yield Neighbour(str(plan.router_address), mac(plan.router_address), network.uplink)
    for other in plan.nodes:
        if other.name != planned.name:
            yield Neighbour(str(other.address), other.mac, network.uplink)
    for index, pod in enumerate(planned.pods, start=1):
        yield Neighbour(str(pod.address), pod.mac, network.bridge or port(index))


def _to_pods(planned: PlannedNode, pods: tuple[Pod, ...]) -> Iterator[Route]:
    """Routes of a node without a bridge: one to each pod, and a blackhole for the rest."""
    if planned.pod_cidr is None:
        return
    yield Route(str(planned.pod_cidr), BLACKHOLE)
    for pod in pods:
        yield route_to(pod, str(planned.address))


def route_to(pod: Pod, source: str | None) -> Route:
    """A node's route to one of its routed pods; ``source`` is the node's own address."""
    return Route(f"{pod.address.partition('/')[0]}/32", pod.port, source=source)


def _pods(
    plan: Plan, planned: PlannedNode, network: NodeNetwork, gateway: IPv4Address | None
) -> Iterator[Pod]:
    if planned.pod_cidr is None:
        return
    resolver = Resolver(
        str(plan.dns_address),
        (f"default.svc.{plan.domain}", f"svc.{plan.domain}", plan.domain),
        NDOTS,
    )
    prefix, way = planned.pod_cidr.prefixlen, ROUTED_GATEWAY
    known: tuple[Neighbour, ...] = (Neighbour(way, ROUTED_MAC, UPLINK),)
    if gateway is None:
        prefix = planned.pod_cidr.max_prefixlen
    elif network.gateway_elsewhere is None:
        way, known = str(gateway), (Neighbour(str(gateway), mac(gateway), UPLINK),)
    else:
        way, known = str(planned.pod_cidr[network.gateway_elsewhere]), ()
    for index, pod in enumerate(planned.pods, start=1):
        yield Pod(
            name=pod.name,
            role=pod.role,
            port=port(index),
            mac=pod.mac,
            address=f"{pod.address}/{prefix}",
            gateway=way,
            mtu=network.mtu,
            neighbours=(*known, *(_list_siblings(planned, pod) if network.bridge else ())),
            resolver=resolver,
        )


def port(index: int) -> str:
    """Name of the node's end of a pod's cable; ``index`` counts from 1."""
    return f"veth{index}"


def _list_siblings(planned: PlannedNode, pod: PlannedPod) -> Iterator[Neighbour]:
    for other in planned.pods:
        if other.name != pod.name:
            yield Neighbour(str(other.address), other.mac, UPLINK)


def _make_translation(planned: PlannedNode, network: NodeNetwork) -> Translation | None:
    """Without Services, which the whole lab's nodes have in common."""
    if planned.pod_cidr is None:
        return None
    return Translation(
        local_cidr=str(planned.pod_cidr),
        not_masqueraded=network.not_masqueraded,
        services=(),
    )


def _services(plan: Plan) -> Iterator[ProxiedService]:
    pods = {pod.name: pod for pod in plan.pods()}
    for service in plan.services:
        yield ProxiedService(
            service.name,
            str(service.address),
            service.ports,
            _list_backends(pods, service.backends),
            service.affinity,
            service.inside,
            service.outside,
            service.health_port,
        )


def _list_backends(pods: Mapping[str, PlannedPod], names: Iterable[str]) -> tuple[Backend, ...]:
    return tuple(Backend(name, str(pods[name].address), pods[name].node) for name in names)
