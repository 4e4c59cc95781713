"""A node's kube-proxy hangs: later changes do not reach its rules."""

from __future__ import annotations

from lab.explain.faults.fault import Fault, FaultSite, change
from lab.explain.faults.parts import kubelets

_TELL = "pkill -{signal} -x kube-proxy"

FAULT = Fault(
    name="kube-proxy-stopped",
    title="kube-proxy of a node is stopped (SIGSTOP): its rules are no longer updated",
    needs="kube-proxy, which clusters have",
    sites=lambda intent: (
        FaultSite(one.name) for one in kubelets(intent) if one.translation and one.chassis is None
    ),
    change=lambda _, node, __: change(
        node, [_TELL.format(signal="STOP")], [f"{_TELL.format(signal='CONT')} || true"]
    ),
    also=("kube-proxy-hangs", "proxy-stopped"),
)
