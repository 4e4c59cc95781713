"""Probe pods by the Service address, the client by every node: always the same backend."""

from __future__ import annotations

from collections.abc import Iterator

from lab.matrix.cell import GridTarget
from lab.matrix.endpoints import LabEndpoints
from lab.matrix.family import PROXY, CellFamily, Ends, rule
from lab.matrix.service_ports import by_address, by_node, names


def _ends(lab: LabEndpoints) -> Ends:
    services = [one for one in lab.special if one.affinity is not None and one.backends]
    pods, client = names(lab.ends.pods), frozenset({lab.ends.client.name})

    def targets() -> Iterator[GridTarget]:
        for service in services:
            for port in service.ports:
                yield from by_address(lab, service, port, never=client)
                for entry in lab.ends.hosts:
                    yield from by_node(lab, service, port, entry, never=pods)

    return (*lab.ends.pods, lab.ends.client), targets()


FAMILY = CellFamily(
    name="affinity",
    order=100,
    special=lambda one: one.serves and one.affinity is not None,
    needs='"affinity: 10800"',
    ends=_ends,
    works=rule(
        "K8S-AFFINITY",
        "with session affinity a client always reaches the same backend",
        PROXY,
    ),
)
