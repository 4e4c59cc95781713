"""A small lab for the tests of lifecycle and fake: two nodes, a router, a client."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, Literal

from lab.lifecycle.up import UpRequest
from lab.plan.plan import Plan, PlannedNode, PlannedPod, PlannedService
from lab.scenario.scenario import Limit, Match
from lab.scenario.terms import PROTOCOLS, Family, Os, ServicePort
from lab.topology.intent import (
    Backend,
    Bridge,
    Drop,
    Intent,
    Interface,
    MachineIntent,
    Pod,
    ProxiedService,
    Resolver,
    Route,
    Segment,
    Translation,
    Tunnel,
)

DOMAIN = "cluster.local"
LINUX_SEARCH = ("default.svc.cluster.local", "svc.cluster.local", "cluster.local")


def _pod(
    node: str,
    number: int,
    at: int,
    search: tuple[str, ...],
    role: Literal["probe", "dns"] = "probe",
) -> Pod:
    name = f"{node}-p{at}" if role == "probe" else "dns"
    return Pod(
        name=name,
        role=role,
        port=f"p{at}",
        mac=f"0a:58:0a:f4:0{number}:0{at}",
        address=f"10.244.{number}.{at + 1}/24",
        gateway=f"10.244.{number}.1",
        mtu=1450,
        neighbours=(),
        resolver=Resolver("10.96.0.10", search, 5 if len(search) > 1 else 1),
    )


def _backend(pod: Pod) -> Backend:
    return Backend(pod.name, pod.address.partition("/")[0], pod.name.rpartition("-")[0])


def _service(name: str, last: int, node_port: int | None, *pods: Pod) -> ProxiedService:
    port = 53 if name == "kube-dns" else 80
    return ProxiedService(
        name,
        f"10.96.0.{last}",
        (ServicePort("", PROTOCOLS, port, 8080, node_port),),
        tuple(_backend(pod) for pod in pods),
    )


def _node(
    name: str, number: int, pods: tuple[Pod, ...], services: tuple[ProxiedService, ...]
) -> MachineIntent:
    os: Os = "windows" if name.startswith("win") else "linux"
    address = f"10.9.176.1{number}"
    drops = (
        (Drop("windows-node-to-service", ("10.96.0.0/12",), None, ("10.96.0.10/32",)),)
        if os == "windows"
        else ()
    )
    other = 3 - number
    return MachineIntent(
        name=name,
        kind="node",
        os=os,
        interfaces=(
            Interface("eth0", "cluster", f"0a:58:0a:09:b0:1{number}", (f"{address}/24",), 1500),
        ),
        bridge=Bridge("cni0", "0a:58:00:00:00:01", (f"10.244.{number}.1/24",), 1450),
        tunnel=Tunnel(
            "flannel.4096", 4096, 4789, address, "eth0", "", (f"10.244.{number}.0/32",), 1450
        ),
        routes=(
            Route("default", "eth0", "10.9.176.1"),
            Route(f"10.244.{other}.0/24", "flannel.4096", f"10.244.{other}.0", onlink=True),
        ),
        pods=pods,
        translation=Translation(f"10.244.{number}.0/24", ("10.244.0.0/16",), services),
        drops=drops,
        forwards=True,
    )


def _outside(
    name: str, kind: Literal["router", "client"], interfaces: tuple[Interface, ...], *routes: Route
) -> MachineIntent:
    return MachineIntent(
        name, kind, "linux", interfaces, None, None, routes, (), (), (), (), None, (), False
    )


def intent(*, nodes: tuple[str, ...] = ("worker1", "win1"), vip_last: int = 20) -> Intent:
    pods: dict[str, tuple[Pod, ...]] = {}
    for number, node in enumerate(nodes, 1):
        search = LINUX_SEARCH if node != "win1" else (LINUX_SEARCH[0],)
        pods[node] = (_pod(node, number, 1, search), _pod(node, number, 2, search))
    dns = _pod(nodes[0], 1, 3, LINUX_SEARCH, "dns")
    pods[nodes[0]] += (dns,)
    probes = [pod for node in nodes for pod in pods[node] if pod.role == "probe"]
    services = (
        *(
            _service(f"to-{pod.name}", vip_last + at, 30080 + at, pod)
            for at, pod in enumerate(probes)
        ),
        _service("shared", vip_last + 50, 30200, *probes),
        _service("kube-dns", 10, None, dns),
    )
    router = (
        Interface("eth0", "cluster", "", ("10.9.176.1/24",), 1500),
        Interface("eth1", "outside", "", ("192.0.2.1/24",), 1500),
    )
    client = (Interface("eth0", "outside", "", ("192.0.2.10/24",), 1500),)
    return Intent(
        scenario="overlay",
        topology="overlay",
        domain=DOMAIN,
        segments=(Segment("cluster", "10.9.176.0/24", 1500),),
        machines=(
            *(_node(node, at, pods[node], services) for at, node in enumerate(nodes, 1)),
            _outside("router", "router", router),
            _outside("client", "client", client, Route("default", "eth0", "192.0.2.1")),
        ),
        pod_mtu=1450,
        node_mtu=1500,
    )


def plan(scenario: str = "overlay", summary: str = "A small lab") -> Plan:
    families: frozenset[Family] = frozenset({"pod-pod", "pod-service", "dns", "nodeport"})
    pod = PlannedPod(
        "worker1-p1", "worker1", "probe", IPv4Address("10.244.1.2"), "0a:58:00:00:00:01"
    )
    node = PlannedNode(
        "worker1",
        "linux",
        "worker",
        IPv4Address("10.9.176.11"),
        "0a:58:0a:09:b0:11",
        IPv4Network("10.244.1.0/24"),
        (pod,),
        "1.36",
        "none",
        1024,
        1,
        10,
        None,
    )
    port = ServicePort("", PROTOCOLS, 80, 8080, None)
    service = PlannedService("to-x", "single", IPv4Address("10.96.0.20"), (port,), ("x",))
    return Plan(
        scenario=scenario,
        summary=summary,
        topology="overlay",
        parameters={"vni": 4096},
        version="1.36",
        domain=DOMAIN,
        pod_cidr=IPv4Network("10.244.0.0/16"),
        service_cidr=IPv4Network("10.96.0.0/12"),
        dns_address=IPv4Address("10.96.0.10"),
        proxy_mode="nftables",
        node_cidr=IPv4Network("10.9.176.0/24"),
        node_mtu=1500,
        router_address=IPv4Address("10.9.176.1"),
        outside_cidr=IPv4Network("192.0.2.0/24"),
        outside_router_address=IPv4Address("192.0.2.1"),
        client_address=IPv4Address("192.0.2.10"),
        nodes=(node,),
        services=(service,),
        families=("pod-pod",),
        protocols=("tcp",),
        sizes=("small",),
        exceptions=(
            Limit(
                id="x-1",
                when=Match(families=families),
                fails="timeout",
                reason="because",
                source="we say so",
            ),
        ),
    )


def request(name: str = "overlay", scenario: str = "overlay", **changes: Any) -> UpRequest:
    usual = UpRequest(
        name=name,
        scenario_text=f"name: {scenario}\n",
        scenario_path=f"{scenario}.yaml",
        plan=plan(scenario),
        intent=intent(),
        command=f"lab up {name}",
    )
    return replace(usual, **changes)


def leftovers(state: Path) -> set[str]:
    """Files in the labs' directories, relative to them."""
    labs = state / "labs"
    return {str(path.relative_to(labs)) for path in labs.rglob("*")} if labs.is_dir() else set()
