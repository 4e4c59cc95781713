"""One port of a special Service as a target; all its cells are small. Pure.

The expected backends, source address or refusal follow from the rules of the node that translates
(:mod:`lab.topology.proxying`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from lab.matrix.cell import Endpoint, GridPath, GridTarget, Relation
from lab.matrix.endpoints import LabEndpoints, between
from lab.scenario.reserved import POD_PORT
from lab.scenario.terms import Os, Protocol, Refusal, ServicePort
from lab.topology import proxying
from lab.topology.intent import Backend, ProxiedService


def names(ends: Iterable[Endpoint]) -> frozenset[str]:
    """The names of endpoints."""
    return frozenset(one.name for one in ends)


def by_address(
    lab: LabEndpoints,
    service: ProxiedService,
    port: ServicePort,
    never: frozenset[str] = frozenset(),
) -> Iterator[GridTarget]:
    """Targets for the port of a Service's address, one per protocol."""
    for protocol in lab.asked_protocols(port.protocols):
        yield from ServicePortTargets(lab, service, port, protocol).targets(never)


def by_node(
    lab: LabEndpoints,
    service: ProxiedService,
    port: ServicePort,
    entry: Endpoint,
    never: frozenset[str] = frozenset(),
) -> Iterator[GridTarget]:
    """Targets for the port's NodePort on a node, if it has one."""
    for protocol in lab.asked_protocols(port.protocols) if port.node_port is not None else ():
        yield from ServicePortTargets(lab, service, port, protocol, entry).targets(never)


@dataclass(frozen=True, slots=True)
class ServicePortTargets:
    """One port of a Service over one protocol, by its address or by a node."""

    lab: LabEndpoints
    service: ProxiedService
    port: ServicePort
    protocol: Protocol
    entry: Endpoint | None = None

    def targets(self, never: frozenset[str]) -> Iterator[GridTarget]:
        """One target for other sources, and one for pods that are backends themselves."""
        ends = self.lab.ends
        backends = frozenset(one.pod for one in self.service.backends)
        others = names((*ends.pods, *ends.hosts, ends.client)) - backends
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
        """The expected path, by the rules of the node that translates."""
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
        """The node's choice of backends; a source on the node itself keeps its address."""
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
    found = {between(source, one) for one in backends}
    order: tuple[Relation, ...] = ("outside", "other-node", "same-node", "self")
    return next(one for one in order if one in found)


def _nobody(source: Endpoint, node: str) -> Relation:
    """Where the node that does not answer is, relative to the source."""
    if source.node is None:
        return "outside"
    return "same-node" if source.node == node else "other-node"
