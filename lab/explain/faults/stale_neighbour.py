"""A machine sends packets for one other to a MAC that no machine has."""

from __future__ import annotations

from collections.abc import Iterator

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import bare, card, carriers, probes
from lab.topology.commands import replace_neighbour
from lab.topology.intent import Intent, MachineIntent, Neighbour

_NOBODY = "02:00:00:00:00:01"
"""Locally administered; the lab assigns none with this prefix."""


def _change(intent: Intent, node: str, peer: str) -> FaultChange:
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
    ends += [bare(text) for text in card(peer).addresses]
    known = {one.address: one for one in machine.neighbours}
    return next((known[end] for end in ends if end in known), None)


def _sites(intent: Intent) -> Iterator[FaultSite]:
    """Machines that carry pods' packets: a node without pods sends nothing to its neighbours.

    Open vSwitch learns its tunnels' neighbours from every received packet, and would correct the
    entry. A chassis that does not forward (OVN on Windows) is excluded as the router's peer, too:
    the router sends it nothing.
    """
    ends = tuple(carriers(intent))
    for machine in (*intent.machines, *intent.hypervisors):
        if machine.kind not in {"router", "hypervisor"} and not probes(machine):
            continue
        if machine.chassis:
            continue
        asked = (one for one in ends if one is not machine and (one.forwards or not one.chassis))
        peers = [one.name for one in asked if _entry(machine, one)]
        if peers:
            yield FaultSite(machine.name, tuple(peers))


FAULT = Fault(
    name="stale-neighbour",
    title="a machine's neighbour entry for another one has a MAC that nobody has",
    needs="pods, or to be the router, and a neighbour entry of the kernel's for another node",
    sites=_sites,
    change=_change,
    peer="node",
    also=("stale-arp", "wrong-neighbour", "stale-neighbor"),
)
