"""OVN: a logical switch per node and one logical router, carried by Geneve between Open vSwitches.

Services are OVN's load balancers, on every switch. A node reaches pods and Services, and pods reach
other networks, through the node's own port of its switch (the management port, local gateway mode
of ovn-kubernetes); the node's kernel translates NodePorts to their Service's address, and those
packets enter by the same port. Windows nodes have a management port but no gateway: their pods
leave by a Linux node.

Sources: ovn-kubernetes (docs/design/topology.md; go-controller, management-port_windows.go and
gateway_localnet_windows.go); Using Windows Server Containers in Kubernetes (1.9), OVS & OVN with
Overlay, which names the bridges, the addresses and the tunnels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Network
from typing import TypeVar

from lab.plan.plan import Plan, PlannedNode, mac
from lab.scenario.findings import Problem
from lab.scenario.scenario import Limit, Match, Scenario
from lab.topology import machines, ovn_daemons, windows_limits
from lab.topology.intent import Bridge, Intent, MachineIntent, Neighbour, Route
from lab.topology.logical import (
    Chassis,
    LogicalNetwork,
    LogicalPort,
    LogicalRoute,
    LogicalSwitch,
)
from lab.topology.registry import Topology

GENEVE_OVERHEAD = 58
"""Bytes: outer IPv4 (20), UDP (8), Geneve (8) with OVN's one option (8) and the inner Ethernet
header (14); RFC 8926, ovn-architecture(7)."""
GATEWAY_OFFSET = 1
"""Offset of the router's address on a switch, as in the guide: 10.0.1.1 of 10.0.1.0/24."""
MANAGEMENT_OFFSET = 2
"""Offset of the node's own address on its switch (ovn-kubernetes, pkg/util/net.go)."""
MANAGEMENT_DEVICE = "ovn-k8s-mp0"
INTEGRATION_BRIDGE = "br-int"
EXTERNAL_BRIDGE = "br-ex"
ROUTER = "ovn_cluster_router"
SOUTHBOUND_PORT = 6642
HAIRPIN_ADDRESS = "169.254.169.5"
"""``hairpin_snat_ip`` of ovn-kubernetes' load balancers."""


def build(plan: Plan) -> Intent:
    """Plan to Intent."""
    nodes = tuple(_node(plan, node) for node in plan.nodes)
    intent = machines.assemble(plan, nodes, machines.router(plan))
    return ovn_daemons.add(replace(intent, logical=_network(plan)))


def central(plan: Plan) -> PlannedNode:
    """The node with the databases: the first control plane, or the first node without one."""
    planes = (node for node in plan.nodes if node.role == "control-plane")
    return next(planes, plan.nodes[0])


def _node(plan: Plan, planned: PlannedNode) -> MachineIntent:
    mtu = plan.node_mtu - GENEVE_OVERHEAD
    plain = machines.node(
        plan,
        planned,
        machines.NodeNetwork(
            bridge=MANAGEMENT_DEVICE,
            gateway_offset=GATEWAY_OFFSET,
            mtu=mtu,
            not_masqueraded=(str(plan.pod_cidr),),
        ),
    )
    if planned.pod_cidr is None:
        return plain
    own, router = planned.pod_cidr[MANAGEMENT_OFFSET], planned.pod_cidr[GATEWAY_OFFSET]
    inward = tuple(
        Route(str(cidr), MANAGEMENT_DEVICE, str(router))
        for cidr in (plan.pod_cidr, plan.service_cidr)
    )
    return replace(
        plain,
        forwards=plain.forwards and planned.os == "linux",  # else it is not a gateway
        interfaces=tuple(
            replace(interface, name=EXTERNAL_BRIDGE, card=interface.name)
            for interface in plain.interfaces
        ),
        bridge=Bridge(
            MANAGEMENT_DEVICE,
            mac(own),
            (f"{own}/{planned.pod_cidr.prefixlen}",),
            mtu,
            INTEGRATION_BRIDGE,
        ),
        routes=(*(_moved(route) for route in plain.routes), *inward),
        neighbours=(
            *(_moved(neighbour) for neighbour in plain.neighbours),
            Neighbour(str(router), mac(router), MANAGEMENT_DEVICE),
        ),
        pods=tuple(
            replace(
                pod,
                neighbours=(*pod.neighbours, Neighbour(str(own), mac(own), machines.UPLINK)),
            )
            for pod in plain.pods
        ),
        chassis=Chassis(planned.name, "geneve", str(planned.address), INTEGRATION_BRIDGE),
    )


_OnDevice = TypeVar("_OnDevice", Route, Neighbour)


def _moved(neighbour: _OnDevice) -> _OnDevice:
    return (
        replace(neighbour, device=EXTERNAL_BRIDGE)
        if neighbour.device == machines.UPLINK
        else neighbour
    )


def _network(plan: Plan) -> LogicalNetwork:
    with_pods = [(node, node.pod_cidr) for node in plan.nodes if node.pod_cidr]
    return LogicalNetwork(
        central=central(plan).name,
        southbound=SOUTHBOUND_PORT,
        router=ROUTER,
        switches=tuple(_switch(node, cidr) for node, cidr in with_pods),
        routes=tuple(_way_out(plan, node, cidr) for node, cidr in with_pods),
        hairpin=HAIRPIN_ADDRESS,
    )


def _switch(node: PlannedNode, cidr: IPv4Network) -> LogicalSwitch:
    own, router = cidr[MANAGEMENT_OFFSET], cidr[GATEWAY_OFFSET]
    return LogicalSwitch(
        name=node.name,
        subnet=str(cidr),
        gateway=f"{router}/{cidr.prefixlen}",
        gateway_mac=mac(router),
        ports=(
            LogicalPort(f"k8s-{node.name}", mac(own), str(own), node.name, MANAGEMENT_DEVICE),
            *(
                LogicalPort(pod.name, pod.mac, str(pod.address), node.name, machines.port(index))
                for index, pod in enumerate(node.pods, start=1)
            ),
        ),
    )


def _way_out(plan: Plan, node: PlannedNode, cidr: IPv4Network) -> LogicalRoute:
    """By the node itself; Windows nodes' pods leave by the first Linux node."""
    linux = (
        candidate for candidate in plan.nodes if candidate.os == "linux" and candidate.pod_cidr
    )
    by = node if node.os == "linux" else next(linux, node)
    assert by.pod_cidr is not None, "it was chosen for having one"
    return LogicalRoute(str(cidr), str(by.pod_cidr[MANAGEMENT_OFFSET]), by.name)


def check(scenario: Scenario) -> Iterator[Problem]:
    """Pods leave by Linux nodes, so at least one must run pods."""
    groups = scenario.nodes
    if any(group.os == "linux" and group.kubelet for group in groups):
        return
    first = next((i for i, group in enumerate(groups) if group.os == "linux"), 0)
    yield Problem(
        ("nodes", first),
        "no Linux node runs pods, and with OVN only a Linux node can be a gateway",
        'add a Linux node without "kubelet: false"',
    )


HAIRPIN_FRAGMENTS = Limit(
    id="OVN-HAIRPIN-FRAGMENTS",
    when=Match(families=("hairpin",), protocol="udp", size="large"),
    fails="timeout",
    reason=(
        "a pod's fragmented UDP does not come back to it through its Service: OVN recognises "
        "hairpin traffic by its ports, which later fragments do not have in the userspace data "
        "path"
    ),
    source="ovn-kubernetes pull request 4208; ovn-architecture(7); seen with OVN 23.03",
)
WINDOWS_NODEPORT = Limit(
    id="WIN-OVN-NODEPORT",
    when=Match(families=("nodeport",), entry_os="windows"),
    fails="timeout",
    reason="a Windows node of an OVN network does not serve NodePorts: it runs no kube-proxy and "
    "is no gateway",
    source="Using Windows Server Containers in Kubernetes (1.9), OVS & OVN: only the kubelet is "
    "required; ovn-kubernetes, gateway_localnet_windows.go",
)

TOPOLOGY = Topology(
    kind="ovn",
    title="OVN: a logical switch per node, one router, Services as load balancers, Geneve tunnels",
    parameters={},
    build=build,
    also=("ovn-kubernetes", "ovs", "geneve"),
    limits=(HAIRPIN_FRAGMENTS, WINDOWS_NODEPORT, windows_limits.DNS_PARTIAL),
    check=check,
)
