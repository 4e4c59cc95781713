"""Every pod probes every port over both protocols, the client every NodePort over its protocols.

Ports and protocols that a Service does not have are probed only if kube-proxy is in mode nftables:
in mode iptables it has no rule for them, and the packets leave the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.matrix.cell import GridTarget
from lab.matrix.endpoints import LabEndpoints
from lab.matrix.family import PROXY, SERVICES, CellFamily, Ends, refusal, rule
from lab.matrix.service_ports import ServicePortTargets, by_address, by_node, names
from lab.scenario.scenario import has_own_ports
from lab.scenario.terms import PROTOCOLS, Protocol, ServicePort
from lab.topology.intent import ProxiedService


def _ends(lab: LabEndpoints) -> Ends:
    services = [one for one in lab.special if one.backends and has_own_ports(one.ports)]
    rejects = lab.plan.proxy_mode == "nftables"
    pods, client = names(lab.ends.pods), frozenset({lab.ends.client.name})

    def targets() -> Iterator[GridTarget]:
        for service in services:
            for port in service.ports:
                yield from by_address(lab, service, port, never=client)
                refused = lab.asked_protocols(_others(service, port)) if rejects else ()
                for protocol in refused:
                    yield from ServicePortTargets(lab, service, port, protocol).targets(client)
            for port in service.ports:
                for entry in lab.ends.hosts:
                    yield from by_node(lab, service, port, entry, never=pods)

    return (*lab.ends.pods, lab.ends.client), targets()


def _others(service: ProxiedService, port: ServicePort) -> Iterator[Protocol]:
    """The protocols for which the Service has no port with this number."""
    served = {one for other in service.ports if other.port == port.port for one in other.protocols}
    first = next(other for other in service.ports if other.port == port.port)
    return (one for one in PROTOCOLS if one not in served and port is first)


FAMILY = CellFamily(
    name="ports",
    order=130,
    special=lambda one: one.serves and has_own_ports(one.ports),
    needs='"ports"',
    ends=_ends,
    works=rule(
        "K8S-PORTS", "each port of a Service leads to the pods' port that it names", SERVICES
    ),
    promised=refusal(
        "K8S-NO-SUCH-PORT",
        "kube-proxy refuses what is sent to a Service address on a port or protocol that the"
        " Service does not have (mode nftables)",
        "refused",
        PROXY,
    ),
)
