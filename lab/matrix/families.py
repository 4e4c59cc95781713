"""Plan and Intent to the grid of each family. Pure, always in the same order.

Every cell's path has a pod at one end or behind the Service asked, so all of them carry the
pods' MTU; the segment's own would only hold between machines, and no family asks there.

A question to the DNS and a shared Service have one size each, small, whatever sizes the
scenario asks for. All Services are in the namespace that the pods' resolver files search first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Literal

from lab.matrix.cell import Endpoint, Relation
from lab.matrix.endpoints import SharedTarget
from lab.matrix.grid import Grid, GridPath, GridTarget
from lab.matrix.lab_ends import Ends, LabEnds, between
from lab.matrix.special import SPECIAL
from lab.providers.provider import DNS_PORT
from lab.scenario.terms import Family, Os


def node_names(lab: LabEnds) -> Ends:
    """Every probe pod and every node asks for every name that the services node serves.

    A node asks the services node itself; a pod the cluster's DNS, which passes the question on.
    The services node does not ask itself.
    """
    asking, server = _in_front(lab)
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

    def path(source: Endpoint) -> GridPath:
        return GridPath(source, target, between(source, server), front.api_servers, seen)

    return tuple(one for one in sources if not front.tls or one.os == "linux"), iter(
        (GridTarget(server.name, True, path, only_small=True, protocol="tcp"),)
    )


def _in_front(lab: LabEnds) -> tuple[tuple[Endpoint, ...], Endpoint]:
    """The nodes that ask the services node, and that node itself; any where there is none."""
    name = lab.front.machine if lab.front else ""
    asking = tuple(node for node in lab.ends.nodes if node.name != name)
    return asking, next((node for node in lab.ends.nodes if node.name == name), asking[0])


SYSTEMS: tuple[Os, ...] = ("linux", "windows")


def grid(lab: LabEnds, family: Family) -> Grid:
    """The cells of one family."""
    sources, targets = _FAMILIES[family](lab)
    return Grid(family, sources, tuple(targets), lab.variants, lab.small, lab.mtu)


def _pod_pod(lab: LabEnds) -> Ends:
    """Every ordered pair of different probe pods."""
    seen = cache(lab.sources.of_pod_to_pod)

    def path(target: Endpoint, source: Endpoint) -> GridPath:
        return GridPath(source, target, between(source, target), (target.name,), seen(source))

    return lab.ends.pods, (
        GridTarget(str(pod.node), True, partial(path, pod), never=frozenset({pod.name}))
        for pod in lab.ends.pods
    )


def _pod_service(lab: LabEnds) -> Ends:
    """Every probe pod to every other pod's own Service, then to each shared Service."""
    seen = cache(lab.sources.of_pod_to_service)

    def path(backend: Endpoint, source: Endpoint) -> GridPath:
        target = lab.ends.services[backend.name]
        return GridPath(source, target, between(source, backend), (backend.name,), seen(source))

    def targets() -> Iterator[GridTarget]:
        for pod in lab.ends.pods:
            if pod.name in lab.ends.services:
                yield GridTarget(
                    str(pod.node), True, partial(path, pod), never=frozenset({pod.name})
                )
        for shared in lab.ends.shared:
            name = shared.endpoint.name
            yield GridTarget(name, False, partial(_to_shared, lab, shared), only_small=True)

    return lab.ends.pods, targets()


def _to_shared(lab: LabEnds, shared: SharedTarget, source: Endpoint) -> GridPath:
    """Every backend must answer; the relation is that of the farthest one."""
    seen = lab.sources.of_pod_to_service(source)
    relations = {between(source, backend) for backend in shared.backends}
    if "self" in relations:
        seen |= lab.sources.of_pod_to_itself(source)
    relation: Relation = "other-node" if "other-node" in relations else "same-node"
    names = tuple(backend.name for backend in shared.backends)
    return GridPath(source, shared.endpoint, relation, names, seen)


def _hairpin(lab: LabEnds) -> Ends:
    """Every probe pod to its own Service."""

    def path(pod: Endpoint) -> GridPath:
        seen = lab.sources.of_pod_to_itself(pod)
        return GridPath(pod, lab.ends.services[pod.name], "self", (pod.name,), seen)

    pods = tuple(pod for pod in lab.ends.pods if pod.name in lab.ends.services)
    return pods, iter((GridTarget("itself", False, path),))


def _node_service(lab: LabEnds) -> Ends:
    """Every node with a kubelet to the Services of one local pod and one remote one per system.

    The local pod is the node's first. The remote ones are, for Linux and then for Windows, the
    first pod of the next other node of that system in the plan's order, wrapping round.
    """
    chosen = {
        node.name: _local_and_remote(lab, node.name, lab.ends.services) for node in lab.ends.hosts
    }

    def path(place: str, node: Endpoint) -> GridPath:
        backend = chosen[node.name][place](node)
        target = lab.ends.services[backend.name]
        seen = lab.sources.of_machine(node.name, backend)
        return GridPath(node, target, between(node, backend), (backend.name,), seen)

    return lab.ends.hosts, (
        GridTarget(place, False, partial(path, place), never=without)
        for place in _PLACES
        for without in [frozenset(name for name, found in chosen.items() if place not in found)]
    )


def _nodeport(lab: LabEnds) -> Ends:
    """Every pod, every node with a kubelet and the client ask every node with a kubelet.

    Behind the port stands the entry node's first pod, then one pod on another node for each
    system, chosen as for node-service, each time avoiding the source itself where another pod
    can be had.
    """

    def path(entry: Endpoint, choose: _Choose, source: Endpoint) -> GridPath:
        return _through(lab, source, entry, choose(source))

    return (*lab.ends.pods, *lab.ends.hosts, lab.ends.client), (
        GridTarget(entry.name, True, partial(path, entry, choose), place)
        for entry in lab.ends.hosts
        for place, choose in _local_and_remote(lab, entry.name, lab.ends.node_ports).items()
    )


_PLACES = ("local", *SYSTEMS)
_Choose = Callable[[Endpoint], Endpoint]
"""From a source to the backend that it is to be led to."""


def _local_and_remote(lab: LabEnds, node: str, served: Mapping[str, object]) -> dict[str, _Choose]:
    """Of each place that has a pod with a Service, how a backend is chosen there."""
    found: dict[str, _Choose] = {}
    for place in _PLACES:
        first = _standing(lab, node, place, "")
        if first is not None and first.name in served:
            other = _standing(lab, node, place, first.name)
            assert other is not None, "the first one is there"
            found[place] = partial(_avoiding, first, other if other.name in served else first)
    return found


def _standing(lab: LabEnds, node: str, place: str, avoid: str) -> Endpoint | None:
    for system in SYSTEMS:
        if place == system:
            return lab.ends.nearest(node, system, avoid)
    return lab.ends.local(node, avoid)


def _avoiding(first: Endpoint, other: Endpoint, source: Endpoint) -> Endpoint:
    return other if source.name == first.name else first


def _through(lab: LabEnds, source: Endpoint, entry: Endpoint, backend: Endpoint) -> GridPath:
    service = lab.ends.services[backend.name]
    target = Endpoint(
        f"{entry.name}:{service.name}",
        "nodeport",
        backend.os,
        backend.node,
        lab.ends.outside[entry.name] if source.kind == "client" else entry.address,
        lab.ends.node_ports[backend.name],
    )
    seen = lab.sources.of_node_port(entry.name, backend)
    relation = between(source, backend)
    return GridPath(
        source, target, relation, (backend.name,), seen, entry=entry.name, entry_os=entry.os
    )


def _node_pod(lab: LabEnds) -> Ends:
    """Every node with a kubelet to every probe pod."""

    def path(pod: Endpoint, node: Endpoint) -> GridPath:
        seen = lab.sources.of_machine(node.name, pod)
        return GridPath(node, pod, between(node, pod), (pod.name,), seen)

    return lab.ends.hosts, (
        GridTarget(str(pod.node), True, partial(path, pod)) for pod in lab.ends.pods
    )


def _pod_node(lab: LabEnds) -> Ends:
    """Every probe pod to every node, those without a kubelet included."""

    def path(node: Endpoint, pod: Endpoint) -> GridPath:
        seen = lab.sources.of_pod_to_address(pod, node)
        return GridPath(pod, node, between(pod, node), (node.name,), seen)

    return lab.ends.pods, (
        GridTarget(node.name, True, partial(path, node)) for node in lab.ends.nodes
    )


def _pod_external(lab: LabEnds) -> Ends:
    """Every probe pod to the client outside."""
    client = lab.ends.client

    def path(pod: Endpoint) -> GridPath:
        seen = lab.sources.of_pod_to_address(pod, client)
        return GridPath(pod, client, "outside", (client.name,), seen)

    return lab.ends.pods, iter((GridTarget(client.name, False, path),))


def _dns(lab: LabEnds) -> Ends:
    """Every probe pod asks for the plan's first single Service by its three names.

    A server's answer names no backend and no source: only the address answered is judged. The
    relation, and the machine that answers, are the DNS pod's.
    """
    server = lab.ends.dns_pod
    service = next((s for s in lab.plan.services if s.purpose == "single"), None)
    if server is None or service is None:
        return lab.ends.pods, iter(())
    names: tuple[tuple[Literal["short", "partial", "full"], str], ...] = (
        ("short", service.name),
        ("partial", f"{service.name}.{lab.namespace}"),
        ("full", f"{service.name}.{lab.namespace}.svc.{lab.plan.domain}."),
    )
    address = str(lab.plan.dns_address)

    def path(form: Literal["short", "partial", "full"], asked: Endpoint, pod: Endpoint) -> GridPath:
        return GridPath(
            pod,
            asked,
            between(pod, server),
            (server.name,),
            name_form=form,
            answer=str(service.address),
        )

    return lab.ends.pods, (
        GridTarget(form, False, partial(path, form, asked), only_small=True)
        for form, name in names
        for asked in [Endpoint(name, "name", server.os, server.node, address, DNS_PORT)]
    )


_FAMILIES: Mapping[Family, Callable[[LabEnds], Ends]] = {
    "pod-pod": _pod_pod,
    "pod-service": _pod_service,
    "hairpin": _hairpin,
    "node-service": _node_service,
    "nodeport": _nodeport,
    "node-pod": _node_pod,
    "pod-node": _pod_node,
    "pod-external": _pod_external,
    "dns": _dns,
    **SPECIAL,
    "node-names": node_names,
    "api": api,
}
