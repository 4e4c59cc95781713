"""Each node's first probe pod sends a TCP stream to a pod of the next other node of each system.

The next node is chosen as for node-service, so every node sends and is sent to, and the number of
streams grows with the nodes, not with their pairs. Nothing of the lab takes a stream on Windows
itself: on a real cluster the pods of Windows nodes neither send nor receive.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.endpoints import SYSTEMS, LabEndpoints, between
from lab.matrix.family import CellFamily, Ends, rule


def _ends(lab: LabEndpoints) -> Ends:
    systems = SYSTEMS[:1] if lab.real else SYSTEMS
    first = {
        node.name: pods[0]
        for node in lab.ends.hosts
        if (pods := lab.ends.pods_of[node.name]) and node.os in systems
    }
    senders: dict[str, set[str]] = {}
    for node, sender in first.items():
        for system in systems:
            receiver = lab.ends.nearest(node, system, avoid=sender.name)
            if receiver is not None:
                senders.setdefault(receiver.name, set()).add(sender.name)
    everybody = {pod.name for pod in first.values()}

    def target(receiver: Endpoint) -> GridTarget:

        def path(sender: Endpoint) -> GridPath:
            seen = lab.sources.of_pod_to_pod(sender)
            return GridPath(
                sender,
                receiver,
                between(sender, receiver),
                (receiver.name,),
                seen,
                min_throughput=lab.plan.min_throughput,
            )

        return GridTarget(
            str(receiver.node),
            True,
            path,
            never=frozenset(everybody - senders[receiver.name]),
            only_small=True,
        )

    def targets() -> Iterator[GridTarget]:
        return (target(pod) for pod in lab.ends.pods if pod.name in senders)

    return tuple(first.values()), targets()


FAMILY = CellFamily(
    name="throughput",
    order=190,
    on_request=True,
    dialect="throughput",
    ends=_ends,
    works=rule(
        "THROUGHPUT",
        "a TCP stream between two nodes carries what the scenario asks for, or anything",
        'the scenario, "min_throughput" of its matrix',
    ),
)
