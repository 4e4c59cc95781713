"""Static l2bridge as in hard-way: no CNI daemon; the router has the cloud's route table.

Only Windows nodes have static routes of their own (AddRoutes). Source: a walk through
Kubernetes the Hard Way with a Windows worker (wincni l2bridge), 2019.
"""

from __future__ import annotations

from lab.plan.plan import Plan, PlannedNode
from lab.topology import l2bridge, machines, windows_limits
from lab.topology.intent import Intent, MachineIntent
from lab.topology.registry import Topology


def build(plan: Plan) -> Intent:
    """Plan to Intent."""
    nodes = tuple(_node(plan, node) for node in plan.nodes)
    return machines.assemble(plan, nodes, machines.router(plan, l2bridge.routes_to_nodes(plan)))


def _node(plan: Plan, node: PlannedNode) -> MachineIntent:
    kept = (str(plan.pod_cidr), str(plan.service_cidr), str(plan.node_cidr))
    own = l2bridge.routes_to_nodes(plan, but=node.name) if node.os == "windows" else ()
    return l2bridge.node(plan, node, kept, own)


TOPOLOGY = Topology(
    kind="hard-way",
    title="Static l2bridge: the cloud's route table, and AddRoutes on Windows nodes",
    parameters={},
    build=build,
    also=("l2bridge", "static", "kubernetes-the-hard-way"),
    limits=windows_limits.WITH_WINCNI,
    static_routes=True,
)
