"""Every probe pod and every node resolves every name that the services node serves.

A node queries the services node directly, a pod the cluster's DNS, which forwards the query. The
services node does not query itself.
"""

from __future__ import annotations

from functools import partial

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.endpoints import LabEndpoints, between
from lab.matrix.family import CellFamily, Ends, rule
from lab.providers.provider import DNS_PORT


def _ends(lab: LabEndpoints) -> Ends:
    asking, server = lab.nodes_and_services_node()
    front = lab.front

    def path(name: str, answer: str, source: Endpoint) -> GridPath:
        assert front is not None, "else there are no names"
        asked = str(lab.plan.dns_address) if source.kind == "pod" else front.address
        target = Endpoint(name, "name", server.os, server.node, asked, DNS_PORT)
        relation = between(source, server)
        return GridPath(source, target, relation, (server.name,), name_form="full", answer=answer)

    return (*lab.ends.pods, *asking), (
        GridTarget(server.name, True, partial(path, name, answer), only_small=True)
        for name, answer in (front.names if front else ())
    )


FAMILY = CellFamily(
    name="node-names",
    order=170,
    services_node=True,
    ends=_ends,
    works=rule(
        "NODE-NAMES",
        "the services node answers the nodes' names; pods ask the cluster's DNS, which "
        "passes on what is not the cluster's",
        "Kubernetes documentation, Customizing DNS Service; Kubeinit's services node",
    ),
)
