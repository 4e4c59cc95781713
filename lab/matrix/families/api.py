"""Every probe pod, every node and the client probe the API address; all API servers must answer.

The servers see the services node as the source, since HAProxy opens its own connections; those of a
real cluster do not report it. They are identified by their certificates, which the prober on
Windows nodes does not report: there, Windows nodes and pods are not sources.
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
