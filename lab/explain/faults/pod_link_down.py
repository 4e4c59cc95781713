"""The pod's cable is pulled, at the node's end."""

from __future__ import annotations

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import hosts, probes
from lab.topology.intent import Intent


def _change(intent: Intent, node: str, peer: str) -> FaultChange:
    port = next(pod.port for pod in intent.machine(node).pods if pod.name == peer)
    return change(node, [f"ip link set dev {port} down"], [f"ip link set dev {port} up"])


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
