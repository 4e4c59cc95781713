"""Every probe pod to every other pod's own Service, then to each shared Service."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

from lab.matrix.cell import Endpoint, GridPath, GridTarget, Relation
from lab.matrix.endpoints import LabEndpoints, SharedTarget, between
from lab.matrix.family import SERVICES, CellFamily, Ends, rule


def _ends(lab: LabEndpoints) -> Ends:
    seen = cache(lab.sources.of_pod_to_service)

    def path(backend: Endpoint, source: Endpoint) -> GridPath:
        target = lab.ends.services[backend.name]
        return GridPath(source, target, between(source, backend), (backend.name,), seen(source))

    def targets() -> Iterator[GridTarget]:
        for pod in lab.ends.pods:
            if pod.name in lab.ends.services:
                yield GridTarget(
                    str(pod.node), True, partial(path, pod), never=frozenset({pod.name})
                )
        for shared in lab.ends.shared:
            name = shared.endpoint.name
            yield GridTarget(name, False, partial(_to_shared, lab, shared), only_small=True)

    return lab.ends.pods, targets()


def _to_shared(lab: LabEndpoints, shared: SharedTarget, source: Endpoint) -> GridPath:
    """Every backend must answer; the relation is that of the farthest one."""
    seen = lab.sources.of_pod_to_service(source)
    relations = {between(source, backend) for backend in shared.backends}
    if "self" in relations:
        seen |= lab.sources.of_pod_to_itself(source)
    relation: Relation = "other-node" if "other-node" in relations else "same-node"
    names = tuple(backend.name for backend in shared.backends)
    return GridPath(source, shared.endpoint, relation, names, seen)


FAMILY = CellFamily(
    name="pod-service",
    order=20,
    ends=_ends,
    works=rule(
        "K8S-POD-SERVICE",
        "a Service address leads every pod to the Service's ready endpoints",
        SERVICES,
    ),
)
