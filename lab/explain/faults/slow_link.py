"""A node sends slowly."""

from __future__ import annotations

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import carriers, wire
from lab.topology.intent import Intent

_SHAPE = "tbf rate 1mbit burst 16kb latency 100ms"
"""A large probe of 64 KiB then takes half a second."""


def _change(intent: Intent, node: str, _: str) -> FaultChange:
    device = wire(intent.machine(node))
    there = f"tc qdisc show dev {device} | grep -q '^qdisc tbf'"
    return change(
        node,
        [f"tc qdisc replace dev {device} root {_SHAPE}"],
        [f"if {there}; then tc qdisc del dev {device} root; fi"],
    )


FAULT = Fault(
    name="slow-link",
    title="a node's card sends one megabit a second",
    needs="to be a node, or a hypervisor of the lab's own",
    sites=lambda intent: (FaultSite(one.name) for one in carriers(intent)),
    change=_change,
    also=("slow", "bandwidth"),
    asks=f"tc qdisc add dev lo root {_SHAPE} && tc qdisc del dev lo root",
)
