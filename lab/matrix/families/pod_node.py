"""Every probe pod to every node, including those without a kubelet."""

from __future__ import annotations

from functools import partial

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.endpoints import LabEndpoints, between
from lab.matrix.family import MODEL, CellFamily, Ends, rule


def _ends(lab: LabEndpoints) -> Ends:

    def path(node: Endpoint, pod: Endpoint) -> GridPath:
        seen = lab.sources.of_pod_to_address(pod, node)
        return GridPath(pod, node, between(pod, node), (node.name,), seen)

    return lab.ends.pods, (
        GridTarget(node.name, True, partial(path, node)) for node in lab.ends.nodes
    )


FAMILY = CellFamily(
    name="pod-node",
    order=70,
    ends=_ends,
    works=rule("K8S-POD-NODE", "every pod reaches every node", MODEL),
)
