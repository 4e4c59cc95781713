"""Every node with a kubelet to the Services of a local pod and of a remote pod per system.

The local pod is the node's first. The remote pods are, for Linux and for Windows, the first pod of
the next node with that system in the plan's order, wrapping around.
"""

from __future__ import annotations

from functools import partial

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.endpoints import PLACES, LabEndpoints, between, local_and_remote
from lab.matrix.family import PROXY, CellFamily, Ends, rule


def _ends(lab: LabEndpoints) -> Ends:
    chosen = {
        node.name: local_and_remote(lab, node.name, lab.ends.services) for node in lab.ends.hosts
    }

    def path(place: str, node: Endpoint) -> GridPath:
        backend = chosen[node.name][place](node)
        target = lab.ends.services[backend.name]
        seen = lab.sources.of_machine(node.name, backend)
        return GridPath(node, target, between(node, backend), (backend.name,), seen)

    return lab.ends.hosts, (
        GridTarget(place, False, partial(path, place), never=without)
        for place in PLACES
        for without in [frozenset(name for name, found in chosen.items() if place not in found)]
    )


FAMILY = CellFamily(
    name="node-service",
    order=40,
    ends=_ends,
    works=rule("K8S-NODE-SERVICE", "kube-proxy serves Service addresses on its node too", PROXY),
)
