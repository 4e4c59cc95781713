"""Pods and nodes by the Service address; pods, nodes and the client by every node."""

from __future__ import annotations

from collections.abc import Iterator

from lab.matrix.cell import GridTarget
from lab.matrix.endpoints import LabEndpoints
from lab.matrix.family import PROXY, CellFamily, Ends, refusal, rule
from lab.matrix.service_ports import by_address, by_node


def _ends(lab: LabEndpoints) -> Ends:
    services = [one for one in lab.special if not one.backends]
    client = frozenset({lab.ends.client.name})

    def targets() -> Iterator[GridTarget]:
        for service in services:
            for port in service.ports:
                yield from by_address(lab, service, port, never=client)
                for entry in lab.ends.hosts:
                    yield from by_node(lab, service, port, entry)

    return (*lab.ends.pods, *lab.ends.hosts, lab.ends.client), targets()


FAMILY = CellFamily(
    name="no-endpoints",
    order=140,
    special=lambda one: not one.headless and not one.backends,
    needs='"backends: 0"',
    ends=_ends,
    works=rule("K8S-ENDPOINTS", "a Service leads to its endpoints while it has any", PROXY),
    promised=refusal(
        "K8S-NO-ENDPOINTS",
        "kube-proxy rejects packets to a Service without endpoints",
        "refused",
        PROXY,
    ),
)
