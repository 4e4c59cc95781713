"""The intended paths of a request and its answers, whatever the topology. Pure."""

from __future__ import annotations

from dataclasses import replace

from lab.topology.intent import Intent, MachineIntent, Pod
from lab.topology.kernel_walk import KernelWalk
from lab.topology.logical_walk import LogicalWalk
from lab.topology.path import Flow, Hop, Packet, Path
from lab.topology.routing import bare
from lab.topology.subject import MachineSubject, PodSubject, ServiceSubject, Subject


def walk(intent: Intent, flow: Flow) -> tuple[Path, ...]:
    """The paths of one request, one for each backend that may answer, in order.

    Raises
    ------
    KeyError
        If the Intent has no pod or machine named ``flow.source``.

    """
    if intent.cni is not None:
        return (_between_ends(intent, flow),)
    made = LogicalWalk if intent.logical else KernelWalk
    first = made(intent, flow, 0)
    paths = [first.path()]
    paths += [made(intent, flow, number).path() for number in range(1, first.choices)]
    return tuple(paths)


def _between_ends(intent: Intent, flow: Flow) -> Path:
    """What is known of a path in a network that the lab has not made: its ends and the Service."""
    machine, pod = intent.places()[flow.source]
    source = bare(pod.address) if pod else machine.address()
    packet = Packet(flow.protocol, source, flow.target, flow.port)
    hops = [_end(machine, pod, packet)]
    services = {
        service.address: service
        for each in intent.machines
        for service in (each.translation.services if each.translation else ())
    }
    by_port = {port: service for service in services.values() for port in service.node_ports()}
    service = services.get(flow.target) or by_port.get(flow.port)
    backend = service.backends[0] if service and service.backends else None
    if service:
        subject = ServiceSubject(service.name)
        hops.append(Hop("service", machine.name, flow.source, "", subject, packet))
    reached = backend.address if backend else flow.target
    ends = [
        (each, end)
        for each, end in intent.places().values()
        if reached == (bare(end.address) if end else each.address())
    ]
    hops += [_end(each, end, replace(packet, target=reached)) for each, end in ends[:1]]
    return Path(flow, tuple(hops), (), backend.pod if backend else None, unobserved=True)


def _end(machine: MachineIntent, pod: Pod | None, packet: Packet) -> Hop:
    place = pod.name if pod else machine.name
    subject: Subject = PodSubject(place) if pod else MachineSubject(place)
    return Hop("endpoint", machine.name, place, "", subject, packet)
