"""l2bridge on Windows and a plain bridge on Linux: pods without a tunnel, and static routes.

A Windows node's pods are on the node segment: the host answers ARP for them with its own MAC, and
their gateway is network + 2, the node's own cbr0 endpoint (wincni).

Sources: for ``hard-way`` a walk through Kubernetes the Hard Way with a Windows worker (wincni
l2bridge), 2019; for ``host-gateway`` Using Windows Server Containers in Kubernetes (1.9),
Host-Gateway Topology, whose CNI configuration exempts the pod and node ranges from OutBoundNAT.
"""

from __future__ import annotations

from lab.plan.plan import Plan, PlannedNode
from lab.topology import machines, windows_limits
from lab.topology.intent import Intent, MachineIntent, Route
from lab.topology.registry import Topology

BRIDGE = "cbr0"
LINUX_GATEWAY_OFFSET = 1
WINCNI_GATEWAY_OFFSET = 2


def node(
    plan: Plan,
    planned: PlannedNode,
    not_masqueraded: tuple[str, ...],
    routes: tuple[Route, ...] = (),
    bridge: str | None = BRIDGE,
) -> MachineIntent:
    """One node with the routes of its topology and of the scenario.

    If both have a route to the same range, the scenario's wins. Without a bridge the pods are
    routed.
    """
    asked_routes = tuple(
        Route(str(route.to), machines.UPLINK, str(route.via), requested=True)
        for route in planned.routes
    )
    theirs = {route.destination for route in asked_routes}
    windows = planned.os == "windows"
    return machines.node(
        plan,
        planned,
        machines.NodeNetwork(
            bridge=bridge,
            gateway_offset=WINCNI_GATEWAY_OFFSET if windows else LINUX_GATEWAY_OFFSET,
            mtu=plan.node_mtu,
            not_masqueraded=not_masqueraded,
            routes=(*(route for route in routes if route.destination not in theirs), *asked_routes),
            answers_for_pods=windows,
        ),
    )


def routes_to_nodes(plan: Plan, but: str = "") -> tuple[Route, ...]:
    """Every node's pod CIDR through that node, except for the node ``but``."""
    return tuple(
        Route(str(other.pod_cidr), machines.UPLINK, str(other.address))
        for other in plan.nodes
        if other.pod_cidr and other.name != but
    )


def _not_masqueraded(plan: Plan) -> tuple[str, ...]:
    return (str(plan.pod_cidr), str(plan.service_cidr), str(plan.node_cidr))


def _hard_way(plan: Plan) -> Intent:
    """No CNI daemon: the router has the cloud's route table, Windows nodes AddRoutes."""
    nodes = tuple(
        node(
            plan,
            planned,
            _not_masqueraded(plan),
            routes_to_nodes(plan, but=planned.name) if planned.os == "windows" else (),
        )
        for planned in plan.nodes
    )
    return machines.assemble(plan, nodes, machines.router(plan, routes_to_nodes(plan)))


HARD_WAY = Topology(
    kind="hard-way",
    title="Static l2bridge: the cloud's route table, and AddRoutes on Windows nodes",
    parameters={},
    build=_hard_way,
    also=("l2bridge", "static", "kubernetes-the-hard-way"),
    limits=windows_limits.WITHOUT_POD_DNS,
    static_routes=True,
)


def _host_gateway(plan: Plan) -> Intent:
    """Every node has a static route to every other node's pod CIDR; the ToR has none."""
    nodes = tuple(
        node(plan, planned, _not_masqueraded(plan), routes_to_nodes(plan, but=planned.name))
        for planned in plan.nodes
    )
    return machines.assemble(plan, nodes, machines.router(plan))


HOST_GATEWAY = Topology(
    kind="host-gateway",
    title="Host gateway: static routes on every node to every other node's pods",
    parameters={},
    build=_host_gateway,
    also=("host-gw", "hostgw"),
    limits=windows_limits.EVERYWHERE,
    static_routes=True,
)
