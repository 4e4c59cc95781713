"""The documented rules of Windows nodes, applied to a node emulated on Linux. Pure.

They are separate from the matrix's expectations, which packets must confirm: with a rule switched
off, the cells it forbids turn into ``unexpected-pass``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import IPv4Network, collapse_addresses
from typing import Any, Literal

from lab.topology.intent import Drop, Intent, MachineIntent, Resolver
from lab.topology.routing import own_addresses

_WITHOUT_AFFINITY = frozenset({"windows-server-2019"})
_WITHOUT_POD_DNS = frozenset({"upstream-tor", "upstream-vrrp", "hard-way"})


def realise(intent: Intent, off: frozenset[str] = frozenset()) -> Intent:
    """Apply every rule except those in ``off`` to the intent's Windows machines."""
    rules = [apply for rule, apply in RULES.items() if rule not in off]
    machines = list(intent.machines)
    for place, machine in enumerate(machines):
        for apply in rules if machine.os == "windows" else ():
            machines[place] = apply(machines[place], intent)
    return replace(intent, machines=tuple(machines))


def _with_drop(machine: MachineIntent, drop: Drop) -> MachineIntent:
    return replace(machine, drops=(*machine.drops, drop)) if drop.destinations else machine


def _join_prefixes(prefixes: list[str]) -> tuple[str, ...]:
    return tuple(
        str(address) for address in collapse_addresses(IPv4Network(text) for text in prefixes)
    )


def _node_ports(machine: MachineIntent, rule: str, hook: Literal["output", "input"]) -> Drop:
    """A drop of packets to the machine's NodePorts, for no destination if there are none."""
    services = machine.translation.services if machine.translation else ()
    ports = [port for service in services for port in service.node_ports()]
    if not ports:
        return Drop(rule, ())
    addresses = tuple(f"{address}/32" for address in sorted(own_addresses(machine)))
    return Drop(rule, addresses, (min(ports), max(ports)), hook=hook)


def _node_port_self(machine: MachineIntent, _: Intent) -> MachineIntent:
    if machine.chassis:
        return machine
    return _with_drop(machine, _node_ports(machine, "WIN-NODEPORT-SELF", "output"))


def _host_service(machine: MachineIntent, _: Intent) -> MachineIntent:
    """Not for a logical network: there OVN serves the host too, through its own port."""
    if machine.chassis:
        return machine
    services = machine.translation.services if machine.translation else ()
    addresses = _join_prefixes([f"{service.address}/32" for service in services])
    return _with_drop(machine, Drop("WIN-HOST-SERVICE", addresses))


def _overlay_node_pod(machine: MachineIntent, intent: Intent) -> MachineIntent:
    if machine.tunnel is None:
        return machine
    ranges = [
        other.translation.local_cidr
        for other in intent.machines
        if other.name != machine.name and other.translation and other.translation.local_cidr
    ]
    own = machine.translation.local_cidr if machine.translation else None
    spared = (own,) if own else ()
    return _with_drop(machine, Drop("WIN-OVERLAY-NODE-POD", _join_prefixes(ranges), None, spared))


def _ovn_node_port(machine: MachineIntent, _: Intent) -> MachineIntent:
    """Dropped: the Windows firewall does not reject packets to a port without a listener."""
    if machine.chassis is None or machine.translation is None:
        return machine
    unserved = tuple(
        replace(service, ports=tuple(replace(port, node_port=None) for port in service.ports))
        for service in machine.translation.services
    )
    return _with_drop(
        replace(machine, translation=replace(machine.translation, services=unserved)),
        _node_ports(machine, "WIN-OVN-NODEPORT", "input"),
    )


def _with_resolver(machine: MachineIntent, change: Callable[[Resolver], Resolver]) -> MachineIntent:
    pods = tuple(replace(pod, resolver=change(pod.resolver)) for pod in machine.pods)
    return replace(machine, pods=pods)


def limit_suffixes(resolver: Resolver) -> Resolver:
    """Only the first suffix, and none for a name with a dot."""
    return replace(resolver, search=resolver.search[:1], ndots=1)


def _dns_partial(machine: MachineIntent, _: Intent) -> MachineIntent:
    return _with_resolver(machine, limit_suffixes)


def _dns_short(machine: MachineIntent, intent: Intent) -> MachineIntent:
    """Remove the namespace's suffix, which completes short names but not partly qualified ones."""
    if intent.topology not in _WITHOUT_POD_DNS:
        return machine
    return _with_resolver(machine, lambda resolver: replace(resolver, search=resolver.search[1:]))


def _no_affinity(machine: MachineIntent, _: Intent) -> MachineIntent:
    if machine.translation is None or machine.hardware.image not in _WITHOUT_AFFINITY:
        return machine
    services = tuple(replace(service, affinity=None) for service in machine.translation.services)
    return _with_translation(machine, services=services)


def _with_translation(machine: MachineIntent, **changes: Any) -> MachineIntent:
    if machine.translation is None:
        return machine
    return replace(machine, translation=replace(machine.translation, **changes))


RULES: Mapping[str, Callable[[MachineIntent, Intent], MachineIntent]] = {
    "WIN-NODEPORT-SELF": _node_port_self,
    "WIN-HOST-SERVICE": _host_service,
    "WIN-OVERLAY-NODE-POD": _overlay_node_pod,
    "WIN-OVN-NODEPORT": _ovn_node_port,
    "WIN-DNS-PARTIAL": _dns_partial,
    "WIN-DNS-SHORT": _dns_short,
    "WIN-AFFINITY": _no_affinity,
    "WIN-UNSERVED": lambda machine, _: _with_translation(machine, refuses=False),
    "WIN-NODEPORT-OWN-PODS": lambda machine, _: _with_translation(machine, short_circuits=False),
}
"""The change to a machine's intent by rule. The limit of the same id has its reason and source."""
