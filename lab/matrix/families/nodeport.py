"""Every pod, every node with a kubelet and the client probe every node with a kubelet.

The backends are the entry node's first pod, and for each system one pod on another node, chosen as
for node-service, each avoiding the source itself if there is another pod.
"""

from __future__ import annotations

from functools import partial

from lab.matrix.cell import Endpoint, GridPath, GridTarget
from lab.matrix.endpoints import Choose, LabEndpoints, between, local_and_remote
from lab.matrix.family import SOURCE_IP, CellFamily, Ends, rule


def _ends(lab: LabEndpoints) -> Ends:

    def path(entry: Endpoint, choose: Choose, source: Endpoint) -> GridPath:
        return _through(lab, source, entry, choose(source))

    return (*lab.ends.pods, *lab.ends.hosts, lab.ends.client), (
        GridTarget(entry.name, True, partial(path, entry, choose), place)
        for entry in lab.ends.hosts
        for place, choose in local_and_remote(lab, entry.name, lab.ends.node_ports).items()
    )


def _through(lab: LabEndpoints, source: Endpoint, entry: Endpoint, backend: Endpoint) -> GridPath:
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


FAMILY = CellFamily(
    name="nodeport",
    order=50,
    ends=_ends,
    works=rule(
        "K8S-NODEPORT",
        "every node that runs kube-proxy passes its node ports on to the Service's "
        "endpoints, wherever they are, with its own address as the source (policy Cluster)",
        SOURCE_IP,
    ),
)
