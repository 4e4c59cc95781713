"""Scenario to Plan: the same scenario gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from itertools import count, zip_longest

from lab.plan.addresses import (
    FIRST_NODE_OFFSET,
    FIRST_SERVICE_OFFSET,
    OUTSIDE_CLIENT,
    OUTSIDE_ROUTER,
    hand_out,
    hand_out_subnets,
    mac,
)
from lab.plan.plan import Plan, PlannedNode, PlannedPod, PlannedService
from lab.scenario.names import node_names, pods_per_node, service_name
from lab.scenario.reserved import DNS_POD, OUTSIDE_CIDR, POD_RANGE_HEAD, router_address
from lab.scenario.scenario import Scenario

DNS_SERVICE = "kube-dns"
SERVICE_PORT = 80
POD_PORT = 8080
DNS_PORT = 53
DEFAULT_IMAGE = {"linux": "debian-12", "windows": "windows-server-2022"}
DEFAULT_MEMORY_MIB = {"linux": 2048, "windows": 6144}
"""Windows: sig-windows-dev-tools runs its nodes with 6 GiB."""
DEFAULT_VCPUS = {"linux": 2, "windows": 4}
DEFAULT_DISK_GIB = {"linux": 20, "windows": 60}


def make_plan(scenario: Scenario) -> Plan:
    """Decide everything that the scenario leaves open. The scenario must have been checked."""
    nodes = _nodes(scenario)
    return Plan(
        scenario=scenario.name,
        summary=scenario.summary,
        topology=scenario.topology.kind,
        parameters=dict(scenario.topology.parameters),
        version=scenario.kubernetes.version,
        domain=scenario.kubernetes.domain,
        pod_cidr=scenario.kubernetes.pod_cidr,
        service_cidr=scenario.kubernetes.service_cidr,
        dns_address=scenario.kubernetes.dns_address,
        node_cidr=scenario.network.cidr,
        node_mtu=scenario.network.mtu,
        router_address=router_address(scenario.network.cidr),
        outside_cidr=OUTSIDE_CIDR,
        outside_router_address=OUTSIDE_ROUTER,
        client_address=OUTSIDE_CLIENT,
        nodes=nodes,
        services=tuple(_services(scenario, nodes)),
        families=scenario.matrix.families,
        protocols=scenario.matrix.protocols,
        sizes=scenario.matrix.sizes,
        exceptions=scenario.exceptions,
    )


def _nodes(scenario: Scenario) -> tuple[PlannedNode, ...]:
    groups = scenario.nodes
    taken = {router_address(scenario.network.cidr)}
    taken |= {group.address for group in groups if group.address}
    addresses = hand_out(scenario.network.cidr, FIRST_NODE_OFFSET, taken)
    subnets = hand_out_subnets(
        scenario.kubernetes.pod_cidr,
        scenario.kubernetes.node_prefix,
        tuple(group.pod_cidr for group in groups if group.pod_cidr),
    )
    bare = [
        PlannedNode(
            name=name,
            os=group.os,
            role=group.role,
            address=(address := group.address or next(addresses)),
            mac=mac(address),
            pod_cidr=(group.pod_cidr or next(subnets)) if group.kubelet else None,
            pods=(),
            version=group.version or scenario.kubernetes.version,
            image=group.image or DEFAULT_IMAGE[group.os],
            memory_mib=group.memory_mib or DEFAULT_MEMORY_MIB[group.os],
            vcpus=group.vcpus or DEFAULT_VCPUS[group.os],
            disk_gib=group.disk_gib or DEFAULT_DISK_GIB[group.os],
            hypervisor=group.hypervisor,
            nics=group.nics,
        )
        for group in groups
        for name in node_names(group)
    ]
    wanted = {
        name: pods_per_node(scenario, group) for group in groups for name in node_names(group)
    }
    dns_node = next((node.name for node in bare if node.os == "linux" and node.pod_cidr), None)
    return tuple(
        replace(node, pods=tuple(_pods(node, wanted[node.name], dns=node.name == dns_node)))
        for node in bare
    )


def _pods(node: PlannedNode, number: int, *, dns: bool) -> Iterator[PlannedPod]:
    if node.pod_cidr is None:
        return
    for index in range(number):
        address = node.pod_cidr[POD_RANGE_HEAD + index]
        yield PlannedPod(f"{node.name}-p{index + 1}", node.name, "probe", address, mac(address))
    if dns:
        address = node.pod_cidr[POD_RANGE_HEAD + number]
        yield PlannedPod(DNS_POD, node.name, "dns", address, mac(address))


def _services(scenario: Scenario, nodes: tuple[PlannedNode, ...]) -> Iterator[PlannedService]:
    cidr = scenario.kubernetes.service_cidr
    taken = {cidr[1], scenario.kubernetes.dns_address}
    addresses = hand_out(cidr, FIRST_SERVICE_OFFSET, taken)
    ports = count(scenario.node_ports[0])
    pods = [pod for node in nodes for pod in node.pods]
    if any(pod.role == "dns" for pod in pods):
        yield _dns_service(scenario.kubernetes.dns_address)
    for pod in pods:
        if pod.role == "probe":
            yield PlannedService(
                service_name(pod.name),
                "single",
                next(addresses),
                SERVICE_PORT,
                POD_PORT,
                next(ports),
                (pod.name,),
            )
    spread = _spread(nodes)
    for shared in scenario.shared_services:
        yield PlannedService(
            shared.name,
            "shared",
            next(addresses),
            SERVICE_PORT,
            POD_PORT,
            next(ports),
            spread[: shared.backends],
        )


def _dns_service(address: IPv4Address) -> PlannedService:
    return PlannedService(DNS_SERVICE, "dns", address, DNS_PORT, DNS_PORT, None, (DNS_POD,))


def _spread(nodes: tuple[PlannedNode, ...]) -> tuple[str, ...]:
    """Probe pods in turn from Linux and Windows nodes, first pods of every node first."""
    sides = [
        [
            pod.name
            for rank in zip_longest(*([p for p in n.pods if p.role == "probe"] for n in side))
            for pod in rank
            if pod
        ]
        for side in (
            [node for node in nodes if node.os == "linux"],
            [node for node in nodes if node.os == "windows"],
        )
    ]
    return tuple(name for pair in zip_longest(*sides) for name in pair if name)
