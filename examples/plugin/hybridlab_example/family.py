"""A family of cells: every probe pod to its own address."""

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.cells import MODEL, CellFamily, Ends, rule
from lab.matrix.endpoints import LabEndpoints


def _ends(lab: LabEndpoints) -> Ends:
    """Every probe pod to its own address."""

    def path(pod: Endpoint) -> GridPath:
        return GridPath(pod, pod, "self", (pod.name,), lab.sources.of_pod_to_pod(pod))

    return lab.pods, iter((GridTarget("itself", False, path),))


FAMILY = CellFamily(
    name="example-itself",
    order=500,
    on_request=True,
    ends=_ends,
    works=rule("EXAMPLE-ITSELF", "a pod reaches its own address", MODEL),
)
