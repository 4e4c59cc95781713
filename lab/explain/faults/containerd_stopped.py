"""A node's containerd is stopped: its pods keep running, and the kubelet reports NotReady."""

from __future__ import annotations

from lab.explain.faults.fault import Fault, FaultSite, change
from lab.explain.faults.parts import kubelets

FAULT = Fault(
    name="containerd-stopped",
    title="containerd of a node is stopped: running pods keep working, new ones cannot start",
    needs="containerd, which the nodes of clusters have",
    sites=lambda intent: (FaultSite(one.name) for one in kubelets(intent)),
    change=lambda _, node, __: change(
        node, ["systemctl stop containerd"], ["systemctl start containerd"]
    ),
    also=("containerd-down", "runtime-down"),
)
