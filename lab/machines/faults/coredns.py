"""A fault of a cluster's DNS: it has no pods."""

from __future__ import annotations

from lab.explain.faults.registry import Fault, FaultChange, FaultSite, change
from lab.machines.cluster.dns import NAMESPACE, replicas_of
from lab.machines.cluster.linux.api import ADMIN
from lab.topology.intent import Intent
from lab.topology.observed import DNS_SELECTOR

_KUBECTL = f"kubectl --kubeconfig={ADMIN} --namespace={NAMESPACE}"
_SCALE = f"{_KUBECTL} --request-timeout=20s scale deployment coredns --replicas="


def _scale_down(intent: Intent, node: str, _: str) -> FaultChange:
    """Done when the pods have gone, and undone when they answer again."""
    return change(
        node,
        [f"{_SCALE}0", f"{_KUBECTL} wait --for=delete pod -l {DNS_SELECTOR} --timeout=50s"],
        [
            f"{_SCALE}{replicas_of(intent)}",
            f"{_KUBECTL} rollout status deployment coredns --timeout=50s",
        ],
    )


COREDNS_SCALED_DOWN = Fault(
    name="coredns-scaled-down",
    title="CoreDNS has no replicas: its Deployment is scaled to 0",
    needs="the role of first control plane, in a cluster with CoreDNS",
    sites=lambda intent: (FaultSite(name) for name in (intent.control_plane(),) if name),
    change=_scale_down,
    also=("coredns-down", "coredns-scaled-to-zero", "no-coredns"),
)
