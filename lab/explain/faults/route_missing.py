"""One machine has no route to the pods of one node."""

from __future__ import annotations

from collections.abc import Iterator

from lab.cluster.addons.flannel import keeps_routes
from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import hosts
from lab.topology.commands import replace_route
from lab.topology.intent import BLACKHOLE, Intent, MachineIntent, Route


def _change(intent: Intent, node: str, peer: str) -> FaultChange:
    route = _route(intent.machine(node), intent.machine(peer))
    assert route is not None, "a site has one"
    gone = f"ip route del {route.destination} dev {route.device}"
    return change(node, [gone], [replace_route(route)])


def _route(machine: MachineIntent, peer: MachineIntent) -> Route | None:
    """The machine's static route to the peer's pods; a learned one would return by itself."""
    cidr = peer.translation.local_cidr if peer.translation else None
    static = (one for one in machine.routes if one.by is None and one.device != BLACKHOLE)
    return next((one for one in static if cidr and one.destination == cidr), None)


def _sites(intent: Intent) -> Iterator[FaultSite]:
    for machine in intent.machines:
        if keeps_routes(intent, machine):
            continue
        peers = [one.name for one in hosts(intent) if _route(machine, one)]
        if peers:
            yield FaultSite(machine.name, tuple(peers))


FAULT = Fault(
    name="route-missing",
    title="a machine has no route to the pods of one other node",
    needs="a route of its own to another node's pods",
    sites=_sites,
    change=_change,
    peer="node",
    also=("no-route", "route-gone"),
)
