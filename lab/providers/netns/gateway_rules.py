"""What a chassis' own kernel does with packets, as nftables text. Pure.

Two tables. ``ovn-kubernetes`` is the node as a gateway, as ovn-kubernetes' local gateway mode
has it: NodePorts become their Service's address and go into the logical network by the node's
own port, and pods' packets to the world leave with the node's address. ``open-vswitch`` throws
away what arrives at the switch's ports: the switch in user space has its own copy, and a kernel
that saw them too would answer ARP for the node's addresses there (intro/install/userspace.rst
of Open vSwitch).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lab.providers.netns.service_rules import MASQUERADE_MARK, chain, collection
from lab.scenario.terms import ServicePort
from lab.topology import proxying
from lab.topology.intent import Bridge, MachineIntent, ProxiedService, Translation

GATEWAY_TABLE = "ovn-kubernetes"
SWITCH_TABLE = "open-vswitch"
_BY_PORT = "meta l4proto . th dport"
_OWN = "fib daddr type local ip daddr != 127.0.0.0/8"


def tables(machine: MachineIntent) -> Iterator[list[str]]:
    """Each table's lines; none where the machine is no chassis."""
    if machine.chassis is None:
        return
    if machine.translation and machine.bridge:
        body = _gateway(machine.translation, machine.bridge, machine.name)
        yield [f"table ip {GATEWAY_TABLE} {{", *(f"  {line}" for line in body), "}"]
    ports = [one.card for one in machine.interfaces if one.card]
    ports += [pod.port for pod in machine.pods]
    devices = ", ".join(f'"{port}"' for port in ports)
    body = chain(
        "ports", f"type filter hook ingress devices = {{ {devices} }} priority 0; policy drop;"
    )
    yield [f"table netdev {SWITCH_TABLE} {{", *(f"  {line}" for line in body), "}"]


@dataclass(frozen=True, slots=True)
class _NodePort:
    """One port on the node, and where it leads."""

    name: str
    service: ProxiedService
    port: ServicePort
    local: tuple[str, ...]
    """Addresses and ports of the Service's backends on this node."""

    @property
    def lost(self) -> bool:
        """Whether it is for local backends alone, and there is none."""
        return self.service.outside == "local" and not self.local

    def elements(self, value: str = "") -> list[str]:
        """What a set, or a map to ``value``, has of it."""
        number = self.port.node_port
        return [f"{protocol} . {number}{value}" for protocol in self.port.protocols]


def _node_ports(translation: Translation, node: str) -> Iterator[_NodePort]:
    for service in translation.services:
        several = len(service.ports) > 1
        local = proxying.local(service, node)
        for port in service.ports:
            if port.node_port is not None:
                name = f"{service.name}/{port.name}" if several else service.name
                targets = tuple(f"{one.address}:{port.target_port}" for one in local)
                yield _NodePort(name, service, port, targets)


def _gateway(translation: Translation, bridge: Bridge, node: str) -> Iterator[str]:
    ports = tuple(_node_ports(translation, node))
    for one in ports:
        yield from chain(f"external-{one.name}", *_external(one, translation))
    leading = [text for one in ports for text in one.elements(f" : goto external-{one.name}")]
    lost = [text for one in ports if one.lost for text in one.elements()]
    by_port = "inet_proto . inet_service"
    yield from collection("map", "node-ports", f"{by_port} : verdict", leading)
    yield from collection("set", "no-local-backends", by_port, lost)
    for hook in ("prerouting", "output"):
        yield from chain(
            f"nat-{hook}",
            f"type nat hook {hook} priority -100; policy accept;",
            f"{_OWN} {_BY_PORT} vmap @node-ports",
        )
    yield from chain(
        "filter-input",
        "type filter hook input priority 0; policy accept;",
        f"ct state new {_BY_PORT} @no-local-backends drop",
    )
    yield from chain(
        "nat-postrouting",
        "type nat hook postrouting priority 100; policy accept;",
        *leaving_rules(translation, bridge.name),
    )


def leaving_rules(translation: Translation, port: str) -> tuple[str, str]:
    """Who gets the node's address: what is marked and goes in by ``port``; pods, to the world."""
    kept = ", ".join(translation.not_masqueraded)
    return (
        f'oifname "{port}" meta mark and {MASQUERADE_MARK:#x} != 0 masquerade fully-random',
        f"ip saddr {{ {kept} }} ip daddr != {{ {kept} }} masquerade fully-random",
    )


def _external(one: _NodePort, translation: Translation) -> Iterator[str]:
    """To the Service's address with the node's own; a policy for local backends spares clients.

    The node itself and its pods are not bound by that policy, as with kube-proxy.
    """
    if one.service.outside == "local":
        own = f"ip saddr != {translation.local_cidr} fib saddr type != local"
        for protocol in one.port.protocols if one.local else ():
            yield f"{own} meta l4proto {protocol} {_drawn(one.local)}"
        if not one.local:
            yield f"{own} return"
    yield f"meta mark set meta mark or {MASQUERADE_MARK:#x}"
    for protocol in one.port.protocols:
        yield f"meta l4proto {protocol} dnat to {one.service.address}:{one.port.port}"


def _drawn(targets: tuple[str, ...]) -> str:
    if len(targets) == 1:
        return f"dnat to {targets[0]}"
    pairs = [target.partition(":") for target in targets]
    lots = ", ".join(f"{n} : {address} . {port}" for n, (address, _, port) in enumerate(pairs))
    return f"dnat ip to numgen random mod {len(targets)} map {{ {lots} }}"
