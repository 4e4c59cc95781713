"""The bundle that a lab's cluster is made from, and its media on the hypervisors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab._errors import PreflightError
from lab.cluster import rules
from lab.cluster.bundle import document, medium
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.bundle.store import Store
from lab.cluster.cluster import Cluster, cluster
from lab.cluster.windows import judged
from lab.providers.libvirt import images, volumes
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.layout import Layout
from lab.providers.provider import LabHandle
from lab.scenario.scenario import Os
from lab.topology.intent import Intent


@dataclass(frozen=True, slots=True)
class Bundled:
    """A lab's cluster, and what it is made from."""

    store: Store
    manifest: Manifest
    cluster: Cluster

    @property
    def digest(self) -> str:
        """The bundle's."""
        return document.digest(self.manifest)

    def check(self) -> None:
        """See that the bundle is whole, as far as its media are still to be written.

        Raises
        ------
        PreflightError
            Naming everything that is damaged.

        """
        for system in sorted({node.os for node in self.cluster.nodes}):
            medium.check(self.store, self.manifest, system)

    def place(self, host: Host, system: Os, say: Callable[[str], None]) -> str:
        """Have the medium for machines of that system on the hypervisor; its path there."""
        file = medium.medium(self.store, self.manifest, system, say)
        shared = images.pool(host.connected, host.hypervisor.storage)
        volumes.refresh(shared)
        what = f"medium of Kubernetes {self.manifest.kubernetes} for {system}"
        return images.ensure_file(shared, self._file(system), file, what, say)

    def path(self, host: Host, system: Os) -> str:
        """Where :meth:`place` has put it."""
        return f"{volumes.images_path(host.hypervisor.storage)}/{self._file(system)}"

    def _file(self, system: Os) -> str:
        return f"bundle-{medium.identity(self.manifest, system)[:16]}.iso"


def of(lab: LabHandle, intent: Intent, cache: Path, decided: Layout | None) -> Bundled:
    """What a lab's cluster is made from: once decided, the same bundle always.

    Raises
    ------
    PreflightError
        When there is none of that version, or it lacks what the cluster needs: all of it is
        named.
    UsageError
        When the one that the lab was made from is gone.

    """
    assert intent.kubernetes is not None, "asked for where pods are Kubernetes' alone"
    store = Store(cache)
    kept = decided.bundle if decided else ""
    manifest = store.get(kept) if kept else _newest(store, intent)
    made = Bundled(store, manifest, cluster(lab.name, intent, manifest))
    _refuse(lab, intent, made)
    return made


def _newest(store: Store, intent: Intent) -> Manifest:
    assert intent.kubernetes is not None, "asked for by the caller"
    systems = {machine.os for machine in intent.machines if machine.kubelet}
    try:
        return store.newest(intent.kubernetes.version, systems)
    except PreflightError as error:
        cure = f"{error.cure}; or '--pods namespaces' for a lab without Kubernetes"
        raise PreflightError(error.doing, error.happened, cure) from error


def _refuse(lab: LabHandle, intent: Intent, made: Bundled) -> None:
    rules.require(made.manifest, made.cluster)
    problems: list[str] = []
    for node in made.cluster.nodes:
        if node.os == "windows":
            problems += judged.refused(made.cluster, intent, node, made.manifest)
    if problems:
        raise PreflightError(
            f"making the cluster of lab '{lab.name}' from bundle '{made.digest[:12]}'",
            "; ".join(dict.fromkeys(problems)),
            "'lab bundle create' makes a whole one; 'lab bundle show' says what is in it",
        )
