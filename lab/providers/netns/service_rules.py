"""What one node's rules do with each port of each Service, in the shape of kube-proxy's. Pure.

Source: pkg/proxy/nftables of Kubernetes 1.36. Where kube-proxy makes chains for each protocol,
one chain here serves TCP and UDP of a port alike; with session affinity each protocol has its
own, because each remembers its clients by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from lab.scenario.terms import Protocol, ServicePort
from lab.topology import proxying
from lab.topology.intent import Backend, ProxiedService, Translation

MASQUERADE_MARK = 0x4000
"""The bit of the packet mark that kube-proxy uses."""
MARK = "mark-for-masquerade"
REJECT = "reject-service"


@dataclass(slots=True)
class Rules:
    """Chains, and the elements of the sets and maps that lead to them."""

    chains: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    hairpins: dict[str, None] = field(default_factory=dict)
    """Each once: several Services may have one backend."""
    by_address: list[str] = field(default_factory=list)
    by_node_port: list[str] = field(default_factory=list)
    without_by_address: list[str] = field(default_factory=list)
    """Of ports without a backend for what comes to the Service's address."""
    without_by_node_port: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Port:
    """One port of a Service on one node, and what its chains are named after."""

    name: str
    service: ProxiedService
    port: ServicePort
    protocols: tuple[Protocol, ...]
    local: tuple[Backend, ...]

    @property
    def anywhere(self) -> tuple[Backend, ...]:
        """The backends that anything but a policy for local ones may use."""
        return self.service.backends

    def targets(self, backend: Backend) -> str:
        """The backend's address and port."""
        return f"{backend.address}:{self.port.target_port}"


def service_rules(translation: Translation, node: str) -> Rules:
    """Everything that is made from the Services of a node."""
    rules = Rules()
    for service in translation.services:
        rules.addresses.append(service.address)
        local = proxying.local(service, node)
        for port in _ports(service, local):
            _add(rules, port, translation)
    return rules


def _ports(service: ProxiedService, local: tuple[Backend, ...]) -> Iterator[_Port]:
    several = len(service.ports) > 1
    for port in service.ports:
        name = f"{service.name}/{port.name}" if several else service.name
        if service.affinity is None:
            yield _Port(name, service, port, port.protocols, local)
        else:
            for protocol in port.protocols:
                yield _Port(f"{name}/{protocol}", service, port, (protocol,), local)


def _add(rules: Rules, port: _Port, translation: Translation) -> None:
    service = port.service
    inside_local, outside_local = service.inside == "local", service.outside == "local"
    has_node_port = port.port.node_port is not None
    if port.anywhere and (not inside_local or has_node_port):
        rules.chains += _balance(port, f"service-{port.name}", port.anywhere)
    if port.local and (inside_local or (outside_local and has_node_port)):
        rules.chains += _balance(port, f"local-{port.name}", port.local)
    if service.affinity is not None:
        rules.chains += _affinity(
            port, service.affinity, node_only=inside_local and not has_node_port
        )
    for backend in port.local:
        for protocol in port.protocols:
            end = f"{backend.address} . {protocol} . {port.port.target_port}"
            rules.hairpins[f"{backend.address} . {end}"] = None
    if has_node_port and port.anywhere:
        rules.chains += chain(f"external-{port.name}", *_external(port, translation))
    _lead(rules, port, refuses=translation.refuses)


def _lead(rules: Rules, port: _Port, *, refuses: bool) -> None:
    """The elements by which packets come to the port's chains, or are refused or lost."""
    service, number = port.service, port.port.node_port
    inside = port.local if service.inside == "local" else port.anywhere
    outside = port.local if service.outside == "local" else port.anywhere
    chosen = "local" if service.inside == "local" else "service"
    without = f"goto {REJECT}" if refuses and not port.anywhere else "drop"
    for protocol in port.protocols:
        key = f"{service.address} . {protocol} . {port.port.port}"
        if inside:
            rules.by_address.append(f"{key} : goto {chosen}-{port.name}")
        else:
            rules.without_by_address.append(f"{key} : {without}")
        if number is None:
            continue
        if port.anywhere:
            rules.by_node_port.append(f"{protocol} . {number} : goto external-{port.name}")
        if not outside:
            rules.without_by_node_port.append(f"{protocol} . {number} : {without}")


def _external(port: _Port, translation: Translation) -> Iterator[str]:
    """What comes to the port of the node, by the policy for traffic from outside.

    Where that is for local backends alone, the node's own packets and its own pods' are taken
    to any backend, as if they had gone out and come back in.
    """
    if port.service.outside == "cluster":
        yield f"jump {MARK}"
        yield f"goto service-{port.name}"
        return
    if translation.short_circuits:
        if translation.local_cidr:
            yield f"ip saddr {translation.local_cidr} goto service-{port.name}"
        yield f"fib saddr type local jump {MARK}"
        yield f"fib saddr type local goto service-{port.name}"
    if port.local:
        yield f"goto local-{port.name}"


def _balance(port: _Port, name: str, backends: Sequence[Backend]) -> Iterator[str]:
    """The chain that chooses one of the backends."""
    if port.service.affinity is None:
        return chain(name, *_translations(port, backends))
    remembered = [f"ip saddr @{_memory(port, one)} goto {_endpoint(port, one)}" for one in backends]
    gotos = [f"{number} : goto {_endpoint(port, one)}" for number, one in enumerate(backends)]
    lots = f"numgen random mod {len(gotos)} vmap {{ {', '.join(gotos)} }}"
    return chain(name, *remembered, lots)


def _translations(port: _Port, backends: Sequence[Backend]) -> Iterator[str]:
    """One rule for each protocol; a single backend is taken without drawing lots."""
    for protocol in port.protocols:
        if len(backends) == 1:
            yield f"meta l4proto {protocol} dnat to {port.targets(backends[0])}"
            continue
        ends = ", ".join(
            f"{number} : {one.address} . {port.port.target_port}"
            for number, one in enumerate(backends)
        )
        lots = f"numgen random mod {len(backends)} map {{ {ends} }}"
        yield f"meta l4proto {protocol} dnat ip addr . port to {lots}"


def _affinity(port: _Port, seconds: int, *, node_only: bool) -> Iterator[str]:
    """For each endpoint the set of clients that keep it, and the chain that notes them there."""
    for one in port.local if node_only else port.anywhere:
        yield f"set {_memory(port, one)} {{"
        yield "  type ipv4_addr"
        yield "  flags dynamic, timeout"
        yield f"  timeout {seconds}s"
        yield "}"
        yield from chain(
            _endpoint(port, one),
            f"update @{_memory(port, one)} {{ ip saddr }}",
            *_translations(port, (one,)),
        )


def _endpoint(port: _Port, backend: Backend) -> str:
    return f"endpoint-{port.name}/{backend.pod}"


def _memory(port: _Port, backend: Backend) -> str:
    return f"affinity-{port.name}/{backend.pod}"


def chain(name: str, *rules: str) -> Iterator[str]:
    """A chain's lines."""
    yield f"chain {name} {{"
    yield from (f"  {rule}" for rule in rules)
    yield "}"


def collection(kind: str, name: str, keys: str, elements: Iterable[str]) -> Iterator[str]:
    """A set's or a map's lines."""
    listed = ", ".join(elements)
    yield f"{kind} {name} {{"
    yield f"  type {keys}"
    if listed:
        yield f"  elements = {{ {listed} }}"
    yield "}"
