"""Calico takes a node's pool for a routed one: packets from its pods are not masqueraded."""

from __future__ import annotations

from lab.explain.faults import parts
from lab.explain.faults.fault import Fault

FAULT = Fault(
    name="wrong-pool",
    title="a node's IPPool has natOutgoing off: packets of its pods leave with the pods' addresses",
    needs=parts.NEEDS_CALICO,
    sites=parts.calico_nodes,
    change=lambda intent, node, _: parts.pool_changed(intent, node, {"natOutgoing": False}),
    also=("pool-wrong", "wrong-ippool", "nat-outgoing-off"),
)
