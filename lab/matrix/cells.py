"""Plan and Intent to the cells of the matrix: pure, always in the same order, ids for life.

Every cell's path has a pod at one end or behind the Service asked, so all of them carry the
pods' MTU; the segment's own would only hold between machines, and no family asks there.

A question to the DNS and a shared Service have one size each, small, whatever sizes the
scenario asks for. All Services are in the namespace that the pods' resolver files search first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from lab._errors import MatrixError
from lab.matrix.cell import Cell, Endpoint, Relation
from lab.matrix.endpoints import Endpoints, SharedTarget, endpoints
from lab.matrix.sources import Sources
from lab.plan.plan import Plan
from lab.providers.provider import DNS_PORT
from lab.scenario.scenario import FAMILIES, Family, Os, Protocol, Size
from lab.topology.intent import Intent

SYSTEMS: tuple[Os, ...] = ("linux", "windows")

Variant = tuple[Protocol, Size, str]
"""Protocol, size, and how the two end a cell's id."""


@dataclass(frozen=True, slots=True)
class _Lab:
    """What every family is made from."""

    plan: Plan
    ends: Endpoints
    sources: Sources
    variants: tuple[Variant, ...]
    small: tuple[Variant, ...]
    mtu: int
    namespace: str
    """Of all Services but the cluster's own."""


@dataclass(frozen=True, slots=True)
class _Path:
    """One source and one target, before protocol and size."""

    source: Endpoint
    target: Endpoint
    relation: Relation
    backends: tuple[str, ...]
    sources: frozenset[str] = frozenset()
    entry: str | None = None
    name_form: Literal["short", "partial", "full"] | None = None
    answer: str | None = None
    only_small: bool = False


def cells(plan: Plan, intent: Intent) -> tuple[Cell, ...]:
    """Every cell that the plan asks for: by family, source, target, protocol and size.

    Raises
    ------
    MatrixError
        If there are none at all, or none in a family that the scenario asks for.

    """
    lab = _Lab(
        plan=plan,
        ends=endpoints(plan, intent),
        sources=Sources(intent),
        variants=tuple((p, s, f"{p}-{s}") for p in plan.protocols for s in plan.sizes),
        small=tuple((p, "small", f"{p}-small") for p in plan.protocols),
        mtu=intent.pod_mtu,
        namespace=_namespace(intent),
    )
    made: list[Cell] = []
    for family in FAMILIES:
        if family in plan.families:
            before = len(made)
            made.extend(_spell_out(lab, family))
            if len(made) == before:
                raise _empty(plan, f"family '{family}', which the scenario asks for, has no cells")
    if not made:
        raise _empty(plan, "the scenario asks for no cells at all")
    return tuple(made)


def _namespace(intent: Intent) -> str:
    searched = (pod.resolver.search for machine in intent.machines for pod in machine.pods)
    first = next((search[0] for search in searched if search), "default")
    return first.partition(".")[0]


def counts(made: tuple[Cell, ...]) -> dict[Family, int]:
    """How many cells each family has; families without any are left out."""
    found: dict[Family, int] = {}
    for cell in made:
        found[cell.family] = found.get(cell.family, 0) + 1
    return found


def _empty(plan: Plan, happened: str) -> MatrixError:
    return MatrixError(
        f"making the matrix of scenario '{plan.scenario}'",
        happened,
        "give its nodes more pods, or name other families under 'matrix' in the scenario",
    )


def _spell_out(lab: _Lab, family: Family) -> Iterator[Cell]:
    for path in _PATHS[family](lab):
        source, target = path.source, path.target
        stem = f"{family}/{source.name}/{target.name}/"
        for protocol, size, suffix in lab.small if path.only_small else lab.variants:
            yield Cell(
                stem + suffix,
                family,
                source,
                target,
                protocol,
                size,
                path.relation,
                path.entry,
                path.name_form,
                path.backends,
                path.sources,
                path.answer,
                lab.mtu,
            )


def _between(source: Endpoint, backend: Endpoint) -> Relation:
    if source.node is None or backend.node is None:
        return "outside"
    if source.kind == "pod" and source.name == backend.name:
        return "self"
    return "same-node" if source.node == backend.node else "other-node"


def _pod_pod(lab: _Lab) -> Iterator[_Path]:
    """Every ordered pair of different probe pods."""
    for source in lab.ends.pods:
        seen = lab.sources.of_pod_to_pod(source)
        for target in lab.ends.pods:
            if target.name != source.name:
                yield _Path(source, target, _between(source, target), (target.name,), seen)


def _pod_service(lab: _Lab) -> Iterator[_Path]:
    """Every probe pod to every other pod's own Service, then to each shared Service."""
    for source in lab.ends.pods:
        seen = lab.sources.of_pod_to_service(source)
        for backend in lab.ends.pods:
            if backend.name != source.name and backend.name in lab.ends.services:
                target = lab.ends.services[backend.name]
                yield _Path(source, target, _between(source, backend), (backend.name,), seen)
        for shared in lab.ends.shared:
            yield _to_shared(lab, source, shared)


def _to_shared(lab: _Lab, source: Endpoint, shared: SharedTarget) -> _Path:
    """Every backend must answer; the relation is that of the farthest one."""
    seen = lab.sources.of_pod_to_service(source)
    relations = {_between(source, backend) for backend in shared.backends}
    if "self" in relations:
        seen |= lab.sources.of_pod_to_itself(source)
    relation: Relation = "other-node" if "other-node" in relations else "same-node"
    names = tuple(backend.name for backend in shared.backends)
    return _Path(source, shared.endpoint, relation, names, seen, only_small=True)


def _hairpin(lab: _Lab) -> Iterator[_Path]:
    """Every probe pod to its own Service."""
    for pod in lab.ends.pods:
        if pod.name in lab.ends.services:
            seen = lab.sources.of_pod_to_itself(pod)
            yield _Path(pod, lab.ends.services[pod.name], "self", (pod.name,), seen)


def _node_service(lab: _Lab) -> Iterator[_Path]:
    """Every node with a kubelet to the Services of one local pod and one remote one per system.

    The local pod is the node's first. The remote ones are, for Linux and then for Windows, the
    first pod of the next other node of that system in the plan's order, wrapping round.
    """
    for node in lab.ends.hosts:
        for backend in _local_and_remote(lab, node.name, node.name):
            target = lab.ends.services[backend.name]
            seen = lab.sources.of_machine(node.name, backend)
            yield _Path(node, target, _between(node, backend), (backend.name,), seen)


def _nodeport(lab: _Lab) -> Iterator[_Path]:
    """Every pod, every node with a kubelet and the client ask every node with a kubelet.

    Behind the port stands the entry node's first pod, then one pod on another node for each
    system, chosen as for node-service, each time avoiding the source itself where another pod
    can be had.
    """
    for source in (*lab.ends.pods, *lab.ends.hosts, lab.ends.client):
        for entry in lab.ends.hosts:
            for backend in _local_and_remote(lab, entry.name, source.name):
                if backend.name in lab.ends.node_ports:
                    yield _through(lab, source, entry, backend)


def _local_and_remote(lab: _Lab, node: str, avoid: str) -> Iterator[Endpoint]:
    choices = (
        lab.ends.local(node, avoid),
        *(lab.ends.nearest(node, os, avoid) for os in SYSTEMS),
    )
    return (pod for pod in choices if pod is not None and pod.name in lab.ends.services)


def _through(lab: _Lab, source: Endpoint, entry: Endpoint, backend: Endpoint) -> _Path:
    service = lab.ends.services[backend.name]
    target = Endpoint(
        f"{entry.name}:{service.name}",
        "nodeport",
        backend.os,
        backend.node,
        entry.address,
        lab.ends.node_ports[backend.name],
    )
    seen = lab.sources.of_node_port(entry.name, backend)
    relation = _between(source, backend)
    return _Path(source, target, relation, (backend.name,), seen, entry=entry.name)


def _node_pod(lab: _Lab) -> Iterator[_Path]:
    """Every node with a kubelet to every probe pod."""
    for node in lab.ends.hosts:
        for pod in lab.ends.pods:
            seen = lab.sources.of_machine(node.name, pod)
            yield _Path(node, pod, _between(node, pod), (pod.name,), seen)


def _pod_node(lab: _Lab) -> Iterator[_Path]:
    """Every probe pod to every node, those without a kubelet included."""
    for pod in lab.ends.pods:
        for node in lab.ends.nodes:
            seen = lab.sources.of_pod_to_address(pod, node)
            yield _Path(pod, node, _between(pod, node), (node.name,), seen)


def _pod_external(lab: _Lab) -> Iterator[_Path]:
    """Every probe pod to the client outside."""
    client = lab.ends.client
    for pod in lab.ends.pods:
        seen = lab.sources.of_pod_to_address(pod, client)
        yield _Path(pod, client, "outside", (client.name,), seen)


def _dns(lab: _Lab) -> Iterator[_Path]:
    """Every probe pod asks for the plan's first single Service by its three names.

    A server's answer names no backend and no source: only the address answered is judged. The
    relation, and the machine that answers, are the DNS pod's.
    """
    server = lab.ends.dns_pod
    service = next((s for s in lab.plan.services if s.purpose == "single"), None)
    if server is None or service is None:
        return
    names: tuple[tuple[Literal["short", "partial", "full"], str], ...] = (
        ("short", service.name),
        ("partial", f"{service.name}.{lab.namespace}"),
        ("full", f"{service.name}.{lab.namespace}.svc.{lab.plan.domain}."),
    )
    for pod in lab.ends.pods:
        for form, name in names:
            target = Endpoint(
                name, "name", server.os, server.node, str(lab.plan.dns_address), DNS_PORT
            )
            yield _Path(
                pod,
                target,
                _between(pod, server),
                (server.name,),
                name_form=form,
                answer=str(service.address),
                only_small=True,
            )


_PATHS: Mapping[Family, Callable[[_Lab], Iterator[_Path]]] = {
    "pod-pod": _pod_pod,
    "pod-service": _pod_service,
    "hairpin": _hairpin,
    "node-service": _node_service,
    "nodeport": _nodeport,
    "node-pod": _node_pod,
    "pod-node": _pod_node,
    "pod-external": _pod_external,
    "dns": _dns,
}
