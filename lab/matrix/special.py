"""The families of special Services: affinity, policies, ports, none behind, names, health. Pure.

What must come of a cell is what the rules of the node that translates make of it
(:mod:`lab.topology.proxying`): which backends, which source address, or which refusal. All
cells are small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address
from itertools import chain
from typing import Literal

from lab.matrix.cell import Endpoint, Relation
from lab.matrix.grid import GridPath, GridTarget
from lab.matrix.lab_ends import Ends, LabEnds, between
from lab.providers.provider import DNS_PORT
from lab.scenario.reserved import POD_PORT
from lab.scenario.scenario import has_own_ports
from lab.scenario.terms import PROTOCOLS, Family, Os, Protocol, Refusal, ServicePort
from lab.topology import proxying
from lab.topology.intent import Backend, HeadlessService, ProxiedService


def _affinity(lab: LabEnds) -> Ends:
    """Every probe pod by the address, and the client by every node: always the same backend."""
    services = [one for one in lab.special if one.affinity is not None and one.backends]
    pods, client = _names(lab.ends.pods), frozenset({lab.ends.client.name})

    def targets() -> Iterator[GridTarget]:
        for service in services:
            for port in service.ports:
                yield from _by_address(lab, service, port, never=client)
                for entry in lab.ends.hosts:
                    yield from _by_node(lab, service, port, entry, never=pods)

    return (*lab.ends.pods, lab.ends.client), targets()


def _node_port_local(lab: LabEnds) -> Ends:
    """Every pod, every node with a kubelet and the client ask every node with a kubelet.

    Not asked are pods of a Windows node with some, but not all, of the backends by that node:
    kube-proxy leads them elsewhere there than on Linux, and neither is a refusal.
    """
    services = [one for one in lab.special if one.outside == "local" and one.backends]

    def targets() -> Iterator[GridTarget]:
        for service in services:
            for port in service.ports:
                for entry in lab.ends.hosts:
                    local = len(proxying.local(service, entry.name))
                    mixed = entry.os == "windows" and 0 < local < len(service.backends)
                    never = _names(lab.ends.pods_of[entry.name]) if mixed else frozenset[str]()
                    yield from _by_node(lab, service, port, entry, never=never)

    return (*lab.ends.pods, *lab.ends.hosts, lab.ends.client), targets()


def _cluster_ip_local(lab: LabEnds) -> Ends:
    """Every pod and every node with a kubelet, by the address."""
    services = [one for one in lab.special if one.inside == "local" and one.backends]
    return (*lab.ends.pods, *lab.ends.hosts), (
        target
        for service in services
        for port in service.ports
        for target in _by_address(lab, service, port)
    )


def _ports(lab: LabEnds) -> Ends:
    """Every pod asks every port over both protocols, the client every node port over its own.

    What a Service does not have is asked of kube-proxy in mode nftables alone: in mode iptables it
    has no rule for that, and packets go where the network around the cluster leads them.
    """
    services = [one for one in lab.special if one.backends and has_own_ports(one.ports)]
    rejects = lab.plan.proxy_mode == "nftables"
    pods, client = _names(lab.ends.pods), frozenset({lab.ends.client.name})

    def targets() -> Iterator[GridTarget]:
        for service in services:
            for port in service.ports:
                yield from _by_address(lab, service, port, never=client)
                refused = _over(lab, _others(service, port)) if rejects else ()
                for protocol in refused:
                    yield from _Asked(lab, service, port, protocol).targets(client)
            for port in service.ports:
                for entry in lab.ends.hosts:
                    yield from _by_node(lab, service, port, entry, never=pods)

    return (*lab.ends.pods, lab.ends.client), targets()


def _no_endpoints(lab: LabEnds) -> Ends:
    """Every pod and every node, by the address; they and the client by every node."""
    services = [one for one in lab.special if not one.backends]
    client = frozenset({lab.ends.client.name})

    def targets() -> Iterator[GridTarget]:
        for service in services:
            for port in service.ports:
                yield from _by_address(lab, service, port, never=client)
                for entry in lab.ends.hosts:
                    yield from _by_node(lab, service, port, entry)

    return (*lab.ends.pods, *lab.ends.hosts, lab.ends.client), targets()


def _headless(lab: LabEnds) -> Ends:
    """Every pod asks for each Service's name, short and full, and for each of its pods'."""
    server = lab.ends.dns_pod
    if server is None:
        return lab.ends.pods, iter(())
    address = str(lab.plan.dns_address)

    def path(form: _Form, answer: str, asked: Endpoint, pod: Endpoint) -> GridPath:
        relation = between(pod, server)
        return GridPath(pod, asked, relation, (server.name,), name_form=form, answer=answer)

    return lab.ends.pods, (
        GridTarget(service.name, False, partial(path, form, answer, asked), name, only_small=True)
        for service in lab.headless
        for form, name, answer in _questions(lab, service)
        for asked in [Endpoint(name, "name", server.os, server.node, address, DNS_PORT)]
    )


def _health_check(lab: LabEnds) -> Ends:
    """The client, as a load balancer would, asks every node how many backends it has."""

    def path(asked: Endpoint, number: int, client: Endpoint) -> GridPath:
        return GridPath(client, asked, "outside", (), entry=asked.node, answer=str(number))

    return (lab.ends.client,), (
        GridTarget(
            node.name,
            True,
            partial(path, asked, number),
            service.name,
            only_small=True,
            protocol="tcp",
        )
        for service in lab.special
        if service.health_port is not None and "tcp" in lab.plan.protocols
        for node in lab.ends.hosts
        for number in [len(proxying.local(service, node.name))]
        for asked in [_health(node, service, service.health_port)]
    )


def _health(node: Endpoint, service: ProxiedService, port: int) -> Endpoint:
    name = f"{node.name}:{service.name}:health"
    return Endpoint(name, "nodeport", node.os, node.node, node.address, port)


_Form = Literal["short", "full"]


def _questions(lab: LabEnds, service: HeadlessService) -> Iterator[tuple[_Form, str, str]]:
    """Form, name, and the addresses that it stands for."""
    domain = f"{lab.namespace}.svc.{lab.plan.domain}."
    every = sorted(IPv4Address(one.address) for one in service.backends)
    together = ", ".join(str(address) for address in every)
    yield "short", service.name, together
    yield "full", f"{service.name}.{domain}", together
    for one in service.backends:
        yield "full", f"{one.pod}.{service.name}.{domain}", one.address


def _names(ends: Iterable[Endpoint]) -> frozenset[str]:
    return frozenset(one.name for one in ends)


def _others(service: ProxiedService, port: ServicePort) -> Iterator[Protocol]:
    """The protocols that no port of that number is for."""
    served = {one for other in service.ports if other.port == port.port for one in other.protocols}
    first = next(other for other in service.ports if other.port == port.port)
    return (one for one in PROTOCOLS if one not in served and port is first)


def _over(lab: LabEnds, protocols: Iterable[Protocol]) -> Iterator[Protocol]:
    """Those of the protocols that the scenario asks for."""
    return (one for one in protocols if one in lab.plan.protocols)


def _by_address(
    lab: LabEnds, service: ProxiedService, port: ServicePort, never: frozenset[str] = frozenset()
) -> Iterator[GridTarget]:
    """The port of a Service's address, once for each of its protocols."""
    for protocol in _over(lab, port.protocols):
        yield from _Asked(lab, service, port, protocol).targets(never)


def _by_node(
    lab: LabEnds,
    service: ProxiedService,
    port: ServicePort,
    entry: Endpoint,
    never: frozenset[str] = frozenset(),
) -> Iterator[GridTarget]:
    """Its port on a node, where it has one."""
    for protocol in _over(lab, port.protocols) if port.node_port is not None else ():
        yield from _Asked(lab, service, port, protocol, entry).targets(never)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One port of a Service over one protocol: by its address, or by a node."""

    lab: LabEnds
    service: ProxiedService
    port: ServicePort
    protocol: Protocol
    entry: Endpoint | None = None

    def targets(self, never: frozenset[str]) -> Iterator[GridTarget]:
        """The column of a grid, and beside it one for the pods that ask for themselves."""
        ends = self.lab.ends
        backends = frozenset(one.pod for one in self.service.backends)
        others = _names((*ends.pods, *ends.hosts, ends.client)) - backends
        for kind, silent in (("other", backends), ("itself", others)):
            if kind == "other" or backends - never:
                yield GridTarget(
                    self.entry.name if self.entry else self.service.name,
                    self.entry is not None,
                    self._path,
                    f"{self.service.name}:{self.port.name}:{self.protocol}:{kind}",
                    never | silent,
                    only_small=True,
                    protocol=self.protocol,
                )

    def _path(self, source: Endpoint) -> GridPath:
        """What must come of it, by the rules of the node that translates."""
        node = self.entry.name if self.entry else str(source.node)
        choice = self._choice(node, source)
        entry = self.entry.name if self.entry else None
        if not choice.backends:
            asked = self._endpoint(self.lab.machines[node].os, node)
            refusal: Refusal = "refused" if choice.refused else "timeout"
            return GridPath(source, asked, _nobody(source, node), (), entry=entry, refusal=refusal)
        backends = [self._pod(one) for one in choice.backends]
        single = backends[0].node if len(backends) == 1 else None
        port = self.port.target_port
        return GridPath(
            source,
            self._endpoint(backends[0].os, single),
            _farthest(source, backends),
            tuple(one.name if port == POD_PORT else f"{one.name}:{port}" for one in backends),
            self._seen(source, backends) if port == POD_PORT else frozenset(),
            entry=entry,
            sticky=self.service.affinity is not None and len(backends) > 1,
        )

    def _choice(self, node: str, source: Endpoint) -> proxying.ProxyChoice:
        """Whoever is on that node is known there by its own address."""
        address, port = self.service.address, self.port.port
        known_by = source.address
        if self.entry and self.port.node_port is not None:
            address, port = self.entry.address, self.port.node_port
            if source.node != node:
                known_by = min(self.lab.sources.at_entry(source, self.entry))
        machine = self.lab.machines[node]
        found = proxying.choice(machine, self.protocol, known_by, address, port)
        assert found is not None, "the Intent has the Service"
        return found

    def _endpoint(self, os: Os, node: str | None) -> Endpoint:
        name = self.service.name
        if len(self.service.ports) > 1:
            name += f":{self.port.name}"
        if self.entry and self.port.node_port is not None:
            address, port = self.entry.address, self.port.node_port
            return Endpoint(f"{self.entry.name}:{name}", "nodeport", os, node, address, port)
        return Endpoint(name, "service", os, node, self.service.address, self.port.port)

    def _pod(self, backend: Backend) -> Endpoint:
        return next(one for one in self.lab.ends.pods if one.name == backend.pod)

    def _seen(self, source: Endpoint, backends: list[Endpoint]) -> frozenset[str]:
        """The addresses that the backends may see."""
        sources, entry = self.lab.sources, self.entry
        if entry and (self.service.outside == "cluster" or source.name == entry.name):
            return _joined(sources.of_node_port(entry.name, one) for one in backends)
        if entry and source.node != entry.name:
            return sources.at_entry(source, entry)
        if source.kind == "node":
            return _joined(sources.of_machine(source.name, one) for one in backends)
        itself = [one for one in backends if one.name == source.name]
        others = sources.of_pod_to_service(source) if len(itself) < len(backends) else frozenset()
        return others | _joined(sources.of_pod_to_itself(one) for one in itself)


def _joined(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset(chain.from_iterable(sets))


def _farthest(source: Endpoint, backends: list[Endpoint]) -> Relation:
    """The relation of the backend that is farthest away."""
    found = {between(source, one) for one in backends}
    order: tuple[Relation, ...] = ("outside", "other-node", "same-node", "self")
    return next(one for one in order if one in found)


def _nobody(source: Endpoint, node: str) -> Relation:
    """Where the node stands that leaves a question without an answer."""
    if source.node is None:
        return "outside"
    return "same-node" if source.node == node else "other-node"


SPECIAL: Mapping[Family, Callable[[LabEnds], Ends]] = {
    "affinity": _affinity,
    "nodeport-local": _node_port_local,
    "cluster-ip-local": _cluster_ip_local,
    "ports": _ports,
    "no-endpoints": _no_endpoints,
    "headless": _headless,
    "health-check": _health_check,
}
