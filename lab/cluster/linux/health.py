"""What is wrong with a cluster that was brought up, node by node."""

from __future__ import annotations

from collections.abc import Mapping

from lab._deadline import Deadline
from lab._errors import LabError
from lab.cluster.cluster import Cluster
from lab.cluster.linux import readiness
from lab.cluster.linux.api import ClusterApi
from lab.cluster.linux.site import ClusterSite


def ailments(cluster: Cluster, site: ClusterSite, deadline: Deadline) -> Mapping[str, str]:
    """Each node that is not Ready and why; the first control plane where no API answers.

    Never raises.
    """
    try:
        nodes = ClusterApi(cluster, site).nodes(deadline)
    except LabError as error:
        return {cluster.control_planes()[0].name: f"the API does not answer: {error.happened}"}
    wanted = [node.name for node in cluster.nodes if node.pod_cidr]
    return readiness.unready(nodes, wanted)
