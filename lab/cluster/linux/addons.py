"""What is put into a cluster once it has an API: its pod network and its DNS. Pure."""

from __future__ import annotations

from lab.cluster import dns, flannel
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import Cluster
from lab.cluster.documents import Document
from lab.cluster.linux import by_hand
from lab.topology.intent import Intent


def documents(cluster: Cluster, intent: Intent, manifest: Manifest) -> tuple[Document, ...]:
    """Every document, in the order they are wanted.

    Where no flannel is, the nodes' own bridges and the router's routes are the pod network.
    kube-proxy is kubeadm's own DaemonSet, or a unit where there is no kubeadm.
    """
    network = (
        flannel.documents(cluster, intent, manifest)
        if cluster.topology in flannel.TOPOLOGIES
        else ()
    )
    rights = by_hand.kubelet_rights() if cluster.how == "by-hand" else ()
    return (*rights, *network, *dns.documents(cluster, manifest))
