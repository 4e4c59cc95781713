"""A node's network cable is unplugged."""

from __future__ import annotations

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import carriers, wire
from lab.topology.commands import tables
from lab.topology.intent import Intent


def _change(intent: Intent, node: str, _: str) -> FaultChange:
    machine = intent.machine(node)
    device = wire(machine)
    up = f"ip link set dev {device} up"
    return change(node, [f"ip link set dev {device} down"], [up, *tables(machine, device)])


FAULT = Fault(
    name="node-link-down",
    title="a node's card on the nodes' network is down",
    needs="to be a node, or a hypervisor of the lab's own",
    sites=lambda intent: (FaultSite(one.name) for one in carriers(intent)),
    change=_change,
    also=("link-down", "cable-pulled"),
)
