"""Like a load balancer, the client asks every node for its number of backends."""

from __future__ import annotations

from functools import partial

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.endpoints import LabEndpoints
from lab.matrix.family import SOURCE_IP, CellFamily, Ends, rule
from lab.topology import proxying
from lab.topology.intent import ProxiedService


def _ends(lab: LabEndpoints) -> Ends:

    def path(asked: Endpoint, number: int, client: Endpoint) -> GridPath:
        return GridPath(client, asked, "outside", (), entry=asked.node, answer=str(number))

    return (lab.ends.client,), (
        GridTarget(
            node.name,
            True,
            partial(path, asked, number),
            service.name,
            only_small=True,
            protocol="tcp",
        )
        for service in lab.special
        if service.health_port is not None and "tcp" in lab.plan.protocols
        for node in lab.ends.hosts
        for number in [len(proxying.local(service, node.name))]
        for asked in [_health(node, service, service.health_port)]
    )


def _health(node: Endpoint, service: ProxiedService, port: int) -> Endpoint:
    name = f"{node.name}:{service.name}:health"
    return Endpoint(name, "nodeport", node.os, node.node, node.address, port)


FAMILY = CellFamily(
    name="health-check",
    order=160,
    special=lambda one: one.serves and one.health_check,
    needs='"health_check: true"',
    dialect="health",
    ends=_ends,
    works=rule(
        "K8S-HEALTH-CHECK",
        "on its health check port each node says how many ready backends it has itself",
        SOURCE_IP,
    ),
)
