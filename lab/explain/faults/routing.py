"""Faults of where packets are sent: routes, neighbours, BGP sessions, virtual gateways."""

from __future__ import annotations

from collections.abc import Iterator

from lab.explain.faults.registry import (
    Fault,
    FaultChange,
    FaultCommand,
    FaultSite,
    barred,
    carriers,
    change,
    hosts,
    probes,
    runs_windows,
    with_peers,
)
from lab.facts.command_lines import in_powershell
from lab.topology.commands import replace_neighbour, replace_route
from lab.topology.footprint import bird_of, cluster_footprint
from lab.topology.intent import BLACKHOLE, Intent, MachineIntent, Neighbour, Route
from lab.topology.routing import bare


def _without_route(intent: Intent, node: str, peer: str) -> FaultChange:
    route = _route(intent.machine(node), intent.machine(peer))
    assert route is not None, "a site has one"
    gone = f"ip route del {route.destination} dev {route.device}"
    return change(node, [gone], [replace_route(route)])


def _route(machine: MachineIntent, peer: MachineIntent) -> Route | None:
    """The machine's static route to the peer's pods; a learned one would return by itself."""
    cidr = peer.translation.local_cidr if peer.translation else None
    static = (route for route in machine.routes if route.by is None and route.device != BLACKHOLE)
    return next((route for route in static if cidr and route.destination == cidr), None)


def _keeps_routes(intent: Intent, machine: MachineIntent) -> bool:
    """Whether the cluster's network add-on puts a missing route of the machine back."""
    return bool(machine.kubelet) and intent.topology in cluster_footprint(intent).keeps_routes


ROUTE_MISSING = Fault(
    name="route-missing",
    title="a machine has no route to the pods of one other node",
    needs="a route of its own to another node's pods",
    sites=lambda intent: with_peers(
        (machine for machine in intent.machines if not _keeps_routes(intent, machine)),
        lambda machine: (host.name for host in hosts(intent) if _route(machine, host)),
    ),
    change=_without_route,
    peer="node",
    also=("no-route", "route-gone"),
)

_NOBODY = "02:00:00:00:00:01"
"""Locally administered; the lab assigns none with this prefix."""


def _stale(intent: Intent, node: str, peer: str) -> FaultChange:
    entry = _entry(intent.machine(node), intent.machine(peer))
    assert entry is not None, "a site has one"
    return change(
        node,
        [replace_neighbour(entry.address, _NOBODY, entry.device)],
        [replace_neighbour(entry.address, entry.mac, entry.device)],
    )


def _entry(machine: MachineIntent, peer: MachineIntent) -> Neighbour | None:
    """The peer's entry at the end of the tunnel or, without a tunnel, at its interface."""
    ends = [bare(text) for text in peer.tunnel.addresses] if machine.tunnel and peer.tunnel else []
    ends += [bare(text) for text in peer.card.addresses]
    known = {neighbour.address: neighbour for neighbour in machine.neighbours}
    return next((known[end] for end in ends if end in known), None)


def _with_entries(intent: Intent) -> Iterator[FaultSite]:
    """Machines that carry pods' packets: a node without pods sends nothing to its neighbours.

    Open vSwitch learns its tunnels' neighbours from every received packet, and would correct the
    entry. A chassis that does not forward (OVN on Windows) is excluded as the router's peer, too:
    the router sends it nothing. Felix chooses its tunnels' MACs, and writes down none.
    """
    own_macs = cluster_footprint(intent).own_macs
    ends = [carrier for carrier in carriers(intent) if carrier.forwards or not carrier.chassis]
    return with_peers(
        (
            machine
            for machine in (*intent.machines, *intent.hypervisors)
            if machine.chassis is None
            and (machine.kind in {"router", "hypervisor"} or probes(machine))
            if not (own_macs and machine.tunnel)
        ),
        lambda own: (end.name for end in ends if end is not own and _entry(own, end)),
    )


STALE_NEIGHBOUR = Fault(
    name="stale-neighbour",
    title="a machine's neighbour entry for another one has a MAC that no machine has",
    needs="pods or the role of router, and a neighbour entry of the kernel for another node",
    sites=_with_entries,
    change=_stale,
    peer="node",
    also=("stale-arp", "wrong-neighbour", "stale-neighbor"),
)


def _without_session(intent: Intent, node: str, peer: str) -> FaultChange:
    machine = intent.machine(node)
    assert machine.speaker is not None, "a site has one"
    session = next(session for session in machine.speaker.sessions if session.machine == peer)
    control = bird_of(intent, machine, "kubernetes" if intent.kubernetes else "lab")
    return change(node, [control.disable(session)], [control.enable(session)])


BGP_SESSION_DOWN = Fault(
    name="bgp-session-down",
    title="a machine has disabled its BGP session with another one, which withdraws the routes",
    needs="a BGP session",
    sites=lambda intent: with_peers(
        intent.machines,
        lambda own: (session.machine for session in (own.speaker.sessions if own.speaker else ())),
    ),
    change=_without_session,
    peer="node",
    also=("bgp-down", "session-down", "bgp-session-shut"),
)

_HOOK = "output"
_CHAIN = f"type filter hook {_HOOK} priority 0;"


def _mute_gateway(intent: Intent, node: str, peer: str) -> FaultChange:
    """Drop ARP for its MAC, and flush the entry of the node behind it.

    The holder keeps advertising the gateway (VRRP), so the other candidates do not take over.
    """
    gateway = next(gateway for gateway in intent.gateways if gateway.node == peer)
    address = bare(gateway.address)
    dropped = f"arp saddr ip {address} counter drop"
    mute = barred(node, f"gateway-dead {peer}", _HOOK, 0, [dropped], "arp")
    forget = f"ip neighbour flush to {address} dev {gateway.device}"
    if runs_windows(intent, peer):
        forget = in_powershell(f"Remove-NetNeighbor -IPAddress {address} -Confirm:$false")
    forgotten = FaultCommand(peer, forget)
    return FaultChange((*mute.do, forgotten), mute.undo)


GATEWAY_DEAD = Fault(
    name="gateway-dead",
    title="a virtual gateway does not answer, while its holder advertises it (VRRP)",
    needs="a virtual gateway that it holds",
    sites=lambda intent: with_peers(
        intent.machines,
        lambda machine: (
            gateway.node for gateway in intent.gateways if gateway.holder == machine.name
        ),
    ),
    change=_mute_gateway,
    peer="node",
    also=("gateway-address-dead", "vip-dead", "vrrp-dead", "virtual-address-dead"),
    asks=f"printf '%s\\n' 'table arp tried {{' 'chain tried {{' '{_CHAIN}' '}}' '}}' | nft -c -f -",
)
