"""What a network add-on is, and the registry of all of them.

Each add-on is a module of this package with an ``ADDON``. A further one is one file, and its
versions in ``rules.json`` and ``bundle/upstream.json``.
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
    """A network add-on of clusters; where it says nothing else, it adds nothing."""

    topologies: frozenset[str] = frozenset()
    footprint: Footprint
    """What it makes on a Linux node by itself."""
    daemon_set: DaemonSet | None = None
    """What must run on every node before the pods of the cluster's DNS can have addresses."""
    routing_daemons = False
    """Whether it brings the nodes' routing daemons; else the lab starts its own."""
    kube_proxy = True
    account = ""
    """Account that its programs on Windows nodes use; empty where they need none."""

    def images(self, cluster: Cluster) -> tuple[str, ...]:  # noqa: ARG002  for those with images
        """What a Linux node needs, without tags."""
        return ()

    def waves(
        self,
        cluster: Cluster,  # noqa: ARG002  the same
        intent: Intent,  # noqa: ARG002  the same
        manifest: Manifest,  # noqa: ARG002  the same
    ) -> tuple[tuple[Document, ...], ...]:
        """Its documents; a later wave has kinds that an earlier one brings."""
        return ()

    def node_documents(self, cluster: Cluster, intent: Intent) -> tuple[Document, ...]:  # noqa: ARG002  the same
        """What Node objects must say for it, of those that join by kubeadm."""
        return ()

    @abstractmethod
    def prepare_node(self, cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
        """What a node that runs pods gets: CNI configuration, masquerading."""

    def packages(self, machine: MachineIntent) -> frozenset[str]:  # noqa: ARG002  the same
        """The Debian packages that a machine's image must have."""
        return frozenset()

    def unfit(self, intent: Intent) -> str:  # noqa: ARG002  the same
        """Why it cannot make what an Intent has, a clause; empty where it can."""
        return ""

    def unverified(self, intent: Intent) -> str:  # noqa: ARG002  the same
        """What of it nobody has run in such a cluster, a clause; empty where all was."""
        return ""


@cache
def addons() -> Mapping[str, Addon]:
    """The add-on of each topology that a cluster's pod network can be made for."""
    found: dict[str, Addon] = {}
    for module in iter_modules(lab.cluster.addons.__path__):
        one = getattr(import_module(f"lab.cluster.addons.{module.name}"), "ADDON", None)
        if isinstance(one, Addon):
            found |= dict.fromkeys(one.topologies, one)
    return found
