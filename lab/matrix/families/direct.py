"""Pods, nodes and the client outside, by their own addresses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.cells import MODEL, SOURCE_IP, CellFamily, Ends, rule
from lab.matrix.endpoints import SYSTEMS, LabEndpoints, find_relation
from lab.plan.plan import Plan


def _pod_pod(lab: LabEndpoints) -> Ends:
    """Every ordered pair of different probe pods."""
    sources_of = cache(lab.sources.of_pod_to_pod)

    def path(target: Endpoint, source: Endpoint) -> GridPath:
        return GridPath(
            source, target, find_relation(source, target), (target.name,), sources_of(source)
        )

    return lab.pods, (
        GridTarget(str(pod.node), True, partial(path, pod), excluded=frozenset({pod.name}))
        for pod in lab.pods
    )


def _node_pod(lab: LabEndpoints) -> Ends:
    """Every node with a kubelet to every probe pod."""

    def path(pod: Endpoint, node: Endpoint) -> GridPath:
        sources = lab.sources.of_machine(node.name, pod)
        return GridPath(node, pod, find_relation(node, pod), (pod.name,), sources)

    return lab.senders, (GridTarget(str(pod.node), True, partial(path, pod)) for pod in lab.pods)


def _to_address(lab: LabEndpoints, target: Endpoint, pod: Endpoint) -> GridPath:
    sources = lab.sources.of_pod_to_address(pod, target)
    return GridPath(pod, target, find_relation(pod, target), (target.name,), sources)


def _pod_node(lab: LabEndpoints) -> Ends:
    """Every probe pod to every node, including those without a kubelet."""
    return lab.pods, (
        GridTarget(node.name, True, partial(_to_address, lab, node)) for node in lab.nodes
    )


def _pod_external(lab: LabEndpoints) -> Ends:
    """Every probe pod to the client outside."""
    return lab.pods, (
        GridTarget(client.name, False, partial(_to_address, lab, client)) for client in lab.clients
    )


_STREAM_SHARE = 0.75
"""Of a link's rate that a TCP stream carries at least, beside headers and what is sent again."""


def _floor(plan: Plan, sender: str, receiver: str) -> int | None:
    """The least rate of a stream between two nodes, in bits a second: no more than links let pass.

    None where any rate will do, as through a link that loses packets.
    """
    links = [link for link in (plan.node(sender).sends, plan.node(receiver).receives) if link]
    if plan.min_throughput is None or any(link.loss for link in links):
        return None
    rates = [int(link.rate * _STREAM_SHARE) for link in links if link.rate]
    return min((plan.min_throughput, *rates))


def _throughput(lab: LabEndpoints) -> Ends:
    """Each node's first probe pod sends a TCP stream to a pod of the next node of each system.

    The next other node is chosen as for node-service, so every node sends and is sent to, and the
    number of streams grows with the nodes, not with their pairs. Nothing of the lab takes a stream
    on Windows itself: on a real cluster the pods of Windows nodes neither send nor receive.
    """
    systems = SYSTEMS[:1] if lab.on_cluster else SYSTEMS
    first = {
        node.name: pods[0]
        for node in lab.hosts
        if (pods := lab.pods_of[node.name]) and node.os in systems
    }
    senders: dict[str, set[str]] = {}
    for node, sender in first.items():
        for system in systems:
            receiver = lab.nearest(node, system, avoid=sender.name)
            if receiver is not None:
                senders.setdefault(receiver.name, set()).add(sender.name)
    everybody = {pod.name for pod in first.values()}

    def path(receiver: Endpoint, sender: Endpoint) -> GridPath:
        sources, relation = lab.sources.of_pod_to_pod(sender), find_relation(sender, receiver)
        backends = (receiver.name,)
        floor = _floor(lab.plan, str(sender.node), str(receiver.node))
        return GridPath(sender, receiver, relation, backends, sources, min_throughput=floor)

    def targets() -> Iterator[GridTarget]:
        for pod in lab.pods:
            if pod.name in senders:
                excluded = frozenset(everybody - senders[pod.name])
                to = partial(path, pod)
                yield GridTarget(str(pod.node), True, to, excluded=excluded, only_small=True)

    return tuple(first.values()), targets()


POD_POD = CellFamily(
    name="pod-pod",
    order=10,
    ends=_pod_pod,
    works=rule("K8S-POD-POD", "every pod reaches every other pod without NAT", MODEL),
)
NODE_POD = CellFamily(
    name="node-pod",
    order=60,
    ends=_node_pod,
    works=rule(
        "K8S-NODE-POD", "the agents on a node reach pods; every node reaches every pod", MODEL
    ),
)
POD_NODE = CellFamily(
    name="pod-node",
    order=70,
    ends=_pod_node,
    works=rule("K8S-POD-NODE", "every pod reaches every node", MODEL),
)
POD_EXTERNAL = CellFamily(
    name="pod-external",
    order=80,
    ends=_pod_external,
    works=rule(
        "K8S-POD-EXTERNAL",
        "pods reach addresses outside the cluster, with their node's address where it masquerades",
        SOURCE_IP,
    ),
)
THROUGHPUT = CellFamily(
    name="throughput",
    order=190,
    on_request=True,
    dialect="throughput",
    ends=_throughput,
    works=rule(
        "THROUGHPUT",
        "a TCP stream between two nodes carries what the scenario asks for, or anything",
        'the scenario, "min_throughput" of its matrix',
    ),
)
