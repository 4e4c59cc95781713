"""What brings the Linux part of a cluster up, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab.cluster import kubeadm
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import Cluster, ClusterNode
from lab.cluster.kubeadm import Surroundings, Ticket
from lab.cluster.linux import addon_documents, by_hand, by_hand_worker, preparation, readiness
from lab.cluster.linux.api import ClusterApi
from lab.cluster.linux.by_hand_making import HardWay
from lab.cluster.linux.doing import Hand
from lab.cluster.linux.joining import API_SECONDS, Joining
from lab.cluster.linux.operations import Operations, public
from lab.cluster.linux.parallel import on_each
from lab.cluster.linux.site import ClusterSite
from lab.plan.canonical import digest
from lab.topology.intent import Intent

_FORM = "1"
"""Changes when the steps do something else for the same inputs."""
KINDS_SECONDS = 300.0
"""Until the API takes documents of kinds that a network add-on brings itself."""


@dataclass(frozen=True, slots=True)
class ClusterStep:
    """One named step; running it twice is as good as once."""

    name: str
    digest: str
    """Hash of its inputs; of no secret."""
    run: Callable[[], None]


def steps(
    cluster: Cluster, intent: Intent, manifest: Manifest, site: ClusterSite
) -> tuple[ClusterStep, ...]:
    """In order: ``nodes``, ``control-plane``, ``workers``, ``add-ons``, ``ready``.

    No shell is asked for before a step runs.
    """
    making = _Making(cluster, intent, manifest, site)
    return tuple(
        ClusterStep(name, digest(_FORM, name, *about), run) for name, about, run in making.steps()
    )


def rejoin(
    cluster: Cluster, intent: Intent, manifest: Manifest, site: ClusterSite, names: Sequence[str]
) -> None:
    """Take Linux nodes out of the cluster, whatever state they are in, and bring them in again.

    Raises
    ------
    LabError
        When one of them does not come back.

    """
    making = _Making(cluster, intent, manifest, site)
    for node in cluster.nodes:
        if node.name in names and node.os == "linux":
            making.again(node)
    deadline = site.deadline(readiness.READY_SECONDS)
    readiness.wait_for_nodes(cluster, site, names, deadline)


@dataclass(frozen=True, slots=True)
class _Making:
    cluster: Cluster
    intent: Intent
    manifest: Manifest
    site: ClusterSite

    def steps(self) -> tuple[tuple[str, tuple[object, ...], Callable[[], None]], ...]:
        """Each step with what it depends on."""
        joining = self._planned()
        waves = addon_documents.waves(self.cluster, self.intent, self.manifest)
        names = [node.name for node in self.cluster.nodes]
        return (
            ("nodes", tuple(self._prepared(node) for node in self._linux()), self._nodes),
            ("control-plane", (self._balanced(), joining[0]), self._planes),
            ("workers", (joining[1],), self._workers),
            ("add-ons", waves, self._add_ons),
            ("ready", (names,), self._ready),
        )

    def again(self, node: ClusterNode) -> None:
        """One node out and in again, prepared as it was."""
        Hand(node.name, self.site).do(self._prepared(node))
        self._way().again(node)

    def _linux(self) -> tuple[ClusterNode, ...]:
        return tuple(node for node in self.cluster.nodes if node.os == "linux")

    def _linux_workers(self) -> tuple[ClusterNode, ...]:
        return tuple(node for node in self._linux() if node.role == "worker")

    def _prepared(self, node: ClusterNode) -> Operations:
        return preparation.prepared(self.cluster, self.intent, node, self.manifest)

    def _balanced(self) -> tuple[str, Operations] | None:
        return preparation.balanced(self.cluster, self.intent, self.site.patience)

    def _planned(self) -> tuple[object, object]:
        """What control planes and workers become, without keys and tokens."""
        cluster, around = self.cluster, Surroundings(self.site.management, self.site.patience)
        planes, workers = cluster.control_planes(), self._linux_workers()
        if cluster.how == "by-hand":
            made = [
                public(by_hand.plane(cluster, self.intent, node, by_hand.BLANK, around))
                for node in planes
            ]
            asked = [by_hand.subjects(cluster, self.intent, node, around) for node in planes]
            blank = by_hand_worker.BLANK
            joined = [
                public(by_hand_worker.worker(cluster, node, blank, around.patience))
                for node in workers
            ]
            return (made, asked), joined
        none = Ticket("", "")
        init = kubeadm.init(cluster, self.intent, self.manifest, around)
        further = [kubeadm.join(cluster, node, none, around) for node in planes[1:]]
        return (init, further), [
            (kubeadm.join(cluster, node, none, around), node.pod_cidr) for node in workers
        ]

    def _way(self) -> Joining | HardWay:
        if self.cluster.how == "by-hand":
            return HardWay(self.cluster, self.intent, self.site)
        return Joining(self.cluster, self.intent, self.manifest, self.site)

    def _nodes(self) -> None:
        nodes = {node.name: node for node in self._linux()}

        def prepare(name: str) -> None:
            Hand(name, self.site).do(self._prepared(nodes[name]))
            self.site.say(f"{name}: prepared for Kubernetes {self.cluster.version}")

        on_each(nodes, prepare)

    def _planes(self) -> None:
        balanced = self._balanced()
        if balanced:
            name, operations = balanced
            Hand(name, self.site).do(operations)
        self._way().planes()

    def _workers(self) -> None:
        self._way().nodes(self._linux_workers())

    def _add_ons(self) -> None:
        api = ClusterApi(self.cluster, self.site)
        seconds = API_SECONDS
        for wave in addon_documents.waves(self.cluster, self.intent, self.manifest):
            if wave.after:
                deadline = self.site.deadline(readiness.READY_SECONDS)
                readiness.wait_for_daemon_set(self.cluster, self.site, wave.after, deadline)
            api.apply(wave.documents, self.site.deadline(seconds))
            seconds = KINDS_SECONDS

    def _ready(self) -> None:
        names = [node.name for node in self.cluster.nodes if node.pod_cidr]
        site = self.site
        readiness.wait_for_nodes(self.cluster, site, names, site.deadline(readiness.READY_SECONDS))
        readiness.wait_for_dns(self.cluster, site, site.deadline(readiness.DNS_SECONDS))
