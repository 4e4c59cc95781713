"""Host gateway: every node has a static route to every other node's pod CIDR; the ToR has none.

Source: Using Windows Server Containers in Kubernetes (1.9), Host-Gateway Topology. Its CNI
configuration exempts the pod and node ranges from OutBoundNAT.
"""

from __future__ import annotations

from lab.plan.plan import Plan
from lab.topology import l2bridge, machines, windows_limits
from lab.topology.intent import Intent
from lab.topology.registry import Topology


def build(plan: Plan) -> Intent:
    """Plan to Intent."""
    kept = (str(plan.pod_cidr), str(plan.service_cidr), str(plan.node_cidr))
    nodes = tuple(
        l2bridge.node(plan, node, kept, l2bridge.routes_to_nodes(plan, but=node.name))
        for node in plan.nodes
    )
    return machines.assemble(plan, nodes, machines.router(plan))


TOPOLOGY = Topology(
    kind="host-gateway",
    title="Host gateway: static routes on every node to every other node's pods",
    parameters={},
    build=build,
    also=("host-gw", "hostgw"),
    limits=windows_limits.WITH_WINCNI,
    static_routes=True,
)
