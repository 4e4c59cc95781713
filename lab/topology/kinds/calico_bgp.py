"""Calico's routes by BGP: an address block per node, announced to every node or to the ToR.

Sources: Calico's documentation, "Configure BGP peering" (the node-to-node mesh, AS 64512) and
"Calico over IP fabrics" (the AS per compute server model, for peering with the ToR). Calico for
Windows speaks BGP through Windows' own RRAS, without the operator; that is unverified here, and
emulated Windows nodes run BIRD instead. Linux nodes have no bridge, as seen on nodes of Calico
3.31.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lab.plan.plan import Plan, PlannedNode
from lab.topology import bird, machines, windows_limits
from lab.topology.intent import Intent, MachineIntent, Route, Session, Speaker
from lab.topology.kinds import l2bridge
from lab.topology.registry import Topology, in_range, one_of, parameter

ASN = 64_512
"""Calico's default AS number for all nodes in a mesh; the ToR's if nodes peer with it."""
FIRST_NODE_ASN = 64_513
"""AS numbers of nodes that peer with the ToR, one each: the last private 16-bit number is 65534
(RFC 6996).
"""
MESH, TOR = "mesh", "tor"
LEAST_HOLD_SECONDS = 3
"""RFC 4271, 4.2."""
MOST_HOLD_SECONDS = 240
"""Default of BIRD and Calico."""


def build(plan: Plan) -> Intent:
    """Plan to Intent."""
    by_tor = parameter(plan, "peering") == TOR
    nodes = tuple(
        _with_speaker(
            _node(plan, node),
            plan,
            _make_speaker(plan, number, node, by_tor=by_tor),
            tuple(_learned_routes(plan, node, by_tor=by_tor)),
        )
        for number, node in enumerate(plan.nodes)
    )
    router = machines.router(plan)
    if by_tor:
        learned = tuple(replace(route, by=bird.NAME) for route in l2bridge.routes_to_nodes(plan))
        router = _with_speaker(router, plan, _make_tor(plan), learned)
    return machines.assemble(plan, nodes, router)


def _node(plan: Plan, node: PlannedNode) -> MachineIntent:
    if node.os == "windows":
        return l2bridge.node(plan, node, (str(plan.pod_cidr), str(plan.service_cidr)))
    return l2bridge.node(plan, node, machines.blocks(plan), bridge=None)


def _with_speaker(
    machine: MachineIntent, plan: Plan, speaker: Speaker, learned: tuple[Route, ...]
) -> MachineIntent:
    return replace(
        machine,
        routes=(*machine.routes, *learned),
        speaker=speaker,
        daemons=(bird.daemon(speaker, str(plan.pod_cidr), learned),),
    )


def _make_speaker(plan: Plan, number: int, node: PlannedNode, *, by_tor: bool) -> Speaker:
    if by_tor:
        sessions: tuple[Session, ...] = (Session(machines.ROUTER, str(plan.router_address), ASN),)
    else:
        sessions = tuple(
            Session(other.name, str(other.address), ASN)
            for other in plan.nodes
            if other.name != node.name
        )
    return Speaker(
        address=str(node.address),
        asn=FIRST_NODE_ASN + number if by_tor else ASN,
        sessions=sessions,
        announces=(l2bridge.BRIDGE,) if node.pod_cidr and node.os == "windows" else (),
        hold_seconds=parameter(plan, "hold_seconds"),
        blocks=(str(node.pod_cidr),) if node.pod_cidr and node.os == "linux" else (),
    )


def _make_tor(plan: Plan) -> Speaker:
    return Speaker(
        address=str(plan.router_address),
        asn=ASN,
        sessions=tuple(
            Session(node.name, str(node.address), FIRST_NODE_ASN + number)
            for number, node in enumerate(plan.nodes)
        ),
        announces=(),
        hold_seconds=parameter(plan, "hold_seconds"),
        passes_on=True,
    )


def _learned_routes(plan: Plan, node: PlannedNode, *, by_tor: bool) -> Iterator[Route]:
    """The routes that the node learns: every other block, through that node or through the ToR."""
    for route in l2bridge.routes_to_nodes(plan, but=node.name):
        via = str(plan.router_address) if by_tor else route.via
        yield replace(route, via=via, by=bird.NAME)


TOPOLOGY = Topology(
    kind="calico-bgp",
    title="Calico over BGP: every node announces its block, to all nodes or to the ToR",
    parameters={
        "peering": one_of(
            "is not a peering mode",
            "Peers of a node: every other node, or the router",
            {MESH: "every node with every other", TOR: "every node with the router"},
        ),
        "hold_seconds": in_range(
            "a BGP hold time",
            "After this long without a message, a peer and its routes are removed",
            9,
            least=LEAST_HOLD_SECONDS,
            most=MOST_HOLD_SECONDS,
            unit="seconds",
        ),
    },
    build=build,
    also=("bgp", "calico", "bird"),
    limits=windows_limits.EVERYWHERE,
    node_prefix=26,
)
