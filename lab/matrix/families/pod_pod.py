"""Every ordered pair of different probe pods."""

from __future__ import annotations

from functools import cache, partial

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.endpoints import LabEndpoints, between
from lab.matrix.family import MODEL, CellFamily, Ends, rule


def _ends(lab: LabEndpoints) -> Ends:
    seen = cache(lab.sources.of_pod_to_pod)

    def path(target: Endpoint, source: Endpoint) -> GridPath:
        return GridPath(source, target, between(source, target), (target.name,), seen(source))

    return lab.ends.pods, (
        GridTarget(str(pod.node), True, partial(path, pod), never=frozenset({pod.name}))
        for pod in lab.ends.pods
    )


FAMILY = CellFamily(
    name="pod-pod",
    order=10,
    ends=_ends,
    works=rule("K8S-POD-POD", "every pod reaches every other pod without NAT", MODEL),
)
