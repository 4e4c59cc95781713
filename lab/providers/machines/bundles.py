"""The bundle that a lab's cluster is made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab._errors import PreflightError
from lab.cluster import rules
from lab.cluster.bundle import medium
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.bundle.store import BundleStore
from lab.cluster.cluster import VIRTUAL_MACHINE, Cluster, HostTraits, plan_cluster
from lab.cluster.windows.join_checks import join_refusals
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent


@dataclass(frozen=True, slots=True)
class Bundled:
    """A lab's cluster, and what it is made from."""

    store: BundleStore
    manifest: Manifest
    cluster: Cluster

    @property
    def digest(self) -> str:
        """The bundle's."""
        return self.manifest.digest

    def check(self) -> None:
        """See that the bundle is whole, as far as its media are still to be written.

        Raises PreflightError naming everything that is damaged.
        """
        for system in sorted({node.os for node in self.cluster.nodes}):
            medium.check(self.store, self.manifest, system)


def of(
    lab: LabHandle, intent: Intent, cache: Path, kept: str, host: HostTraits = VIRTUAL_MACHINE
) -> Bundled:
    """What a lab's cluster is made from.

    ``kept``: digest of the bundle that the lab was made from; empty for the newest one. ``host``:
    what its Linux nodes run on.

    Raises PreflightError when there is none of that version, or it lacks what the cluster needs:
    all of it is named. Raises UsageError when the one that the lab was made from is gone.
    """
    assert intent.kubernetes is not None, "asked for where pods are Kubernetes' alone"
    store = BundleStore(cache)
    manifest = store.get(kept) if kept else _newest(store, intent)
    made = Bundled(store, manifest, plan_cluster(lab.name, intent, manifest, host))
    _refuse(lab, intent, made)
    return made


def _newest(store: BundleStore, intent: Intent) -> Manifest:
    assert intent.kubernetes is not None, "asked for by the caller"
    systems = {machine.os for machine in intent.machines if machine.kubelet}
    try:
        return store.newest(intent.kubernetes.version, systems)
    except PreflightError as error:
        hint = f"{error.hint}; or '--pods namespaces' for a lab without Kubernetes"
        raise PreflightError(error.doing, error.happened, hint) from error


def _refuse(lab: LabHandle, intent: Intent, made: Bundled) -> None:
    rules.require(made.manifest, made.cluster)
    problems: list[str] = []
    for node in made.cluster.nodes:
        if node.os == "windows":
            problems += join_refusals(made.cluster, intent, node, made.manifest)
    if problems:
        raise PreflightError(
            f"making the cluster of lab '{lab.name}' from bundle '{made.digest[:12]}'",
            "; ".join(dict.fromkeys(problems)),
            "'lab bundle create' makes a whole one; 'lab bundle show' says what is in it",
        )
