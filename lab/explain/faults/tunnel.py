"""Faults of one machine's tunnel: wrong values, blocked packets, a missing forwarding entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from lab.explain.faults.registry import (
    Fault,
    FaultChange,
    FaultSite,
    barred,
    carriers,
    change,
    hosts,
    sites_on,
    with_peers,
)
from lab.topology.commands import remade_tunnel, replace_entry
from lab.topology.footprint import cluster_footprint
from lab.topology.intent import ForwardingEntry, Intent, MachineIntent, Tunnel
from lab.topology.logical import GENEVE_PORT

_tunnelled = sites_on(carriers, lambda _, machine: machine.tunnel)
_remakable = sites_on(
    carriers, lambda intent, machine: machine.tunnel and not cluster_footprint(intent).own_macs
)
"""Felix gives a tunnel a MAC that peers know; with the intended one it would be another tunnel."""


def _tunnel(machine: MachineIntent) -> Tunnel:
    assert machine.tunnel is not None, "a site has one"
    return machine.tunnel


def _remade(
    wrong: Callable[[Tunnel], Tunnel],
) -> Callable[[Intent, str, str], FaultChange]:
    """Replace the machine's tunnel by a wrong one, derived from the right one."""

    def remake(intent: Intent, node: str, _: str) -> FaultChange:
        machine = intent.machine(node)
        right = _tunnel(machine)
        return change(node, remade_tunnel(machine, wrong(right)), remade_tunnel(machine, right))

    return remake


WRONG_VNI = Fault(
    name="wrong-vni",
    title="a node's tunnel has another VNI than the others",
    needs="a VXLAN tunnel",
    sites=_remakable,
    change=_remade(lambda right: replace(right, vni=right.vni + 1)),
    also=("vni", "wrong-id"),
)
WRONG_UDP_PORT = Fault(
    name="wrong-udp-port",
    title="a node's tunnel has another UDP port than the others",
    needs="a VXLAN tunnel",
    sites=_remakable,
    change=_remade(lambda right: replace(right, port=right.port + 1)),
    also=("wrong-port", "vxlan-port"),
)

_PRIORITY = 100
"""Higher than that of the single flow that switches everything."""


def _barred(machine: MachineIntent, fault: str, verdict: str) -> FaultChange:
    """Block the tunnel's packets in the machine's firewall: ``"drop"`` or ``"reject"``."""
    rule = f"udp dport {_tunnel(machine).port} counter {verdict}"
    return barred(machine.name, fault, "input", -150, [rule])


def _dropped(intent: Intent, node: str, _: str) -> FaultChange:
    machine = intent.machine(node)
    if machine.chassis is None:
        return _barred(machine, "tunnel-udp-dropped", "drop")
    # the kernel's firewall does not see the packets of a user-space switch
    bridge, flow = machine.card.name, f"priority={_PRIORITY},udp,tp_dst={GENEVE_PORT}"
    return change(
        node,
        [f"ovs-ofctl --timeout=10 add-flow {bridge} {flow},actions=drop"],
        [f"ovs-ofctl --timeout=10 --strict del-flows {bridge} {flow}"],
    )


TUNNEL_UDP_DROPPED = Fault(
    name="tunnel-udp-dropped",
    title="a node drops the tunnel's UDP packets silently",
    needs="a tunnel",
    sites=sites_on(carriers, lambda _, machine: machine.tunnel or machine.chassis),
    change=_dropped,
    also=("udp-4789-dropped", "udp-dropped", "vxlan-dropped"),
)
TUNNEL_UDP_REJECTED = Fault(
    name="tunnel-udp-rejected",
    title="a node rejects the tunnel's UDP packets with an ICMP error",
    needs="a VXLAN tunnel",
    sites=_tunnelled,
    change=lambda intent, node, _: _barred(intent.machine(node), "tunnel-udp-rejected", "reject"),
    also=("udp-4789-rejected", "udp-rejected", "vxlan-rejected"),
)


def _without_entries(intent: Intent, node: str, peer: str) -> FaultChange:
    entries = _entries(intent.machine(node), intent.machine(peer))
    return change(
        node,
        [f"bridge fdb del {entry.mac} dev {entry.device} dst {entry.remote}" for entry in entries],
        [replace_entry(entry.mac, entry.device, entry.remote) for entry in entries],
    )


def _entries(machine: MachineIntent, peer: MachineIntent) -> tuple[ForwardingEntry, ...]:
    """A node has one entry per peer; a hypervisor one for every machine on the peer."""
    end = peer.tunnel.local if machine.tunnel and peer.tunnel else None
    return tuple(entry for entry in machine.forwarding if entry.remote == end)


def _with_entries(intent: Intent) -> Iterator[FaultSite]:
    if cluster_footprint(intent).own_macs:
        return iter(())  # it chooses the MACs, and writes down none
    ends = (*hosts(intent), *intent.hypervisors)
    return with_peers(
        carriers(intent), lambda machine: (end.name for end in ends if _entries(machine, end))
    )


FDB_ENTRY_MISSING = Fault(
    name="fdb-entry-missing",
    title="a node's tunnel has no forwarding entry for one other node",
    needs="a VXLAN tunnel with forwarding entries",
    sites=_with_entries,
    change=_without_entries,
    peer="node",
    also=("fdb-missing", "forwarding-entry-missing"),
)
