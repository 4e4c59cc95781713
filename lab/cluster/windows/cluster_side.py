"""What the cluster itself needs so that Windows nodes can be in it. Pure."""

from __future__ import annotations

from lab.cluster.cluster import Cluster
from lab.cluster.windows import calico
from lab.cluster.windows.network import CALICO


def documents(cluster: Cluster) -> tuple[dict[str, object], ...]:
    """Documents for the API, in order; none where the topology needs none."""
    if cluster.topology in CALICO and any(node.os == "windows" for node in cluster.nodes):
        return calico.documents(cluster)
    return ()
