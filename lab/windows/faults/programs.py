"""Faults of a Windows node's programs: services, and flanneld's task."""

from __future__ import annotations

from collections.abc import Callable

from lab.explain.check import START_FLANNEL, STOP_FLANNEL
from lab.explain.faults.registry import Fault, FaultChange, sites_on
from lab.machines.addons.flannel import TOPOLOGIES
from lab.topology.intent import Intent
from lab.windows.faults import ON_EACH, on_node, windows_kubelets


def _stop_service(*names: str) -> Callable[[Intent, str, str], FaultChange]:
    """Stop the first one, with what depends on it; start all, the first one first."""

    def stop(_: Intent, node: str, __: str) -> FaultChange:
        started = (f"Start-Service -Name {name}" for name in names)
        return on_node(node, [f"Stop-Service -Name {names[0]} -Force"], started)

    return stop


def _stopped(title: str, *services: str) -> Fault:
    """The fault of a service that is stopped, with those that depend on it after it."""
    return Fault(
        name=f"{services[0]}-stopped",
        title=title,
        needs="a Windows node of a cluster",
        sites=ON_EACH,
        change=_stop_service(*services),
        windows=True,
    )


KUBELET_STOPPED = _stopped(
    "the kubelet of a Windows node is stopped: the node becomes NotReady", "kubelet"
)
KUBE_PROXY_STOPPED = _stopped(
    "kube-proxy of a Windows node is stopped: its load balancers are no longer updated",
    "kube-proxy",
)
CONTAINERD_STOPPED = _stopped(
    "containerd of a Windows node is stopped, and with it the kubelet", "containerd", "kubelet"
)

FLANNELD_KILLED = Fault(
    name="flanneld-killed",
    title="flanneld of a Windows node was ended, and its task does not start it again",
    needs="flannel, as a cluster's network",
    sites=sites_on(windows_kubelets, lambda intent, _: intent.topology in TOPOLOGIES),
    change=lambda _, node, __: on_node(node, [STOP_FLANNEL], [START_FLANNEL]),
    windows=True,
)
