"""What is put into a cluster once it has an API: its pod network and its DNS. Pure."""

from __future__ import annotations

from lab.cluster import calico, dns, flannel, ovn_kubernetes
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import Cluster
from lab.cluster.documents import Document
from lab.cluster.linux import by_hand
from lab.topology.intent import Intent

Wave = tuple[Document, ...]


def waves(cluster: Cluster, intent: Intent, manifest: Manifest) -> tuple[Wave, ...]:
    """Every document, in the order they are wanted: a later wave has kinds that an earlier brings.

    Where no network add-on is, the nodes' own bridges and the routes around them are the pod
    network. kube-proxy is kubeadm's own DaemonSet, or a unit where there is no kubeadm.
    """
    rights = by_hand.kubelet_rights() if cluster.how == "by-hand" else ()
    names = dns.documents(cluster, manifest)
    if cluster.topology in flannel.TOPOLOGIES:
        return ((*rights, *flannel.documents(cluster, intent, manifest), *names),)
    if cluster.topology in calico.TOPOLOGIES:
        return (
            (*rights, *calico.operator(cluster, manifest), *names),
            calico.installation(cluster, intent),
            calico.configuration(cluster, intent),
        )
    if cluster.topology in ovn_kubernetes.TOPOLOGIES:
        return ((*rights, *ovn_kubernetes.documents(cluster, intent, manifest), *names),)
    return ((*rights, *names),)


def documents(cluster: Cluster, intent: Intent, manifest: Manifest) -> Wave:
    """All waves as one."""
    return tuple(one for wave in waves(cluster, intent, manifest) for one in wave)
