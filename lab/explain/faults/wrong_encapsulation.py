"""Calico reaches a node's pods in another way than the other nodes' pods: no packet arrives."""

from __future__ import annotations

from dataclasses import replace

from lab.cluster.addons.calico import VXLAN
from lab.explain.faults import parts
from lab.explain.faults.fault import Fault, FaultChange, FaultCommand
from lab.topology.intent import Intent

_SECONDS = 30


def _change(intent: Intent, node: str, _: str) -> FaultChange:
    """Undone once the control plane's own route to the block is restored."""
    wrong = "Never" if intent.topology == VXLAN else "Always"
    made = parts.pool_changed(intent, node, {"vxlanMode": wrong})
    central, kubelet = intent.machine(intent.control_plane()), intent.machine(node).kubelet
    block = kubelet.pod_cidr if kubelet else None
    ways = [one for one in central.routes if one.destination == block and one.via]
    if not ways:
        return made
    there = f"ip route show {block} | grep -q 'dev {ways[0].device}'"
    wait = f"for second in $(seq {_SECONDS}); do ! {there} || break; sleep 1; done; {there}"
    return replace(made, undo=(*made.undo, FaultCommand(central.name, wait)))


FAULT = Fault(
    name="wrong-encapsulation",
    title="a node's IPPool has the wrong encapsulation: VXLAN instead of none, or none instead",
    needs=parts.NEEDS_CALICO,
    sites=parts.calico_nodes,
    change=_change,
    also=("encapsulation-wrong", "vxlan-mode-wrong"),
)
