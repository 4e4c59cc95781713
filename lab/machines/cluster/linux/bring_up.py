"""The steps that bring up the Linux part of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import file_digest
from mmap import ACCESS_READ, mmap
from pathlib import Path

from lab._deadline import Deadline
from lab.machines.addons.addon import DaemonSet, addons
from lab.machines.bundle.manifest import Manifest
from lab.machines.cluster import dns
from lab.machines.cluster.cluster import Cluster, ClusterNode
from lab.machines.cluster.documents import Document
from lab.machines.cluster.kubeadm import Surroundings, Ticket, init_documents, join_documents
from lab.machines.cluster.linux.api import DNS_SECONDS, READY_SECONDS, ClusterApi
from lab.machines.cluster.linux.hard_way import (
    BLANK,
    HardWay,
    controller_subjects,
    kubelet_rbac,
    run_controller,
    run_worker,
)
from lab.machines.cluster.linux.joining import API_SECONDS, Joining
from lab.machines.cluster.linux.node import (
    IMPORT,
    IMPORT_SECONDS,
    prepare_balancer,
    prepare_node,
)
from lab.machines.cluster.linux.operations import (
    ClusterSite,
    Operations,
    command_failure,
    without_secrets,
)
from lab.plan.canonical import digest
from lab.plan.step import Step
from lab.shells.parallel import on_each
from lab.shells.shell import Shell
from lab.topology.intent import Intent


@dataclass(frozen=True, slots=True)
class Wave:
    """Documents that are applied together."""

    documents: tuple[Document, ...]
    after: tuple[DaemonSet, ...] = ()


def addon_waves(cluster: Cluster, intent: Intent, manifest: Manifest) -> tuple[Wave, ...]:
    """Every document in order: a later wave may use kinds that an earlier one defines.

    CoreDNS follows the pod network: a pod whose network setup fails is retried after 13 s. Without
    a network add-on, the nodes' own bridges and the routes around them are the pod network.
    kube-proxy is kubeadm's DaemonSet, or a unit if there is no kubeadm.
    """
    rights = kubelet_rbac() if cluster.how == "by-hand" else ()
    names = dns.documents(cluster, manifest)
    addon = addons()[cluster.topology]
    first, *others = addon.waves(cluster, intent, manifest) or ((),)
    return (
        Wave((*rights, *first)),
        *(Wave(documents) for documents in others),
        Wave(names, addon.daemon_sets(intent)),
    )


CONTROL_PLANE = "control-plane"
"""The step that makes the first one."""
_FORM = "1"
"""Change it when the steps do something else for the same inputs."""
KINDS_SECONDS = 300.0
"""Seconds until the API accepts kinds that a network add-on defines itself."""


def linux_steps(
    cluster: Cluster, intent: Intent, manifest: Manifest, site: ClusterSite
) -> tuple[Step, ...]:
    """The steps: ``nodes``, ``control-plane``, ``workers``, ``add-ons``, ``dns``, ``ready``.

    kubeadm's further control planes join in a step of their own, ``control-planes``, beside the
    workers. No shell is opened before a step runs.
    """
    return _BringUp(cluster, intent, manifest, site).steps()


@dataclass(frozen=True, slots=True)
class _BringUp:
    cluster: Cluster
    intent: Intent
    manifest: Manifest
    site: ClusterSite

    def steps(self) -> tuple[Step, ...]:
        """Each step with what it depends on."""
        planes, workers = self._planned()
        waves = self._waves()
        names = [node.name for node in self.cluster.nodes]
        further = len(self.cluster.control_planes()) > 1 and self.cluster.how == "kubeadm"
        return (
            _step("nodes", self._nodes, *map(self._prepared, self._linux()), *self._archived()),
            _step(CONTROL_PLANE, self._first, self._balanced(), planes),
            *([_step("control-planes", self._further, planes)] if further else ()),
            replace(_step("workers", self._workers, workers), alongside=further),
            replace(_step("add-ons", self._add_ons, *waves[:-1]), alongside=True),
            _step("dns", self._dns, waves[-1]),
            _step("ready", self._ready, names),
        )

    def _linux(self) -> tuple[ClusterNode, ...]:
        return tuple(node for node in self.cluster.nodes if node.os == "linux")

    def _linux_workers(self) -> tuple[ClusterNode, ...]:
        return tuple(node for node in self._linux() if node.role == "worker")

    def _prepared(self, node: ClusterNode) -> Operations:
        return prepare_node(self.cluster, self.intent, node, self.manifest)

    def _archives(self) -> tuple[Path, ...]:
        return addons()[self.cluster.topology].archives(self.intent)

    def _archived(self) -> tuple[str, ...]:
        """The SHA-256 of each archive."""
        made = []
        for archive in self._archives():
            with archive.open("rb") as file:
                made.append(file_digest(file, "sha256").hexdigest())
        return tuple(made)

    def _balanced(self) -> tuple[str, Operations] | None:
        return prepare_balancer(self.cluster, self.intent, self.site.patience)

    def _planned(self) -> tuple[object, object]:
        """What control planes and workers will run, without keys and tokens."""
        cluster, around = self.cluster, Surroundings(self.site.management, self.site.patience)
        planes, workers = cluster.control_planes(), self._linux_workers()
        if cluster.how == "by-hand":
            made = [
                without_secrets(run_controller(cluster, self.intent, node, BLANK, around))
                for node in planes
            ]
            subjects = [controller_subjects(cluster, self.intent, node, around) for node in planes]
            joined = [
                without_secrets(run_worker(cluster, node, BLANK, around.patience))
                for node in workers
            ]
            return (made, subjects), joined
        none = Ticket("", "")
        init = init_documents(cluster, self.intent, self.manifest, around)
        further = [join_documents(cluster, node, none, around) for node in planes[1:]]
        return (init, further), [
            (join_documents(cluster, node, none, around), node.pod_cidr) for node in workers
        ]

    def _way(self) -> Joining | HardWay:
        if self.cluster.how == "by-hand":
            return HardWay(self.cluster, self.intent, self.site)
        return Joining(self.cluster, self.intent, self.manifest, self.site)

    def _nodes(self) -> None:
        nodes = {node.name: node for node in self._linux()}

        def prepare(name: str) -> None:
            self.site.run(name, self._prepared(nodes[name]))
            for archive in self._archives() if nodes[name].pod_cidr else ():
                import_archive(name, archive, self.site.shell(name), self.site.deadline)
            self.site.say(f"{name}: prepared for Kubernetes {self.cluster.version}")

        on_each(nodes, prepare)

    def _first(self) -> None:
        if balanced := self._balanced():
            self.site.run(*balanced)
        self._way().start()

    def _further(self) -> None:
        Joining(self.cluster, self.intent, self.manifest, self.site).planes()

    def _workers(self) -> None:
        self._way().nodes(self._linux_workers())

    def _add_ons(self) -> None:
        api = ClusterApi(self.cluster, self.site)
        seconds = API_SECONDS
        for wave in self._waves()[:-1]:
            api.apply(wave.documents, self.site.deadline(seconds))
            seconds = KINDS_SECONDS

    def _dns(self) -> None:
        api = ClusterApi(self.cluster, self.site)
        wave = self._waves()[-1]
        for daemon_set in wave.after:
            api.wait_for_daemon_set(daemon_set, self.site.deadline(READY_SECONDS))
        api.apply(wave.documents, self.site.deadline(API_SECONDS))

    def _waves(self) -> tuple[Wave, ...]:
        return addon_waves(self.cluster, self.intent, self.manifest)

    def _ready(self) -> None:
        names = [node.name for node in self.cluster.nodes if node.pod_cidr]
        api = ClusterApi(self.cluster, self.site)
        api.wait_for_nodes(names, self.site.deadline(READY_SECONDS))
        api.wait_for_dns(self.site.deadline(DNS_SECONDS))


def import_archive(
    node: str, archive: Path, shell: Shell, deadline: Callable[[float], Deadline]
) -> None:
    """Import a docker-archive or an OCI archive into containerd's store on a node.

    ``deadline``: makes one of seconds on hardware. Raises OSError when the archive cannot be read,
    BrokenError with what containerd says, DeadlineError when it takes too long.
    """
    action = f"importing '{archive}' on '{node}'"
    with archive.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        done = shell.run((*IMPORT, "-"), deadline(IMPORT_SECONDS), content)
    if done.code:
        raise command_failure(action, done.code, done.stderr)


def _step(name: str, run: Callable[[], None], *about: object) -> Step:
    return Step(name, digest(_FORM, name, *about), run)
