"""What a probe finds in a network that is exactly its Intent: looked up, nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address, ip_network

from lab.providers.fake.directory import Directory, Place, bare, source_address
from lab.providers.provider import DNS_PORT, PROBE_PORT, Outcome, Probe, ProbeStatus
from lab.topology.intent import MachineIntent, Service

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
        return _direct(directory, source, probe, dead)
    return _balanced(directory, source, translated, probe, dead)


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


def _translated(directory: Directory, source: Place, probe: Probe) -> tuple[Place, Service] | None:
    """The machine that translates the address, and the Service it stands for."""
    own = directory.cluster_addresses.get(source.machine.name, {})
    service = own.get((probe.address, probe.port))
    if service is not None:
        return Place(source.machine), service
    entry = directory.by_address.get(probe.address)
    if entry is None or entry.pod is not None:
        return None
    service = directory.node_ports.get(entry.name, {}).get(probe.port)
    return None if service is None else (entry, service)


def _balanced(
    directory: Directory,
    source: Place,
    translated: tuple[Place, Service],
    probe: Probe,
    dead: frozenset[str],
) -> Outcome:
    """Through a Service: its backends in turn, for as many tries as the probe allows."""
    entry, service = translated
    if _is_off(entry, dead):
        return _failed(probe, "timeout", f"no reply from {probe.address}")
    if not service.backends:
        return _failed(probe, "refused", f"'{service.name}' has no backend")
    answered: list[str] = []
    for turn in range(max(1, probe.tries)):
        backend = service.backends[turn % len(service.backends)]
        target = directory.by_name.get(backend.pod)
        if target is None or _is_off(target, dead):
            return _failed(probe, "timeout", f"no reply from '{backend.pod}'")
        if target.name not in answered:
            answered.append(target.name)
    first = service.backends[0]
    kept = source.pod is not None and probe.address == service.address and source.name != first.pod
    seen = bare(source.pod.address) if source.pod and kept else None
    return _answered(probe, tuple(answered), seen or source_address(entry.machine, first.address))


def _asked(directory: Directory, source: Place, probe: Probe) -> Outcome:
    """A DNS question. A machine has no resolver file, and asks for the name as it stands."""
    name = probe.name or ""
    resolver = source.pod.resolver if source.pod else None
    tried = candidates(name, resolver.search, resolver.ndots) if resolver else (name,)
    for each in tried:
        if each in directory.zone:
            return Outcome(probe.key, "ok", "", None, (), directory.zone[each], LATENCY_MS)
    return _failed(probe, "no-such-name", f"tried {', '.join(tried)}")


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
