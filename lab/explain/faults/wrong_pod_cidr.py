"""flannel's file on a node has another pod CIDR than the Node, as after a new kubeadm init.

Existing pods keep their addresses; new ones get unreachable addresses, or none.
"""

from __future__ import annotations

from ipaddress import ip_network

from lab.cluster.addons.flannel import SUBNET, TOPOLOGIES, subnet_line
from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import kubelets
from lab.topology.intent import Intent


def _change(intent: Intent, node: str, _: str) -> FaultChange:
    kubelet = intent.machine(node).kubelet
    assert kubelet, "a site has one"
    assert kubelet.pod_cidr, "a site has one"
    return change(
        node, [_set(_nobodys(intent))], [f"[ ! -e {SUBNET} ] || {_set(kubelet.pod_cidr)}"]
    )


def _set(cidr: str) -> str:
    return f"sed -i 's#^FLANNEL_SUBNET=.*#{subnet_line(cidr)}#' {SUBNET}"


def _nobodys(intent: Intent) -> str:
    """The last part of the cluster's pod CIDR that no node has."""
    assert intent.kubernetes, "a site is in a cluster"
    taken = [
        ip_network(one.kubelet.pod_cidr)
        for one in intent.machines
        if one.kubelet and one.kubelet.pod_cidr
    ]
    whole = ip_network(intent.kubernetes.pod_cidr)
    parts = list(whole.subnets(new_prefix=taken[0].prefixlen))
    return str(next(one for one in reversed(parts) if one not in taken))


FAULT = Fault(
    name="wrong-pod-cidr",
    title="flannel on a node hands out addresses outside the Node's pod CIDR",
    needs="flannel, as a cluster's network",
    sites=lambda intent: (
        FaultSite(one.name) for one in kubelets(intent) if intent.topology in TOPOLOGIES
    ),
    change=_change,
    also=("wrong-podcidr", "wrong-subnet", "pod-cidr-mismatch"),
)
