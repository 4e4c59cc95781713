"""Handwritten Intents: small clusters on an overlay or with host routes."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Literal

from lab.scenario.terms import PROTOCOLS, ServicePort
from lab.topology.intent import (
    Backend,
    Bridge,
    ForwardingEntry,
    Intent,
    Interface,
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

Kind = Literal["overlay", "host-gateway"]
PODS = IPv4Network("10.244.0.0/16")
NODES = IPv4Network("10.9.176.0/24")
ROUTER, CLIENT = "10.9.176.254", "192.0.2.10"
OUTSIDE_ROUTER = "192.0.2.1"
VNI = 4096


def mac(address: str, tag: int = 0x0A) -> str:
    """A MAC derived from an address, as in the plan."""
    return ":".join(f"{byte:02x}" for byte in (tag, 0x58, *IPv4Address(address).packed))


class Node:
    """Parameters of one node."""

    def __init__(self, number: int, name: str, os: Literal["linux", "windows"], pods: int) -> None:
        self.name, self.os = name, os
        self.address = str(NODES[number + 1])
        self.cidr = list(PODS.subnets(new_prefix=24))[number]
        self.tunnel = str(self.cidr[0])
        self.gateway = str(self.cidr[1])
        self.pods = [(f"{name}-p{i + 1}", str(self.cidr[i + 2])) for i in range(pods)]


def cluster(
    kind: Kind = "overlay",
    *,
    linux: int = 2,
    windows: int = 1,
    pods: int = 2,
    services: bool = True,
) -> Intent:
    """A cluster with a Service and NodePort for every pod, for all pods, and for none."""
    names = [(f"worker{i + 1}", "linux") for i in range(linux)]
    names += [(f"win{i + 1}", "windows") for i in range(windows)]
    nodes = [Node(i, name, os, pods) for i, (name, os) in enumerate(names)]  # type: ignore[arg-type]
    offered = _services(nodes) if services else ()
    machines = [_node(kind, node, nodes, offered) for node in nodes]
    machines += [_router(kind, nodes), _client()]
    pod_mtu = 1450 if kind == "overlay" else 1500
    segments = (Segment("cluster", str(NODES), 1500), Segment("outside", "192.0.2.0/24", 1500))
    return Intent("test", kind, "cluster.local", segments, tuple(machines), pod_mtu, 1500)


def _port(node_port: int) -> tuple[ServicePort, ...]:
    return (ServicePort("", PROTOCOLS, 80, 8080, node_port),)


def _services(nodes: list[Node]) -> tuple[ProxiedService, ...]:
    pods = [(*pod, node.name) for node in nodes for pod in node.pods]
    single = [
        ProxiedService(
            f"to-{name}",
            f"10.96.{number // 200}.{number % 200 + 20}",
            _port(30000 + number),
            (Backend(name, address, node),),
        )
        for number, (name, address, node) in enumerate(pods)
    ]
    every = tuple(Backend(*pod) for pod in pods[:3])
    shared = ProxiedService("shared", "10.96.200.1", _port(32000), every)
    empty = ProxiedService("empty", "10.96.200.2", _port(32001), ())
    return (*single, shared, empty)


def _node(
    kind: Kind, node: Node, nodes: list[Node], services: tuple[ProxiedService, ...]
) -> MachineIntent:
    others = [other for other in nodes if other is not node]
    mtu = 1450 if kind == "overlay" else 1500
    overlay = kind == "overlay"
    routes = [Route("default", "eth0", ROUTER)]
    near = [Neighbour(other.address, mac(other.address), "eth0") for other in others]
    near.append(Neighbour(ROUTER, mac(ROUTER), "eth0"))
    near += [Neighbour(address, mac(address), "cni0") for _, address in node.pods]
    forwarding, tunnel = [], None
    if overlay:
        tunnel = Tunnel(
            "flannel.4096",
            VNI,
            4789,
            node.address,
            "eth0",
            mac(node.tunnel, 0x0E),
            (f"{node.tunnel}/32",),
            mtu,
        )
        for other in others:
            routes.append(Route(str(other.cidr), "flannel.4096", other.tunnel, onlink=True))
            near.append(Neighbour(other.tunnel, mac(other.tunnel, 0x0E), "flannel.4096"))
            forwarding.append(
                ForwardingEntry(mac(other.tunnel, 0x0E), "flannel.4096", other.address)
            )
    else:
        routes += [Route(str(other.cidr), "eth0", other.address) for other in others]
    proxies = [] if overlay else [ProxyNeighbour(address, "eth0") for _, address in node.pods]
    keep = (str(PODS),) if overlay else (str(PODS), str(NODES))
    return MachineIntent(
        name=node.name,
        kind="node",
        os=node.os,
        interfaces=(
            Interface("eth0", "cluster", mac(node.address), (f"{node.address}/24",), 1500),
        ),
        bridge=Bridge("cni0", mac(node.gateway), (f"{node.gateway}/24",), mtu),
        tunnel=tunnel,
        routes=tuple(routes),
        neighbours=tuple(near),
        forwarding=tuple(forwarding),
        proxies=tuple(proxies),
        pods=tuple(_pod(name, address, node, mtu) for name, address in node.pods),
        translation=Translation(str(node.cidr), keep, services) if services else None,
        forwards=True,
    )


def _pod(name: str, address: str, node: Node, mtu: int) -> Pod:
    search = ("default.svc.cluster.local", "svc.cluster.local", "cluster.local")
    return Pod(
        name=name,
        role="probe",
        port=f"veth{address.rpartition('.')[2]}",
        mac=mac(address),
        address=f"{address}/24",
        gateway=node.gateway,
        mtu=mtu,
        neighbours=(Neighbour(node.gateway, mac(node.gateway), "eth0"),),
        resolver=Resolver("10.96.0.10", search, 5),
    )


def _router(kind: Kind, nodes: list[Node]) -> MachineIntent:
    routes = []
    if kind == "host-gateway":
        routes = [Route(str(node.cidr), "eth0", node.address) for node in nodes]
    near = [Neighbour(node.address, mac(node.address), "eth0") for node in nodes]
    return MachineIntent(
        name="router",
        kind="router",
        os="linux",
        interfaces=(
            Interface("eth0", "cluster", mac(ROUTER), (f"{ROUTER}/24",), 1500),
            Interface("eth1", "outside", mac(OUTSIDE_ROUTER), (f"{OUTSIDE_ROUTER}/24",), 1500),
        ),
        routes=tuple(routes),
        neighbours=(*near, Neighbour(CLIENT, mac(CLIENT), "eth1")),
        forwards=True,
    )


def _client() -> MachineIntent:
    return MachineIntent(
        name="client",
        kind="client",
        os="linux",
        interfaces=(Interface("eth0", "outside", mac(CLIENT), (f"{CLIENT}/24",), 1500),),
        routes=(Route("default", "eth0", OUTSIDE_ROUTER),),
        neighbours=(Neighbour(OUTSIDE_ROUTER, mac(OUTSIDE_ROUTER), "eth0"),),
    )
