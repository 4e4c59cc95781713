"""Which backends a node may use for a Service's packets under its policies. Pure.

Source: Kubernetes 1.36, CategorizeEndpoints of pkg/proxy/topology.go, and its use in
pkg/proxy/nftables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lab._dataclass import dataclass
from lab.scenario.terms import Protocol, ServicePort
from lab.topology.intent import Backend, Intent, MachineIntent, ProxiedService, Translation
from lab.topology.routing import covers, own_addresses


@dataclass(frozen=True, slots=True)
class ProxyChoice:
    """What a node does with packets to a Service."""

    service: ProxiedService
    port: ServicePort | None
    """None if the Service has no such port."""
    backends: tuple[Backend, ...]
    masqueraded: bool = False
    """Whether they leave with the node's address, whichever backend they go to."""
    refused: bool = False
    """Whether packets are rejected if there is no backend; otherwise they are dropped."""


def local(service: ProxiedService, node: str) -> tuple[Backend, ...]:
    """The backends on the node."""
    return tuple(backend for backend in service.backends if backend.node == node)


def inside(service: ProxiedService, node: str) -> tuple[Backend, ...]:
    """The backends for packets to the Service's own address on that node."""
    return service.backends if service.inside == "cluster" else local(service, node)


def outside(service: ProxiedService, node: str) -> tuple[Backend, ...]:
    """The backends for packets from elsewhere to the Service's port on the node."""
    return service.backends if service.outside == "cluster" else local(service, node)


def probed_services(intent: Intent) -> tuple[ProxiedService, ...]:
    """Every Service that the lab creates: all but the cluster's DNS, in the Intent's order."""
    probes = {p.name for machine in intent.machines for p in machine.pods if p.role == "probe"}
    services: dict[str, ProxiedService] = {}
    for machine in intent.machines:
        for service in machine.translation.services if machine.translation else ():
            if all(backend.pod in probes for backend in service.backends):
                services.setdefault(service.name, service)
    return tuple(services.values())


def asked_on(services: Iterable[ProxiedService], port: int) -> frozenset[str]:
    """The pods to which some of the Services send packets on that port."""
    return frozenset(
        backend.pod
        for service in services
        if any(service_port.target_port == port for service_port in service.ports)
        for backend in service.backends
    )


def choice(
    machine: MachineIntent, protocol: Protocol, source: str, target: str, port: int
) -> ProxyChoice | None:
    """What the machine does with a packet; None if it is not for a Service.

    ``source``: the packet's source as it arrives; for the machine's own packets, one of its
    addresses.
    """
    translation = machine.translation
    if translation is None:
        return None
    proxied = next((service for service in translation.services if service.address == target), None)
    if proxied is not None:
        return _by_address(
            machine.name, translation, proxied, port_of(proxied, protocol, port), source
        )
    if target in own_addresses(machine):
        for service, of_node in _node_ports(translation):
            if of_node.node_port == port and protocol in of_node.protocols:
                return _by_node_port(machine, translation, service, of_node, source)
    return None


def port_of(service: ProxiedService, protocol: Protocol, number: int) -> ServicePort | None:
    """The Service's port with this number and protocol."""
    fitting = (port for port in service.ports if port.port == number and protocol in port.protocols)
    return next(fitting, None)


def _node_ports(translation: Translation) -> Iterator[tuple[ProxiedService, ServicePort]]:
    for service in translation.services:
        for port in service.ports:
            if port.node_port is not None:
                yield service, port


def _by_address(
    node: str,
    translation: Translation,
    service: ProxiedService,
    port: ServicePort | None,
    source: str,
) -> ProxyChoice:
    if port is None:
        return ProxyChoice(service, None, (), refused=translation.refuses)
    nobody = not service.backends
    return ProxyChoice(
        service,
        port,
        inside(service, node),
        masqueraded=not is_from_own_pods(translation, source),
        refused=nobody and translation.refuses,
    )


def _by_node_port(
    machine: MachineIntent,
    translation: Translation,
    service: ProxiedService,
    port: ServicePort,
    source: str,
) -> ProxyChoice:
    """A local policy does not apply to packets from the node itself and its own pods."""
    refused = not service.backends and translation.refuses
    if service.outside == "cluster":
        return ProxyChoice(service, port, service.backends, masqueraded=True, refused=refused)
    if translation.short_circuits:
        if is_from_own_pods(translation, source):
            return ProxyChoice(service, port, service.backends, refused=refused)
        if source in own_addresses(machine):
            return ProxyChoice(service, port, service.backends, masqueraded=True, refused=refused)
    return ProxyChoice(service, port, local(service, machine.name), refused=refused)


def is_from_own_pods(translation: Translation, source: str) -> bool:
    """Whether a packet comes from one of the node's own pods."""
    return translation.local_cidr is not None and covers(translation.local_cidr, source)
