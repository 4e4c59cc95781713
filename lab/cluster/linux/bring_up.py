"""What brings the Linux part of a cluster up, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import Cluster
from lab.cluster.linux.site import Site
from lab.topology.intent import Intent


@dataclass(frozen=True, slots=True)
class ClusterStep:
    """One named step; running it twice is as good as once."""

    name: str
    digest: str
    """Hash of its inputs; of no secret."""
    run: Callable[[], None]


def steps(
    cluster: Cluster, intent: Intent, manifest: Manifest, site: Site
) -> tuple[ClusterStep, ...]:
    """In order: ``nodes``, ``control-plane``, ``workers``, ``add-ons``, ``ready``."""
    raise NotImplementedError
