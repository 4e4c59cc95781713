"""A tunnel end a node, entries given and never learned: what flannel and Calico both build.

Each end has the first address of its node's pod range; the other nodes' pods are behind that
address on the tunnel.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.plan.plan import Plan, PlannedNode, mac
from lab.plan.planner import VXLAN_OVERHEAD
from lab.topology import machines
from lab.topology.intent import ForwardingEntry, MachineIntent, Neighbour, Route, Tunnel

BRIDGE = "cni0"


@dataclass(frozen=True, slots=True)
class Overlay:
    """What all ends of the tunnel have in common."""

    device: str
    vni: int
    port: int


def node(  # noqa: PLR0913  what is decided of a node
    plan: Plan,
    planned: PlannedNode,
    overlay: Overlay,
    *,
    direct: bool = False,
    bridge: str | None = BRIDGE,
    not_masqueraded: tuple[str, ...] = (),
) -> MachineIntent:
    """One node with its end of the tunnel; without one where it has no pods.

    With ``direct`` other nodes' pods are reached without the tunnel. Where nothing else is said,
    what goes to any pod is not masqueraded.
    """
    tunnel = _tunnel(plan, planned, overlay)
    others = [other for other in plan.nodes if other.pod_cidr and other.name != planned.name]
    return machines.node(
        plan,
        planned,
        machines.NodeNetwork(
            bridge=bridge,
            gateway_offset=1,
            mtu=plan.node_mtu - VXLAN_OVERHEAD,
            not_masqueraded=not_masqueraded or (str(plan.pod_cidr),),
            routes=tuple(_route(other, tunnel, direct=direct) for other in others)
            if tunnel
            else (),
            tunnel=tunnel,
            neighbours=tuple(
                Neighbour(str(other.pod_cidr[0]), mac(other.pod_cidr[0]), tunnel.name)
                for other in others
                if tunnel and other.pod_cidr
            ),
            forwarding=tuple(
                ForwardingEntry(mac(other.pod_cidr[0]), tunnel.name, str(other.address))
                for other in others
                if tunnel and other.pod_cidr
            ),
        ),
    )


def _tunnel(plan: Plan, node: PlannedNode, overlay: Overlay) -> Tunnel | None:
    if node.pod_cidr is None:
        return None
    return Tunnel(
        name=overlay.device,
        vni=overlay.vni,
        port=overlay.port,
        local=str(node.address),
        device=machines.UPLINK,
        mac=mac(node.pod_cidr[0]),
        addresses=(f"{node.pod_cidr[0]}/32",),
        mtu=plan.node_mtu - VXLAN_OVERHEAD,
    )


def _route(other: PlannedNode, tunnel: Tunnel, *, direct: bool) -> Route:
    if direct:
        return Route(str(other.pod_cidr), machines.UPLINK, str(other.address))
    end = str(other.pod_cidr).split("/")[0]
    return Route(str(other.pod_cidr), tunnel.name, end, onlink=True)
