"""A tunnel end per node with given entries and no learning, as flannel and Calico build it.

Each end has the first address of its node's pod range; other nodes' pods are routed through that
address on the tunnel.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address

from lab._dataclass import dataclass
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
    """One node with its end of the tunnel; none if it has no pods.

    With ``direct``, other nodes' pods are reached without the tunnel. By default traffic to pods is
    not masqueraded.
    """
    others = [other for other in plan.nodes if other.pod_cidr and other.name != planned.name]
    if planned.pod_cidr is None:
        others = []
    return machines.node(
        plan,
        planned,
        machines.NodeNetwork(
            bridge=bridge,
            gateway_offset=1,
            mtu=plan.node_mtu - VXLAN_OVERHEAD,
            not_masqueraded=not_masqueraded or (str(plan.pod_cidr),),
            routes=tuple(_route(other, overlay, direct=direct) for other in others),
            tunnel=tunnel(plan, planned, overlay),
            neighbours=tuple(
                Neighbour(str(end(other)), mac(end(other)), overlay.device) for other in others
            ),
            forwarding=forwarding(others, overlay),
        ),
    )


def end(node: PlannedNode) -> IPv4Address:
    """The address of a node's end of the tunnel."""
    assert node.pod_cidr is not None, "only such nodes have a tunnel"
    return node.pod_cidr[0]


def tunnel(
    plan: Plan, node: PlannedNode, overlay: Overlay, device: str = machines.UPLINK
) -> Tunnel | None:
    """A node's end; None for a node without pods."""
    if node.pod_cidr is None:
        return None
    return Tunnel(
        name=overlay.device,
        vni=overlay.vni,
        port=overlay.port,
        local=str(node.address),
        device=device,
        mac=mac(end(node)),
        addresses=(f"{end(node)}/32",),
        mtu=plan.node_mtu - VXLAN_OVERHEAD,
    )


def forwarding(others: Iterable[PlannedNode], overlay: Overlay) -> tuple[ForwardingEntry, ...]:
    """An FDB entry for each other end."""
    return tuple(
        ForwardingEntry(mac(end(other)), overlay.device, str(other.address)) for other in others
    )


def _route(other: PlannedNode, overlay: Overlay, *, direct: bool) -> Route:
    if direct:
        return Route(str(other.pod_cidr), machines.UPLINK, str(other.address))
    return Route(str(other.pod_cidr), overlay.device, str(end(other)), onlink=True)
