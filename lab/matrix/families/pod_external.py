"""Every probe pod to the client outside."""

from __future__ import annotations

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.endpoints import LabEndpoints
from lab.matrix.family import SOURCE_IP, CellFamily, Ends, rule


def _ends(lab: LabEndpoints) -> Ends:
    client = lab.ends.client

    def path(pod: Endpoint) -> GridPath:
        seen = lab.sources.of_pod_to_address(pod, client)
        return GridPath(pod, client, "outside", (client.name,), seen)

    return lab.ends.pods, iter((GridTarget(client.name, False, path),))


FAMILY = CellFamily(
    name="pod-external",
    order=80,
    ends=_ends,
    works=rule(
        "K8S-POD-EXTERNAL",
        "pods reach addresses outside the cluster, with their node's address where it masquerades",
        SOURCE_IP,
    ),
)
