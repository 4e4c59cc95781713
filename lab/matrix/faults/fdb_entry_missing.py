"""A tunnel has no forwarding entry for one other node."""

from __future__ import annotations

from collections.abc import Iterator

from lab.matrix.faults.fault import Change, Fault, Site, change
from lab.matrix.faults.parts import hosts, nodes
from lab.topology.commands import replace_entry
from lab.topology.intent import ForwardingEntry, Intent, MachineIntent


def _change(intent: Intent, node: str, peer: str) -> Change:
    entry = _entry(intent.machine(node), intent.machine(peer))
    assert entry is not None, "a site has one"
    gone = f"bridge fdb del {entry.mac} dev {entry.device} dst {entry.remote}"
    return change(node, [gone], [replace_entry(entry.mac, entry.device, entry.remote)])


def _entry(machine: MachineIntent, peer: MachineIntent) -> ForwardingEntry | None:
    mac = peer.tunnel.mac if peer.tunnel else None
    return next((one for one in machine.forwarding if mac and one.mac == mac), None)


def _sites(intent: Intent) -> Iterator[Site]:
    for machine in nodes(intent):
        peers = [one.name for one in hosts(intent) if _entry(machine, one)]
        if peers:
            yield Site(machine.name, tuple(peers))


FAULT = Fault(
    name="fdb-entry-missing",
    title="a node's tunnel has no forwarding entry for one other node",
    needs="a tunnel with forwarding entries",
    sites=_sites,
    change=_change,
    peer="node",
    also=("fdb-missing", "forwarding-entry-missing"),
)
