"""Upstream router: nodes have only a default route; the ToR has a route to every pod CIDR.

Sources: Using Windows Server Containers in Kubernetes (1.9), Upstream L3 Routing Topology, and a
field report of the same with wincni, whose OutBoundNAT exempts the pod and service ranges.
"""

from __future__ import annotations

from lab.plan.plan import Plan
from lab.topology import machines, windows_limits
from lab.topology.intent import Intent
from lab.topology.kinds import l2bridge
from lab.topology.registry import Topology


def build(plan: Plan) -> Intent:
    """Plan to Intent."""
    kept = (str(plan.pod_cidr), str(plan.service_cidr))
    nodes = tuple(l2bridge.node(plan, node, kept) for node in plan.nodes)
    return machines.assemble(plan, nodes, machines.router(plan, l2bridge.routes_to_nodes(plan)))


TOPOLOGY = Topology(
    kind="upstream-tor",
    title="Upstream router: the ToR holds a route to every node's pods",
    parameters={},
    build=build,
    also=("tor", "upstream", "router"),
    limits=windows_limits.WITHOUT_POD_DNS,
)
