"""What a network add-on is, and the registry of all add-ons.

Each add-on is a module of this package with an ``ADDON``. To add one, add its file, and its
versions and images to ``bundle/upstream.json``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

import lab.cluster.addons
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import Cluster
from lab.cluster.documents import Document
from lab.cluster.footprint import Footprint
from lab.cluster.linux.operations import Operations
from lab.topology.intent import Intent, MachineIntent

DaemonSet = tuple[str, str]


class Addon(ABC):
    """A network add-on of clusters; the defaults add nothing."""

    topologies: frozenset[str] = frozenset()
    bundled = ""
    """Its name in ``bundle/upstream.json``; empty if every bundle has its images."""
    footprint: Footprint
    """What it creates by itself on a Linux node."""
    daemon_set: DaemonSet | None = None
    """The DaemonSet that must run on every node before the cluster's DNS pods can have
    addresses."""
    routing_daemons = False
    """Whether it brings the nodes' routing daemons; otherwise the lab starts its own."""
    kube_proxy = True
    account = ""
    """Account of its programs on Windows nodes; empty if they need none."""

    def images(self, cluster: Cluster) -> tuple[str, ...]:  # noqa: ARG002  for those with images
        """Images that a Linux node needs, without tags."""
        return ()

    def pinned(self, cluster: Cluster) -> bool:  # noqa: ARG002  the same
        """Whether the images must have the versions of ``bundle/upstream.json``."""
        return False

    def waves(
        self,
        cluster: Cluster,  # noqa: ARG002  the same
        intent: Intent,  # noqa: ARG002  the same
        manifest: Manifest,  # noqa: ARG002  the same
    ) -> tuple[tuple[Document, ...], ...]:
        """Its documents; a later wave may use kinds that an earlier one defines."""
        return ()

    def node_documents(self, cluster: Cluster, intent: Intent) -> tuple[Document, ...]:  # noqa: ARG002  the same
        """Documents with the settings it needs on Node objects of nodes that kubeadm joins."""
        return ()

    @abstractmethod
    def prepare_node(self, cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
        """Operations on a node that runs pods: CNI configuration, masquerading."""

    def packages(self, machine: MachineIntent) -> frozenset[str]:  # noqa: ARG002  the same
        """The Debian packages that a machine's image must have."""
        return frozenset()

    def unfit(self, intent: Intent) -> str:  # noqa: ARG002  the same
        """Why it cannot provide an Intent's network, as a clause; empty if it can."""
        return ""

    def unverified(self, intent: Intent) -> str:  # noqa: ARG002  the same
        """Which part of it has never been run in such a cluster, as a clause; empty if all has."""
        return ""


@cache
def addons() -> Mapping[str, Addon]:
    """The add-on of each topology whose pod network a cluster can provide."""
    found: dict[str, Addon] = {}
    for module in iter_modules(lab.cluster.addons.__path__):
        one = getattr(import_module(f"lab.cluster.addons.{module.name}"), "ADDON", None)
        if isinstance(one, Addon):
            found |= dict.fromkeys(one.topologies, one)
    return found
