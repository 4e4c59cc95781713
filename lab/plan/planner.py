"""Make the Plan of a scenario; the same scenario gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv4Address
from itertools import count, zip_longest

from lab.plan.plan import (
    FIRST_NODE_OFFSET,
    FIRST_SERVICE_OFFSET,
    OUTSIDE_CLIENT,
    OUTSIDE_ROUTER,
    Plan,
    PlannedHeadless,
    PlannedHypervisor,
    PlannedNode,
    PlannedPod,
    PlannedService,
    hand_out,
    hand_out_subnets,
    mac,
)
from lab.scenario.reserved import (
    DNS_POD,
    DNS_SERVICE,
    HYPERVISOR_CIDR,
    NODE_PORTS_TAKEN,
    OUTSIDE_CIDR,
    POD_PORT,
    POD_RANGE_HEAD,
    SERVICE_PORT,
)
from lab.scenario.scenario import (
    Scenario,
    hypervisor_names,
    impairment_of,
    node_names,
    pods_per_node,
    service_name,
)
from lab.scenario.special import Port, SpecialService
from lab.scenario.terms import PROTOCOLS, ServicePort

VXLAN_OVERHEAD = 50
"""Bytes: outer IPv4 (20), UDP (8), VXLAN (8) and the inner Ethernet header (14); RFC 7348."""


def planned_hypervisors(scenario: Scenario) -> tuple[PlannedHypervisor, ...]:
    """Every hypervisor with its address, from the network's first address on."""
    return tuple(
        PlannedHypervisor(name, (address := HYPERVISOR_CIDR[number]), mac(address))
        for number, name in enumerate(hypervisor_names(scenario), start=1)
    )


def placement(scenario: Scenario) -> Mapping[str, str | None]:
    """Node to hypervisor; without hypervisors in the scenario, as written for each node."""
    names = hypervisor_names(scenario)
    turns = count(1)
    placed: dict[str, str | None] = {}
    for group in scenario.nodes:
        for node in node_names(group):
            if not names or group.hypervisor:
                placed[node] = group.hypervisor
            elif group.role == "worker":
                placed[node] = names[next(turns) % len(names)]
            else:
                placed[node] = names[0]
    return placed


def node_mtu(scenario: Scenario) -> int:
    """Bytes of an IP packet between nodes, less the tunnel's overhead between hypervisors."""
    between = scenario.hypervisors
    if between is None:
        return scenario.network.mtu
    overhead = VXLAN_OVERHEAD if between.count > 1 else 0
    return min(scenario.network.mtu, between.mtu - overhead)


DNS_PORT = 53
DEFAULT_IMAGE = {"linux": "debian-12", "windows": "windows-server-2022"}
DEFAULT_MEMORY_MIB = {"linux": 2048, "windows": 6144}
"""Windows: sig-windows-dev-tools runs its nodes with 6 GiB."""
DEFAULT_VCPUS = {"linux": 2, "windows": 4}
DEFAULT_DISK_GIB = {"linux": 20, "windows": 60}


def make_plan(scenario: Scenario) -> Plan:
    """Decide everything that the scenario leaves open. The scenario must be valid."""
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
        proxy_mode=scenario.kubernetes.proxy_mode,
        node_cidr=scenario.network.cidr,
        node_mtu=node_mtu(scenario),
        router_address=scenario.network.router,
        outside_cidr=OUTSIDE_CIDR,
        outside_router_address=OUTSIDE_ROUTER,
        client_address=OUTSIDE_CLIENT,
        nodes=nodes,
        services=tuple(_services(scenario, nodes)),
        families=scenario.families,
        protocols=scenario.matrix.protocols,
        sizes=scenario.matrix.sizes,
        min_throughput=scenario.matrix.min_throughput,
        exceptions=scenario.exceptions,
        node_domain=scenario.network.domain,
        hypervisors=planned_hypervisors(scenario),
        hypervisor_mtu=scenario.hypervisors.mtu if scenario.hypervisors else 0,
        headless=tuple(
            PlannedHeadless(service.name, _pods_behind(service, nodes))
            for service in scenario.services.special
            if service.headless
        ),
    )


def _nodes(scenario: Scenario) -> tuple[PlannedNode, ...]:
    groups = scenario.nodes
    placed = placement(scenario)
    taken = {scenario.network.router}
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
            hypervisor=placed[name],
            nics=group.nics,
            routes=group.routes,
            sends=impairment_of(scenario, name, "sends"),
            receives=impairment_of(scenario, name, "receives"),
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
    ports = _node_ports(scenario)
    pods = [pod for node in nodes for pod in node.pods]
    if any(pod.role == "dns" for pod in pods):
        yield _dns_service(scenario.kubernetes.dns_address)
    for pod in pods:
        if pod.role == "probe":
            yield PlannedService(
                service_name(pod.name),
                "single",
                next(addresses),
                (_usual_port(next(ports)),),
                (pod.name,),
            )
    spread = _spread_pods(nodes)
    for shared in scenario.services.shared:
        yield PlannedService(
            shared.name,
            "shared",
            next(addresses),
            (_usual_port(next(ports)),),
            spread[: shared.backends],
        )
    for special in scenario.services.special:
        if not special.headless:
            yield _plan_special(special, next(addresses), ports, _pods_behind(special, nodes))


def _node_ports(scenario: Scenario) -> Iterator[int]:
    """The NodePort range, without ports that are explicitly assigned or used by nodes."""
    written = {port.node_port for service in scenario.services.special for port in service.ports}
    first, last = scenario.services.node_ports
    return (port for port in range(first, last + 1) if port not in written | {*NODE_PORTS_TAKEN})


def _plan_special(
    special: SpecialService, address: IPv4Address, numbers: Iterator[int], backends: tuple[str, ...]
) -> PlannedService:
    """A special Service, with NodePorts taken from ``numbers`` where none is given."""
    ports = special.ports or (Port(port=SERVICE_PORT),)
    return PlannedService(
        special.name,
        "special",
        address,
        tuple(
            ServicePort(
                port.name,
                port.protocols,
                port.port,
                port.target_port,
                port.node_port or next(numbers) if special.node_port else port.node_port,
            )
            for port in ports
        ),
        backends,
        affinity=special.affinity,
        inside=special.internal_traffic,
        outside=special.external_traffic,
        health_port=next(numbers) if special.health_check else None,
    )


def _pods_behind(special: SpecialService, nodes: tuple[PlannedNode, ...]) -> tuple[str, ...]:
    """The pods behind a special Service: those named, or the first in turn."""
    return special.pods or _spread_pods(nodes)[: special.backends]


def _dns_service(address: IPv4Address) -> PlannedService:
    port = ServicePort("", PROTOCOLS, DNS_PORT, DNS_PORT, None)
    return PlannedService(DNS_SERVICE, "dns", address, (port,), (DNS_POD,))


def _usual_port(node_port: int) -> ServicePort:
    return ServicePort("", PROTOCOLS, SERVICE_PORT, POD_PORT, node_port)


def _spread_pods(nodes: tuple[PlannedNode, ...]) -> tuple[str, ...]:
    """Probe pods alternating between Linux and Windows nodes, first pods of every node first."""
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
