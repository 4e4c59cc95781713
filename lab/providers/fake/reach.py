"""What a probe finds in a network that is exactly its Intent: looked up, nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address, ip_network

from lab.providers.fake.directory import Directory, Place, bare, source_address
from lab.providers.provider import DNS_PORT, PROBE_PORT, Outcome, Probe, ProbeStatus
from lab.scenario.scenario import ServicePort
from lab.topology.intent import MachineIntent
from lab.topology.proxying import Choice, choice, local

LATENCY_MS = 0.2
"""Every exchange takes this long: the order of what one between namespaces takes."""


def outcome(directory: Directory, probe: Probe, dead: frozenset[str]) -> Outcome:
    """What comes of one probe.

    Everything works that the Intent lets work: what a machine drops times out, a name is looked
    up as the pod's resolver file says, an address that nothing has does not answer.

    Parameters
    ----------
    directory
        Of the lab's Intent.
    probe
        What is tried.
    dead
        Machines and pods that are switched off: nothing comes from them or gets through.

    """
    source = directory.by_name.get(probe.source)
    if source is None:
        return _failed(probe, "error", f"there is no '{probe.source}'")
    if _is_off(source, dead):
        return _failed(probe, "timeout", f"'{source.name}' is switched off")
    if probe.name is not None:
        return _asked(directory, source, probe)
    if source.pod is None and _drops(source.machine, probe.address, probe.port):
        return _failed(probe, "timeout", f"'{source.name}' loses what it sends there")
    translated = _translated(directory, source, probe)
    if translated is None:
        return (_health if probe.dialect == "health" else _direct)(directory, source, probe, dead)
    return _balanced(directory, source, *translated, probe, dead)


def candidates(name: str, search: Iterable[str], ndots: int) -> tuple[str, ...]:
    """The names that a resolver tries, in order, as resolv.conf(5) says."""
    if name.endswith("."):
        return (name.removesuffix("."),)
    listed = tuple(f"{name}.{domain}" for domain in search)
    return (name, *listed) if name.count(".") >= ndots else (*listed, name)


def _direct(directory: Directory, source: Place, probe: Probe, dead: frozenset[str]) -> Outcome:
    target = directory.by_address.get(probe.address)
    if target is None or _is_off(target, dead):
        return _failed(probe, "timeout", f"no reply from {probe.address}")
    if probe.port not in _ports(target):
        return _failed(probe, "refused", f"'{target.name}' has nothing on port {probe.port}")
    return _answered(probe, (target.name,), _seen(source, target, probe.address))


def _translated(directory: Directory, source: Place, probe: Probe) -> tuple[Place, Choice] | None:
    """The machine that translates the address, and what it does with the packet."""
    own = bare(source.pod.address) if source.pod else source_address(source.machine, probe.address)
    found = choice(source.machine, probe.protocol, own or "", probe.address, probe.port)
    if found is not None:
        return Place(source.machine), found
    entry = directory.by_address.get(probe.address)
    if entry is None or entry.pod is not None or entry.machine is source.machine:
        return None
    known_by = _seen(source, entry, probe.address) or ""
    found = choice(entry.machine, probe.protocol, known_by, probe.address, probe.port)
    return None if found is None else (entry, found)


def _balanced(  # noqa: PLR0913, PLR0917  both ends, what is between, and what is off
    directory: Directory,
    source: Place,
    entry: Place,
    chosen: Choice,
    probe: Probe,
    dead: frozenset[str],
) -> Outcome:
    """Through a Service: its backends in turn, for as many tries as the probe allows."""
    name = chosen.service.name
    if _is_off(entry, dead):
        return _failed(probe, "timeout", f"no reply from {probe.address}")
    if chosen.port is None or not chosen.backends:
        status: ProbeStatus = "refused" if chosen.refused else "timeout"
        return _failed(probe, status, f"'{name}' has no backend for it")
    keeps = chosen.backends[:1] if chosen.service.affinity is not None else chosen.backends
    answered: list[str] = []
    for turn in range(max(1, probe.tries)):
        backend = keeps[turn % len(keeps)]
        target = directory.by_name.get(backend.pod)
        if target is None or _is_off(target, dead):
            return _failed(probe, "timeout", f"no reply from '{backend.pod}'")
        if target.name not in answered:
            answered.append(target.name)
    first = keeps[0]
    masqueraded = chosen.masqueraded or source.name == first.pod
    seen = None if masqueraded else _kept(source, entry, probe.address)
    return _answered(
        probe,
        tuple(f"{one}{_port_of(chosen.port)}" for one in answered),
        seen or source_address(entry.machine, first.address),
    )


def _kept(source: Place, entry: Place, address: str) -> str | None:
    """The address that the entry has seen, where it leaves it as it is."""
    if source.machine is entry.machine and source.pod is not None:
        return bare(source.pod.address)
    return _seen(source, entry, address)


def _port_of(port: ServicePort) -> str:
    """A pod asked on another port than the usual one says so."""
    return "" if port.target_port == PROBE_PORT else f":{port.target_port}"


def _asked(directory: Directory, source: Place, probe: Probe) -> Outcome:
    """A DNS question. A machine has no resolver file, and asks for the name as it stands."""
    name = probe.name or ""
    resolver = source.pod.resolver if source.pod else None
    tried = candidates(name, resolver.search, resolver.ndots) if resolver else (name,)
    for each in tried:
        if each in directory.zone:
            return Outcome(probe.key, "ok", "", None, (), directory.zone[each], LATENCY_MS)
    return _failed(probe, "no-such-name", f"tried {', '.join(tried)}")


def _health(directory: Directory, _: Place, probe: Probe, dead: frozenset[str]) -> Outcome:
    """A node's health check: how many backends of the Service it has."""
    place = directory.by_address.get(probe.address)
    if place is None or _is_off(place, dead):
        return _failed(probe, "timeout", f"no reply from {probe.address}")
    machine = place.machine
    for service in machine.translation.services if machine.translation else ():
        if service.health_port == probe.port:
            number = len(local(service, machine.name))
            return Outcome(probe.key, "ok", "", None, (), str(number), LATENCY_MS)
    return _failed(probe, "refused", f"nothing checks health on port {probe.port}")


def _answered(probe: Probe, backends: tuple[str, ...], seen: str | None) -> Outcome:
    return Outcome(probe.key, "ok", "", seen, backends, None, LATENCY_MS)


def _failed(probe: Probe, status: ProbeStatus, detail: str) -> Outcome:
    return Outcome(probe.key, status, detail, None, (), None, 0.0)


def _seen(source: Place, target: Place, address: str) -> str | None:
    """The source address that ``target`` sees, asked by its own address."""
    if source.pod is None:
        return source_address(source.machine, address)
    translation = source.machine.translation
    inside = translation is None or _within(address, translation.not_masqueraded)
    if inside or target.machine is source.machine:
        return bare(source.pod.address)  # what stays on the node never passes its translation
    return source_address(source.machine, address)


def _is_off(place: Place, dead: frozenset[str]) -> bool:
    return place.name in dead or place.machine.name in dead


def _drops(machine: MachineIntent, address: str, port: int) -> bool:
    return any(
        _within(address, drop.destinations)
        and not _within(address, drop.spared)
        and (drop.ports is None or drop.ports[0] <= port <= drop.ports[1])
        for drop in machine.drops
    )


def _within(address: str, prefixes: Iterable[str]) -> bool:
    wanted = ip_address(address)
    return any(wanted in ip_network(prefix) for prefix in prefixes)


def _ports(target: Place) -> tuple[int, ...]:
    is_dns = target.pod is not None and target.pod.role == "dns"
    return (DNS_PORT, PROBE_PORT) if is_dns else (PROBE_PORT,)
