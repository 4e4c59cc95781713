"""Every node with a kubelet to every probe pod."""

from __future__ import annotations

from functools import partial

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.endpoints import LabEndpoints, between
from lab.matrix.family import MODEL, CellFamily, Ends, rule


def _ends(lab: LabEndpoints) -> Ends:

    def path(pod: Endpoint, node: Endpoint) -> GridPath:
        seen = lab.sources.of_machine(node.name, pod)
        return GridPath(node, pod, between(node, pod), (pod.name,), seen)

    return lab.ends.hosts, (
        GridTarget(str(pod.node), True, partial(path, pod)) for pod in lab.ends.pods
    )


FAMILY = CellFamily(
    name="node-pod",
    order=60,
    ends=_ends,
    works=rule(
        "K8S-NODE-POD", "the agents on a node reach pods; every node reaches every pod", MODEL
    ),
)
