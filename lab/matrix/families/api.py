"""Every probe pod, every node and the client ask the API address; all API servers answer.

They see the services node as the source, which makes a connection of its own to them; those of
Kubernetes do not say so. Those are known by their certificates, which what Windows nodes are
probed with does not tell: there no Windows node or pod asks.
"""

from __future__ import annotations

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.endpoints import LabEndpoints, between
from lab.matrix.family import CellFamily, Ends, rule


def _ends(lab: LabEndpoints) -> Ends:
    asking, server = lab.nodes_and_services_node()
    front = lab.front
    if front is None:
        return (), iter(())
    target = Endpoint("api", "api", server.os, server.node, front.address, front.api_port)
    seen = frozenset[str]() if front.tls else frozenset({front.address})
    sources = (*lab.ends.pods, *asking, lab.ends.client)

    def path(source: Endpoint) -> GridPath:
        return GridPath(source, target, between(source, server), front.api_servers, seen)

    return tuple(one for one in sources if not front.tls or one.os == "linux"), iter(
        (GridTarget(server.name, True, path, only_small=True, protocol="tcp"),)
    )


FAMILY = CellFamily(
    name="api",
    order=180,
    services_node=True,
    tcp_only=True,
    ends=_ends,
    works=rule(
        "API-BALANCED",
        "the services node distributes connections to the API address over every API server that "
        "is ready",
        "kubeadm documentation, Options for Software Load Balancing; Kubeinit's services node",
    ),
)
