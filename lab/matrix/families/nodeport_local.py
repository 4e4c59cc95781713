"""Every pod, every node with a kubelet and the client probe every node with a kubelet.

Pods of a Windows node that has some, but not all, of the backends do not probe that node:
kube-proxy chooses other backends there than on Linux, and neither is a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.matrix.cell import GridTarget
from lab.matrix.endpoints import LabEndpoints
from lab.matrix.family import SOURCE_IP, CellFamily, Ends, refusal, rule
from lab.matrix.service_ports import by_node, names
from lab.topology import proxying


def _ends(lab: LabEndpoints) -> Ends:
    services = [one for one in lab.special if one.outside == "local" and one.backends]

    def targets() -> Iterator[GridTarget]:
        for service in services:
            for port in service.ports:
                for entry in lab.ends.hosts:
                    local = len(proxying.local(service, entry.name))
                    mixed = entry.os == "windows" and 0 < local < len(service.backends)
                    never = names(lab.ends.pods_of[entry.name]) if mixed else frozenset[str]()
                    yield from by_node(lab, service, port, entry, never=never)

    return (*lab.ends.pods, *lab.ends.hosts, lab.ends.client), targets()


FAMILY = CellFamily(
    name="nodeport-local",
    order=110,
    special=lambda one: one.serves and one.external_traffic == "local",
    needs='"external_traffic: local"',
    ends=_ends,
    works=rule(
        "K8S-NODEPORT-LOCAL",
        "with externalTrafficPolicy Local a node passes its node port on to its own backends"
        " alone and keeps the source address; the node itself and its pods reach all "
        "backends",
        SOURCE_IP,
    ),
    promised=refusal(
        "K8S-NODEPORT-NO-LOCAL",
        "with externalTrafficPolicy Local a node without a backend of its own drops what "
        "comes from elsewhere",
        "timeout",
        SOURCE_IP,
    ),
)
