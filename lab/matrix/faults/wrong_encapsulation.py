"""Calico has another way to a node's pods than the others' network has: no packet gets there."""

from __future__ import annotations

from lab.cluster.calico import VXLAN
from lab.matrix.faults import calico_parts
from lab.matrix.faults.fault import Change, Fault
from lab.topology.intent import Intent


def _change(intent: Intent, node: str, _: str) -> Change:
    wrong = "Never" if intent.topology == VXLAN else "Always"
    return calico_parts.pool_changed(intent, node, {"vxlanMode": wrong})


FAULT = Fault(
    name="wrong-encapsulation",
    title="a node's IPPool has the other encapsulation: VXLAN where there is none, or none",
    needs=calico_parts.NEEDS,
    sites=calico_parts.sites,
    change=_change,
    also=("encapsulation-wrong", "vxlan-mode-wrong"),
)
