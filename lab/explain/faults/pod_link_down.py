"""A pod's cable is unplugged at the node's end."""

from __future__ import annotations

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import hosts, probes
from lab.topology.commands import tables
from lab.topology.intent import Intent


def _change(intent: Intent, node: str, peer: str) -> FaultChange:
    machine = intent.machine(node)
    port = next(pod.port for pod in machine.pods if pod.name == peer)
    up = f"ip link set dev {port} up"
    return change(node, [f"ip link set dev {port} down"], [up, *tables(machine, port)])


FAULT = Fault(
    name="pod-link-down",
    title="a pod's port on its node is down",
    needs="pods",
    sites=lambda intent: (
        FaultSite(one.name, tuple(pod.name for pod in probes(one))) for one in hosts(intent)
    ),
    change=_change,
    peer="pod",
    also=("pod-down",),
)
