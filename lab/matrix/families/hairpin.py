"""A pod and its own Service."""

from __future__ import annotations

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.cells import PROXY, CellFamily, Ends, rule
from lab.matrix.endpoints import LabEndpoints


def _ends(lab: LabEndpoints) -> Ends:
    """Every probe pod to its own Service."""

    def path(pod: Endpoint) -> GridPath:
        sources = lab.sources.of_pod_to_itself(pod)
        return GridPath(pod, lab.services[pod.name], "self", (pod.name,), sources)

    pods = tuple(pod for pod in lab.pods if pod.name in lab.services)
    return pods, iter((GridTarget("itself", False, path),))


FAMILY = CellFamily(
    name="hairpin",
    order=30,
    ends=_ends,
    works=rule("K8S-HAIRPIN", "a pod reaches itself through a Service that it backs", PROXY),
)
