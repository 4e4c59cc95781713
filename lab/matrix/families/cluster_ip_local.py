"""Every pod and every node with a kubelet, by the Service address."""

from __future__ import annotations

from lab.matrix.endpoints import LabEndpoints
from lab.matrix.family import CellFamily, Ends, refusal, rule
from lab.matrix.service_ports import by_address

INTERNAL = 'Kubernetes documentation, "Service Internal Traffic Policy"'


def _ends(lab: LabEndpoints) -> Ends:
    services = [one for one in lab.special if one.inside == "local" and one.backends]
    return (*lab.ends.pods, *lab.ends.hosts), (
        target
        for service in services
        for port in service.ports
        for target in by_address(lab, service, port)
    )


FAMILY = CellFamily(
    name="cluster-ip-local",
    order=120,
    special=lambda one: one.serves and one.internal_traffic == "local",
    needs='"internal_traffic: local"',
    ends=_ends,
    works=rule(
        "K8S-CLUSTER-IP-LOCAL",
        "with internalTrafficPolicy Local a Service address leads to backends on the asking "
        "node alone",
        INTERNAL,
    ),
    promised=refusal(
        "K8S-CLUSTER-IP-NO-LOCAL",
        "with internalTrafficPolicy Local a node without a backend of its own drops packets "
        "to the Service address",
        "timeout",
        INTERNAL,
    ),
)
