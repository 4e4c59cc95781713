"""The Services of single pods, by their addresses and by NodePorts, and shared Services."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

from lab.matrix.cell import Endpoint, GridPath, GridTarget, Relation
from lab.matrix.cells import PROXY, SERVICES, SOURCE_IP, CellFamily, Ends, rule
from lab.matrix.endpoints import (
    PLACEMENTS,
    Choose,
    LabEndpoints,
    SharedTarget,
    find_relation,
    local_and_remote,
)


def _pod_service(lab: LabEndpoints) -> Ends:
    """Every probe pod to every other pod's own Service, then to each shared Service."""
    sources_of = cache(lab.sources.of_pod_to_service)

    def path(backend: Endpoint, source: Endpoint) -> GridPath:
        target = lab.services[backend.name]
        return GridPath(
            source, target, find_relation(source, backend), (backend.name,), sources_of(source)
        )

    def targets() -> Iterator[GridTarget]:
        for pod in lab.pods:
            if pod.name in lab.services:
                yield GridTarget(
                    str(pod.node), True, partial(path, pod), excluded=frozenset({pod.name})
                )
        for shared in lab.shared:
            name = shared.endpoint.name
            yield GridTarget(name, False, partial(_to_shared, lab, shared), only_small=True)

    return lab.pods, targets()


def _to_shared(lab: LabEndpoints, shared: SharedTarget, source: Endpoint) -> GridPath:
    """Every backend must answer; the relation is that of the farthest one."""
    sources = lab.sources.of_pod_to_service(source)
    relations = {find_relation(source, backend) for backend in shared.backends}
    if "self" in relations:
        sources |= lab.sources.of_pod_to_itself(source)
    relation: Relation = "other-node" if "other-node" in relations else "same-node"
    names = tuple(backend.name for backend in shared.backends)
    return GridPath(source, shared.endpoint, relation, names, sources)


def _node_service(lab: LabEndpoints) -> Ends:
    """Every node with a kubelet to the Services of a local pod and of a remote pod per system.

    The local pod is the node's first. The remote pods are, for Linux and for Windows, the first pod
    of the next node with that system in the plan's order, wrapping around.
    """
    chosen = {node.name: local_and_remote(lab, node.name, lab.services) for node in lab.hosts}

    def path(placement: str, node: Endpoint) -> GridPath:
        backend = chosen[node.name][placement](node)
        target = lab.services[backend.name]
        sources = lab.sources.of_machine(node.name, backend)
        return GridPath(node, target, find_relation(node, backend), (backend.name,), sources)

    return lab.senders, (
        GridTarget(placement, False, partial(path, placement), excluded=without)
        for placement in PLACEMENTS
        for without in [frozenset(name for name, kinds in chosen.items() if placement not in kinds)]
    )


def _every_node_service(lab: LabEndpoints) -> Ends:
    """Every node with a kubelet to every pod's own Service."""

    def path(backend: Endpoint, node: Endpoint) -> GridPath:
        sources = lab.sources.of_machine(node.name, backend)
        target = lab.services[backend.name]
        return GridPath(node, target, find_relation(node, backend), (backend.name,), sources)

    return lab.senders, (
        GridTarget(str(pod.node), True, partial(path, pod))
        for pod in lab.pods
        if pod.name in lab.services
    )


def _nodeport(lab: LabEndpoints) -> Ends:
    """Every pod, every node with a kubelet and the client probe every node with a kubelet.

    The backends are the entry node's first pod, and for each system one pod on another node, chosen
    as for node-service, each avoiding the source itself if there is another pod.
    """

    def path(entry: Endpoint, choose: Choose, source: Endpoint) -> GridPath:
        return _path_through(lab, source, entry, choose(source))

    return (*lab.pods, *lab.senders, *lab.clients), (
        GridTarget(entry.name, True, partial(path, entry, choose), placement)
        for entry in lab.hosts
        for placement, choose in local_and_remote(lab, entry.name, lab.node_ports).items()
    )


def _every_nodeport(lab: LabEndpoints) -> Ends:
    """The same sources and nodes, with the NodePort of every pod's own Service."""

    def path(entry: Endpoint, backend: Endpoint, source: Endpoint) -> GridPath:
        return _path_through(lab, source, entry, backend)

    return (*lab.pods, *lab.senders, *lab.clients), (
        GridTarget(entry.name, True, partial(path, entry, pod), pod.name)
        for entry in lab.hosts
        for pod in lab.pods
        if pod.name in lab.node_ports
    )


def _path_through(
    lab: LabEndpoints, source: Endpoint, entry: Endpoint, backend: Endpoint
) -> GridPath:
    service = lab.services[backend.name]
    target = Endpoint(
        f"{entry.name}:{service.name}",
        "nodeport",
        backend.os,
        backend.node,
        lab.outside_addresses[entry.name] if source.kind == "client" else entry.address,
        lab.node_ports[backend.name],
    )
    sources = lab.sources.of_node_port(entry.name, backend)
    relation = find_relation(source, backend)
    return GridPath(
        source, target, relation, (backend.name,), sources, entry=entry.name, entry_os=entry.os
    )


POD_SERVICE = CellFamily(
    name="pod-service",
    order=20,
    ends=_pod_service,
    works=rule(
        "K8S-POD-SERVICE",
        "a Service address leads every pod to the Service's ready endpoints",
        SERVICES,
    ),
)
NODE_SERVICE = CellFamily(
    name="node-service",
    order=40,
    ends=_node_service,
    pairs=_every_node_service,
    works=rule("K8S-NODE-SERVICE", "kube-proxy serves Service addresses on its node too", PROXY),
)
NODEPORT = CellFamily(
    name="nodeport",
    order=50,
    ends=_nodeport,
    pairs=_every_nodeport,
    works=rule(
        "K8S-NODEPORT",
        "every node that runs kube-proxy passes its node ports on to the Service's "
        "endpoints, wherever they are, with its own address as the source (policy Cluster)",
        SOURCE_IP,
    ),
)
