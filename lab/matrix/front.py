"""The families that ask the services node: for nodes' names, and for the API behind it. Pure."""

from __future__ import annotations

from functools import partial

from lab.matrix.cell import Endpoint
from lab.matrix.grid import Path, Target
from lab.matrix.lab_ends import Ends, LabEnds, between
from lab.providers.provider import DNS_PORT


def node_names(lab: LabEnds) -> Ends:
    """Every probe pod and every node asks for every name that the services node serves.

    A node asks the services node itself; a pod the cluster's DNS, which passes the question on.
    The services node does not ask itself.
    """
    asking, server = _in_front(lab)
    front = lab.front

    def path(name: str, answer: str, source: Endpoint) -> Path:
        assert front is not None, "else there are no names"
        asked = str(lab.plan.dns_address) if source.kind == "pod" else front.address
        target = Endpoint(name, "name", server.os, server.node, asked, DNS_PORT)
        relation = between(source, server)
        return Path(source, target, relation, (server.name,), name_form="full", answer=answer)

    return (*lab.ends.pods, *asking), (
        Target(server.name, True, partial(path, name, answer), only_small=True)
        for name, answer in (front.names if front else ())
    )


def api(lab: LabEnds) -> Ends:
    """Every probe pod, every node and the client ask the API address; all API servers answer.

    They see the services node as the source, which makes a connection of its own to them; those of
    Kubernetes do not say so. Those are known by their certificates, which what Windows nodes are
    probed with does not tell: there no Windows node or pod asks.
    """
    asking, server = _in_front(lab)
    front = lab.front
    if front is None:
        return (), iter(())
    target = Endpoint("api", "api", server.os, server.node, front.address, front.api_port)
    seen = frozenset[str]() if front.tls else frozenset({front.address})
    sources = (*lab.ends.pods, *asking, lab.ends.client)

    def path(source: Endpoint) -> Path:
        return Path(source, target, between(source, server), front.api_servers, seen)

    return tuple(one for one in sources if not front.tls or one.os == "linux"), iter(
        (Target(server.name, True, path, only_small=True, protocol="tcp"),)
    )


def _in_front(lab: LabEnds) -> tuple[tuple[Endpoint, ...], Endpoint]:
    """The nodes that ask the services node, and that node itself; any where there is none."""
    name = lab.front.machine if lab.front else ""
    asking = tuple(node for node in lab.ends.nodes if node.name != name)
    return asking, next((node for node in lab.ends.nodes if node.name == name), asking[0])
