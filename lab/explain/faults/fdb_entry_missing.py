"""A tunnel has no forwarding entry for one other node."""

from __future__ import annotations

from collections.abc import Iterator

from lab.cluster.addons.calico import TOPOLOGIES
from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import carriers, hosts
from lab.topology.commands import replace_entry
from lab.topology.intent import ForwardingEntry, Intent, MachineIntent


def _change(intent: Intent, node: str, peer: str) -> FaultChange:
    entries = _entries(intent.machine(node), intent.machine(peer))
    return change(
        node,
        [f"bridge fdb del {one.mac} dev {one.device} dst {one.remote}" for one in entries],
        [replace_entry(one.mac, one.device, one.remote) for one in entries],
    )


def _entries(machine: MachineIntent, peer: MachineIntent) -> tuple[ForwardingEntry, ...]:
    """A node has one entry per peer; a hypervisor one for every machine on the peer."""
    end = peer.tunnel.local if machine.tunnel and peer.tunnel else None
    return tuple(one for one in machine.forwarding if one.remote == end)


def _sites(intent: Intent) -> Iterator[FaultSite]:
    if intent.kubernetes and intent.topology in TOPOLOGIES:
        return  # Felix chooses the MACs, and writes down none
    ends = (*hosts(intent), *intent.hypervisors)
    for machine in carriers(intent):
        peers = [one.name for one in ends if _entries(machine, one)]
        if peers:
            yield FaultSite(machine.name, tuple(peers))


FAULT = Fault(
    name="fdb-entry-missing",
    title="a node's tunnel has no forwarding entry for one other node",
    needs="a VXLAN tunnel with forwarding entries",
    sites=_sites,
    change=_change,
    peer="node",
    also=("fdb-missing", "forwarding-entry-missing"),
)
