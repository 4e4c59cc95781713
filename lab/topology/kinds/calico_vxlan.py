"""Calico's VXLAN: an address block per node, and a tunnel that Felix programs; no BGP.

Source: Calico's documentation, "Overlay networking" and the operator's installation reference: VNI
4096 and UDP port 4789 by default, which Windows also requires, and the device ``vxlan.calico``. It
is the mode of Calico's operator for Windows nodes. Linux nodes have no bridge, as seen on nodes of
Calico 3.31.
"""

from __future__ import annotations

from lab.plan.plan import Plan, PlannedNode
from lab.topology import machines, vxlan, windows_limits
from lab.topology.intent import Intent, MachineIntent
from lab.topology.registry import Topology

OVERLAY = vxlan.Overlay(device="vxlan.calico", vni=4096, port=4789)

NODE_POD = windows_limits.OVERLAY_NODE_POD.replace(
    reason="on an overlay network of HNS a Windows node reaches its own pods only, not those of "
    "other nodes",
    source="Kubernetes documentation, Windows: overlay networks (said of flannel; the network "
    "that Calico makes is of the same kind)",
)


def build(plan: Plan) -> Intent:
    """Plan to Intent."""
    nodes = tuple(_node(plan, node) for node in plan.nodes)
    return machines.assemble(plan, nodes, machines.router(plan))


def _node(plan: Plan, node: PlannedNode) -> MachineIntent:
    if node.os == "windows":
        return vxlan.node(plan, node, OVERLAY)
    kept = machines.blocks(plan)
    return vxlan.node(plan, node, OVERLAY, bridge=None, not_masqueraded=kept)


TOPOLOGY = Topology(
    kind="calico-vxlan",
    title="Calico over VXLAN: /26 blocks behind vxlan.calico, without BGP",
    parameters={},
    build=build,
    limits=(NODE_POD, *windows_limits.EVERYWHERE),
    node_prefix=26,
)
