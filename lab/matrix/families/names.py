"""Names: of Services, of headless Services and their pods, and of nodes; and the API address.

A DNS answer has no backend and no source: only the addresses in it are judged. The relation, and
the machine that answers, are those of the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from ipaddress import IPv4Address
from typing import Literal

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.cells import DNS, CellFamily, Ends, rule
from lab.matrix.endpoints import LabEndpoints, find_relation
from lab.providers.provider import DNS_PORT, PROBE_PORT
from lab.topology.intent import HeadlessService

_Form = Literal["short", "partial", "full"]
_Name = tuple[str, str, _Form, str, str]
"""Group and kind of the target, form of the name, the name, and the answer."""


def _ask_names(lab: LabEndpoints, names: Iterable[_Name]) -> Ends:
    """Every probe pod asks the cluster's DNS for these names."""
    server = lab.dns_pod
    if server is None:
        return lab.pods, iter(())
    address = str(lab.plan.dns_address)

    def path(form: _Form, answer: str, target: Endpoint, pod: Endpoint) -> GridPath:
        relation = find_relation(pod, server)
        return GridPath(pod, target, relation, (server.name,), name_form=form, answer=answer)

    return lab.pods, (
        GridTarget(group, False, partial(path, form, answer, target), kind, only_small=True)
        for group, kind, form, name, answer in names
        for target in [Endpoint(name, "name", server.os, server.node, address, DNS_PORT)]
    )


def _dns(lab: LabEndpoints) -> Ends:
    """Every probe pod resolves the plan's first single Service by its three names."""
    return _ask_names(lab, _service_names(lab))


def _service_names(lab: LabEndpoints) -> Iterator[_Name]:
    service = next((s for s in lab.plan.services if s.purpose == "single"), None)
    if service is not None:
        answer = lab.services[service.backends[0]].address
        short, partly = service.name, f"{service.name}.{lab.namespace}"
        yield "short", "", "short", short, answer
        yield "partial", "", "partial", partly, answer
        yield "full", "", "full", f"{partly}.svc.{lab.plan.domain}.", answer


def _headless(lab: LabEndpoints) -> Ends:
    """Every pod resolves each headless Service's name, short and full, and its pods' names."""
    return _ask_names(lab, (name for service in lab.headless for name in _pod_names(lab, service)))


def _pod_names(lab: LabEndpoints, service: HeadlessService) -> Iterator[_Name]:
    full = f"{service.name}.{lab.namespace}.svc.{lab.plan.domain}."
    every = sorted(IPv4Address(backend.address) for backend in service.backends)
    together = ", ".join(str(address) for address in every)
    yield service.name, service.name, "short", service.name, together
    yield service.name, full, "full", full, together
    for backend in service.backends:
        name = f"{backend.pod}.{full}"
        yield service.name, name, "full", name, backend.address


def _node_names(lab: LabEndpoints) -> Ends:
    """Every probe pod and every node resolves every name that the services node serves.

    A node queries the services node directly, a pod the cluster's DNS, which forwards the query.
    The services node does not query itself.
    """
    asking, server = lab.nodes_and_services_node()
    front = lab.services_node

    def path(name: str, answer: str, source: Endpoint) -> GridPath:
        assert front is not None, "else there are no names"
        address = str(lab.plan.dns_address) if source.kind == "pod" else front.address
        target = Endpoint(name, "name", server.os, server.node, address, DNS_PORT)
        relation = find_relation(source, server)
        return GridPath(source, target, relation, (server.name,), name_form="full", answer=answer)

    return (*lab.pods, *asking), (
        GridTarget(server.name, True, partial(path, name, answer), only_small=True)
        for name, answer in (front.names if front else ())
    )


def _api(lab: LabEndpoints) -> Ends:
    """Every pod, every node and the client probe the API address; all API servers must answer.

    The servers see the services node as the source, since HAProxy opens its own connections; those
    of a real cluster do not report it. They are identified by their certificates, which the prober
    on Windows nodes does not report: there, Windows nodes and pods are not sources.
    """
    asking, server = lab.nodes_and_services_node()
    front = lab.services_node
    if front is None:
        return (), iter(())
    target = Endpoint("api", "api", server.os, server.node, front.address, front.api_port)
    addresses = frozenset[str]() if front.tls else frozenset({front.address})
    sources = (*lab.pods, *asking, *lab.clients)

    def path(source: Endpoint) -> GridPath:
        return GridPath(source, target, find_relation(source, server), front.api_servers, addresses)

    return tuple(source for source in sources if not front.tls or source.os == "linux"), iter(
        (GridTarget(server.name, True, path, only_small=True, protocol="tcp"),)
    )


SERVICE_NAMES = CellFamily(
    name="dns",
    order=90,
    ends=_dns,
    works=rule("K8S-DNS", "a pod finds a Service by its short, partial and full name", DNS),
)
HEADLESS = CellFamily(
    name="headless",
    order=150,
    special=lambda service: service.headless,
    needs='"headless: true"',
    every_address=True,
    ends=_headless,
    works=rule(
        "K8S-HEADLESS",
        "the name of a headless Service resolves to the addresses of its ready pods, and each "
        "pod has a name in it",
        DNS,
    ),
)
NODE_NAMES = CellFamily(
    name="node-names",
    order=170,
    services_node=True,
    name_port=PROBE_PORT,
    ends=_node_names,
    works=rule(
        "NODE-NAMES",
        "the services node answers the nodes' names; pods ask the cluster's DNS, which "
        "passes on what is not the cluster's",
        "Kubernetes documentation, Customizing DNS Service; Kubeinit's services node",
    ),
)
API = CellFamily(
    name="api",
    order=180,
    services_node=True,
    tcp_only=True,
    ends=_api,
    works=rule(
        "API-BALANCED",
        "the services node distributes connections to the API address over every API server "
        "that is ready",
        "kubeadm documentation, Options for Software Load Balancing; Kubeinit's services node",
    ),
)
