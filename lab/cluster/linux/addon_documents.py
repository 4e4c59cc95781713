"""What is put into a cluster once it has an API: its pod network and its DNS. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lab.cluster import dns
from lab.cluster.addons.addon import DaemonSet
from lab.cluster.addons.registry import addons
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import Cluster
from lab.cluster.documents import Document
from lab.cluster.linux import by_hand
from lab.topology.intent import Intent


@dataclass(frozen=True, slots=True)
class Wave:
    """Documents that are applied at once."""

    documents: tuple[Document, ...]
    after: DaemonSet | None = None
    """What must run on every node first."""


def waves(cluster: Cluster, intent: Intent, manifest: Manifest) -> tuple[Wave, ...]:
    """Every document, in the order they are wanted: a later wave has kinds that an earlier brings.

    CoreDNS comes once the pod network is there: a pod that is refused its network is tried again
    after 13 s. Where no network add-on is, the nodes' own bridges and the routes around them are
    the pod network. kube-proxy is kubeadm's own DaemonSet, or a unit where there is no kubeadm.
    """
    rights = by_hand.kubelet_rights() if cluster.how == "by-hand" else ()
    names = dns.documents(cluster, manifest)
    addon = addons()[cluster.topology]
    first, *others = addon.waves(cluster, intent, manifest) or ((),)
    if addon.daemon_set is None:
        return (Wave((*rights, *first, *names)),)
    return (
        Wave((*rights, *first)),
        *(Wave(documents) for documents in others),
        Wave(names, addon.daemon_set),
    )


def node_documents(cluster: Cluster, intent: Intent) -> tuple[Document, ...]:
    """What Node objects must say for the network add-on, of those that join by kubeadm."""
    return addons()[cluster.topology].node_documents(cluster, intent)


def documents(cluster: Cluster, intent: Intent, manifest: Manifest) -> tuple[Document, ...]:
    """Those of all waves."""
    return tuple(one for wave in waves(cluster, intent, manifest) for one in wave.documents)
