"""l2bridge on Windows and a plain bridge on Linux: pods without a tunnel.

A Windows node's pods are on the node segment: the host answers ARP for them with its own MAC, and
their gateway is network + 2, the node's own cbr0 endpoint (wincni).
"""

from __future__ import annotations

from lab.plan.plan import Plan, PlannedNode
from lab.topology import machines
from lab.topology.intent import MachineIntent, Route

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
    asked = tuple(
        Route(str(one.to), machines.UPLINK, str(one.via), asked=True) for one in planned.routes
    )
    theirs = {route.destination for route in asked}
    windows = planned.os == "windows"
    return machines.node(
        plan,
        planned,
        machines.NodeNetwork(
            bridge=bridge,
            gateway_offset=WINCNI_GATEWAY_OFFSET if windows else LINUX_GATEWAY_OFFSET,
            mtu=plan.node_mtu,
            not_masqueraded=not_masqueraded,
            routes=(*(one for one in routes if one.destination not in theirs), *asked),
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
