"""A cluster made by hand: keys from the lab's directory, programs as units, then its API."""

from __future__ import annotations

from collections.abc import Iterable

from lab.cluster.cluster import Cluster, ClusterNode
from lab.cluster.keys import Keys
from lab.cluster.kubeadm import Surroundings
from lab.cluster.linux import by_hand, by_hand_worker
from lab.cluster.linux.api import ClusterApi
from lab.cluster.linux.by_hand import PlaneKeys
from lab.cluster.linux.by_hand_worker import WorkerKeys
from lab.cluster.linux.doing import Hand
from lab.cluster.linux.joining import API_SECONDS, REGISTER_SECONDS
from lab.cluster.linux.operations import Operations, Run
from lab.cluster.linux.parallel import on_each
from lab.cluster.linux.site import ClusterSite
from lab.topology.intent import Intent


class HardWay:
    """Makes one cluster without kubeadm.

    Parameters
    ----------
    cluster, intent
        What is to be.
    site
        Where the machines are reached, and the directory that the keys are kept in.

    """

    def __init__(self, cluster: Cluster, intent: Intent, site: ClusterSite) -> None:
        self._cluster = cluster
        self._intent = intent
        self._site = site
        self._around = Surroundings(site.management, site.patience)
        self._api = ClusterApi(cluster, site)

    def planes(self) -> None:
        """Every controller at once: etcd is there when most of them are."""
        nodes = {node.name: node for node in self._cluster.control_planes()}
        keys = {name: self._plane_keys(node) for name, node in nodes.items()}
        on_each(
            nodes,
            lambda name: self._do(
                name,
                by_hand.plane(self._cluster, self._intent, nodes[name], keys[name], self._around),
            ),
        )
        self._api.ready(self._site.deadline(API_SECONDS))
        self._api.apply(by_hand.kubelet_rights(), self._site.deadline(API_SECONDS))

    def nodes(self, nodes: Iterable[ClusterNode]) -> None:
        """Workers, all at once; one whose Node was deleted registers anew."""
        wanted = {node.name: node for node in nodes}
        keys = {name: self._worker_keys(node) for name, node in wanted.items()}
        on_each(
            wanted,
            lambda name: self._do(
                name,
                by_hand_worker.worker(self._cluster, wanted[name], keys[name], self._site.patience),
            ),
        )
        there = self._api.nodes(self._site.deadline(API_SECONDS))
        for node in wanted.values():
            if node.name not in there:
                self.register(node)
            self._api.set_pod_cidr(node, self._site.deadline(REGISTER_SECONDS))

    def again(self, node: ClusterNode) -> None:
        """One worker anew."""
        self._api.delete_node(node.name, self._site.deadline(API_SECONDS))
        self.nodes([node])

    def register(self, node: ClusterNode) -> None:
        """A kubelet registers when it starts."""
        Hand(node.name, self._site).do((Run(("systemctl", "restart", "kubelet.service")),))

    def _plane_keys(self, node: ClusterNode) -> PlaneKeys:
        kept = Keys(self._site.directory)
        wanted = by_hand.subjects(self._cluster, self._intent, node, self._around)
        return PlaneKeys(
            kept.authority(),
            kept.service_accounts(),
            kept.encryption_key(),
            {name: kept.issued(f"{node.name}-{name}", one) for name, one in wanted.items()},
        )

    def _worker_keys(self, node: ClusterNode) -> WorkerKeys:
        kept = Keys(self._site.directory)
        pairs = {
            name: kept.issued(f"{node.name}-{name}", subject)
            for name, subject in by_hand_worker.subjects(node).items()
        }
        return WorkerKeys(kept.authority().certificate, pairs["kubelet"], pairs["proxy"])

    def _do(self, name: str, operations: Operations) -> None:
        Hand(name, self._site).do(operations)
