"""Special Services, port by port: policies, affinity, several ports, no endpoints, health checks.

All their cells are small. The expected backends, source address or refusal follow from the rules of
the node that translates (:mod:`lab.topology.proxying`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain

from lab._dataclass import dataclass
from lab.matrix.cell import Endpoint, GridPath, GridTarget, Relation
from lab.matrix.cells import PROXY, SERVICES, SOURCE_IP, CellFamily, Ends, refusal, rule
from lab.matrix.endpoints import LabEndpoints, find_relation
from lab.scenario.reserved import POD_PORT
from lab.scenario.special import has_own_ports
from lab.scenario.terms import PROTOCOLS, Os, Protocol, Refusal, ServicePort
from lab.topology import proxying
from lab.topology.intent import Backend, ProxiedService

_INTERNAL = 'Kubernetes documentation, "Service Internal Traffic Policy"'


def _names(ends: Iterable[Endpoint]) -> frozenset[str]:
    return frozenset(end.name for end in ends)


def _by_address(
    lab: LabEndpoints,
    service: ProxiedService,
    port: ServicePort,
    excluded: frozenset[str] = frozenset(),
) -> Iterator[GridTarget]:
    """Targets for the port of a Service's address, one per protocol."""
    for protocol in lab.asked_protocols(port.protocols):
        yield from _PortTargets(lab, service, port, protocol).targets(excluded)


def _by_node(
    lab: LabEndpoints,
    service: ProxiedService,
    port: ServicePort,
    entry: Endpoint,
    excluded: frozenset[str] = frozenset(),
) -> Iterator[GridTarget]:
    """Targets for the port's NodePort on a node, if it has one."""
    for protocol in lab.asked_protocols(port.protocols) if port.node_port is not None else ():
        yield from _PortTargets(lab, service, port, protocol, entry).targets(excluded)


@dataclass(frozen=True, slots=True)
class _PortTargets:
    """One port of a Service over one protocol, by its address or by a node."""

    lab: LabEndpoints
    service: ProxiedService
    port: ServicePort
    protocol: Protocol
    entry: Endpoint | None = None

    def targets(self, excluded: frozenset[str]) -> Iterator[GridTarget]:
        """One target for other sources, and one for pods that are backends themselves."""
        ends = self.lab
        backends = frozenset(backend.pod for backend in self.service.backends)
        others = _names((*ends.pods, *ends.hosts, *ends.clients)) - backends
        for kind, silent in (("other", backends), ("itself", others)):
            if kind == "other" or backends - excluded:
                yield GridTarget(
                    self.entry.name if self.entry else self.service.name,
                    self.entry is not None,
                    self._path,
                    f"{self.service.name}:{self.port.name}:{self.protocol}:{kind}",
                    excluded | silent,
                    only_small=True,
                    protocol=self.protocol,
                )

    def _path(self, source: Endpoint) -> GridPath:
        """The expected path, by the rules of the node that translates."""
        node = self.entry.name if self.entry else str(source.node)
        choice = self._choice(node, source)
        entry = self.entry.name if self.entry else None
        if not choice.backends:
            target = self._endpoint(self.lab.machines[node].os, node)
            refusal: Refusal = "refused" if choice.refused else "timeout"
            return GridPath(
                source,
                target,
                _relation_without_backend(source, node),
                (),
                entry=entry,
                refusal=refusal,
            )
        backends = [self._pod(backend) for backend in choice.backends]
        single = backends[0].node if len(backends) == 1 else None
        port = self.port.target_port
        return GridPath(
            source,
            self._endpoint(backends[0].os, single),
            _farthest_relation(source, backends),
            tuple(
                backend.name if port == POD_PORT else f"{backend.name}:{port}"
                for backend in backends
            ),
            self._seen(source, backends) if port == POD_PORT else frozenset(),
            entry=entry,
            sticky=self.service.affinity is not None and len(backends) > 1,
        )

    def _choice(self, node: str, source: Endpoint) -> proxying.ProxyChoice:
        """The node's choice of backends; a source on the node itself keeps its address."""
        address, port = self.service.address, self.port.port
        known_by = source.address
        if self.entry and self.port.node_port is not None:
            address, port = self.entry.address, self.port.node_port
            if source.node != node:
                known_by = min(self.lab.sources.at_entry(source, self.entry))
        machine = self.lab.machines[node]
        choice = proxying.choice(machine, self.protocol, known_by, address, port)
        assert choice is not None, "the Intent has the Service"
        return choice

    def _endpoint(self, os: Os, node: str | None) -> Endpoint:
        name = self.service.name
        if len(self.service.ports) > 1:
            name += f":{self.port.name}"
        if self.entry and self.port.node_port is not None:
            address, port = self.entry.address, self.port.node_port
            return Endpoint(f"{self.entry.name}:{name}", "nodeport", os, node, address, port)
        return Endpoint(name, "service", os, node, self.service.address, self.port.port)

    def _pod(self, backend: Backend) -> Endpoint:
        return next(pod for pod in self.lab.pods if pod.name == backend.pod)

    def _seen(self, source: Endpoint, backends: list[Endpoint]) -> frozenset[str]:
        sources, entry = self.lab.sources, self.entry
        if entry and (self.service.outside == "cluster" or source.name == entry.name):
            return _join_sets(sources.of_node_port(entry.name, backend) for backend in backends)
        if entry and source.node != entry.name:
            return sources.at_entry(source, entry)
        if source.kind == "node":
            return _join_sets(sources.of_machine(source.name, backend) for backend in backends)
        itself = [backend for backend in backends if backend.name == source.name]
        others = sources.of_pod_to_service(source) if len(itself) < len(backends) else frozenset()
        return others | _join_sets(sources.of_pod_to_itself(backend) for backend in itself)


def _join_sets(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset(chain.from_iterable(sets))


def _farthest_relation(source: Endpoint, backends: list[Endpoint]) -> Relation:
    relations = {find_relation(source, backend) for backend in backends}
    order: tuple[Relation, ...] = ("outside", "other-node", "same-node", "self")
    return next(relation for relation in order if relation in relations)


def _relation_without_backend(source: Endpoint, node: str) -> Relation:
    """Where the node that does not answer is, relative to the source."""
    if source.node is None:
        return "outside"
    return "same-node" if source.node == node else "other-node"


def _choose_ports(
    lab: LabEndpoints, fits: Callable[[ProxiedService], object]
) -> Iterator[tuple[ProxiedService, ServicePort]]:
    """The ports of the special Services that fit."""
    for service in lab.special:
        if fits(service):
            yield from ((service, port) for port in service.ports)


def _client(lab: LabEndpoints) -> frozenset[str]:
    return frozenset(client.name for client in lab.clients)


def _affinity(lab: LabEndpoints, *, every: bool = False) -> Ends:
    """Probe pods by the Service address, the client by every node: always the same backend.

    With ``every``, pods and nodes with a kubelet probe both.
    """
    pods = frozenset[str]() if every else _names(lab.pods)

    def targets() -> Iterator[GridTarget]:
        for service, port in _choose_ports(
            lab, lambda service: service.affinity is not None and service.backends
        ):
            yield from _by_address(lab, service, port, excluded=_client(lab))
            for entry in lab.hosts:
                yield from _by_node(lab, service, port, entry, excluded=pods)

    return (*lab.pods, *(lab.hosts if every else ()), *lab.clients), targets()


def _nodeport_local(lab: LabEndpoints) -> Ends:
    """Every pod, every node with a kubelet and the client probe every node with a kubelet.

    Pods of a Windows node that has some, but not all, of the backends do not probe that node:
    kube-proxy chooses other backends there than on Linux, and neither is a refusal.
    """

    def targets() -> Iterator[GridTarget]:
        for service, port in _choose_ports(
            lab, lambda service: service.outside == "local" and service.backends
        ):
            for entry in lab.hosts:
                local = len(proxying.local(service, entry.name))
                mixed = entry.os == "windows" and 0 < local < len(service.backends)
                excluded = _names(lab.pods_of[entry.name]) if mixed else frozenset[str]()
                yield from _by_node(lab, service, port, entry, excluded=excluded)

    return (*lab.pods, *lab.hosts, *lab.clients), targets()


def _cluster_ip_local(lab: LabEndpoints) -> Ends:
    """Every pod and every node with a kubelet, by the Service address."""
    return (*lab.pods, *lab.hosts), (
        target
        for service, port in _choose_ports(
            lab, lambda service: service.inside == "local" and service.backends
        )
        for target in _by_address(lab, service, port)
    )


def _ports(lab: LabEndpoints, *, every: bool = False) -> Ends:
    """Every pod probes every port over both protocols, the client every NodePort over its own.

    With ``every``, pods and nodes with a kubelet probe both.

    Ports and protocols that a Service does not have are probed only if kube-proxy is in mode
    nftables: in mode iptables it has no rule for them, and the packets leave the cluster.
    """
    services = [
        service for service in lab.special if service.backends and has_own_ports(service.ports)
    ]
    rejects = lab.plan.proxy_mode == "nftables"
    pods = frozenset[str]() if every else _names(lab.pods)
    client = _client(lab)

    def targets() -> Iterator[GridTarget]:
        for service in services:
            for port in service.ports:
                yield from _by_address(lab, service, port, excluded=client)
                refused = lab.asked_protocols(_other_protocols(service, port)) if rejects else ()
                for protocol in refused:
                    yield from _PortTargets(lab, service, port, protocol).targets(client)
            for port in service.ports:
                for entry in lab.hosts:
                    yield from _by_node(lab, service, port, entry, excluded=pods)

    return (*lab.pods, *(lab.hosts if every else ()), *lab.clients), targets()


def _other_protocols(service: ProxiedService, port: ServicePort) -> Iterator[Protocol]:
    """The protocols for which the Service has no port with this number."""
    served = {
        protocol
        for other in service.ports
        if other.port == port.port
        for protocol in other.protocols
    }
    first = next(other for other in service.ports if other.port == port.port)
    return (protocol for protocol in PROTOCOLS if protocol not in served and port is first)


def _no_endpoints(lab: LabEndpoints) -> Ends:
    """Pods and nodes by the Service address; pods, nodes and the client by every node."""

    def targets() -> Iterator[GridTarget]:
        for service, port in _choose_ports(lab, lambda service: not service.backends):
            yield from _by_address(lab, service, port, excluded=_client(lab))
            for entry in lab.hosts:
                yield from _by_node(lab, service, port, entry)

    return (*lab.pods, *lab.hosts, *lab.clients), targets()


def _health_check(lab: LabEndpoints, *, every: bool = False) -> Ends:
    """Like a load balancer, the client asks every node for its number of backends.

    With ``every``, pods and nodes with a kubelet ask, too.
    """

    def path(checked: Endpoint, number: int, source: Endpoint) -> GridPath:
        relation = find_relation(source, checked)
        return GridPath(source, checked, relation, (), entry=checked.node, answer=str(number))

    def target(service: ProxiedService, node: Endpoint, port: int) -> GridTarget:
        name = f"{node.name}:{service.name}:health"
        checked = Endpoint(name, "nodeport", node.os, node.node, node.address, port)
        to = partial(path, checked, len(proxying.local(service, node.name)))
        return GridTarget(node.name, True, to, service.name, only_small=True, protocol="tcp")

    return (*((*lab.pods, *lab.hosts) if every else ()), *lab.clients), (
        target(service, node, service.health_port)
        for service in lab.special
        if service.health_port is not None and "tcp" in lab.plan.protocols
        for node in lab.hosts
    )


AFFINITY = CellFamily(
    name="affinity",
    order=100,
    special=lambda service: service.serves and service.affinity is not None,
    needs='"affinity: 10800"',
    ends=_affinity,
    pairs=partial(_affinity, every=True),
    works=rule(
        "K8S-AFFINITY",
        "with session affinity a client always reaches the same backend",
        PROXY,
    ),
)
NODEPORT_LOCAL = CellFamily(
    name="nodeport-local",
    order=110,
    special=lambda service: service.serves and service.external_traffic == "local",
    needs='"external_traffic: local"',
    ends=_nodeport_local,
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
CLUSTER_IP_LOCAL = CellFamily(
    name="cluster-ip-local",
    order=120,
    special=lambda service: service.serves and service.internal_traffic == "local",
    needs='"internal_traffic: local"',
    ends=_cluster_ip_local,
    works=rule(
        "K8S-CLUSTER-IP-LOCAL",
        "with internalTrafficPolicy Local a Service address leads to backends on the asking "
        "node alone",
        _INTERNAL,
    ),
    promised=refusal(
        "K8S-CLUSTER-IP-NO-LOCAL",
        "with internalTrafficPolicy Local a node without a backend of its own drops packets "
        "to the Service address",
        "timeout",
        _INTERNAL,
    ),
)
PORTS = CellFamily(
    name="ports",
    order=130,
    special=lambda service: service.serves and has_own_ports(service.ports),
    needs='"ports"',
    ends=_ports,
    pairs=partial(_ports, every=True),
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
NO_ENDPOINTS = CellFamily(
    name="no-endpoints",
    order=140,
    special=lambda service: not service.headless and not service.backends,
    needs='"backends: 0"',
    ends=_no_endpoints,
    works=rule("K8S-ENDPOINTS", "a Service leads to its endpoints while it has any", PROXY),
    promised=refusal(
        "K8S-NO-ENDPOINTS",
        "kube-proxy rejects packets to a Service without endpoints",
        "refused",
        PROXY,
    ),
)
HEALTH_CHECK = CellFamily(
    name="health-check",
    order=160,
    special=lambda service: service.serves and service.health_check,
    needs='"health_check: true"',
    dialect="health",
    ends=_health_check,
    pairs=partial(_health_check, every=True),
    works=rule(
        "K8S-HEALTH-CHECK",
        "on its health check port each node says how many ready backends it has itself",
        SOURCE_IP,
    ),
)
