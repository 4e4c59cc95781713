"""The addresses that a backend may see as the source of a packet. Pure.

The rules are those of :class:`~lab.topology.intent.Translation`, in the shape that kube-proxy
and flannel's ip-masq give them:

- traffic from a node's own pods to a Service keeps its source, unless it comes back to the
  pod it left from (hairpin);
- everything else that a node sends to a Service is masqueraded there, NodePorts always;
- masquerading, and a machine's own traffic, take an address of the device that the packet
  leaves by, as the machine's routes have it: the bridge for a local backend, the tunnel or an
  uplink for a remote one; by a device without any, as to a pod that is routed, one of the
  machine's others; a machine's own traffic takes the route's source address where it has one;
- pods' traffic to anything outside ``not_masqueraded`` leaves with the node's uplink address,
  but a packet to the pod's own node leaves by no device, so nothing translates it.

What the filtering platform of Windows (VFP) does to a pod's Service traffic is not documented,
nor which of its addresses a Windows node takes: from a Windows pod, the pod's address and its
node's are both allowed, and from a Windows node any of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import NamedTuple

from lab.matrix.cell import Endpoint
from lab.scenario.terms import Os
from lab.topology.intent import Intent, MachineIntent

_EVERYWHERE = {"default": "0.0.0.0/0"}


class _Way(NamedTuple):
    device: frozenset[str]
    source: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Addresses:
    os: Os
    every: frozenset[str]
    uplink: frozenset[str]
    bridge: frozenset[str]
    outward: frozenset[str]
    """Uplinks and tunnel: what traffic to another node's pods may be masqueraded with."""
    leaving: tuple[tuple[int, Mapping[int, _Way]], ...]
    """For each length of prefix, the longest first: the bits that the rest of an address has,
    and by the prefix without them the way there."""

    def toward(self, address: str, *, own: bool = False) -> frozenset[str]:
        """Those of the device by which packets to the address leave; any if it has none.

        With ``own`` those of the machine's own packets, which a route may give a source.
        """
        number = _number(address)
        for rest, held in self.leaving:
            found = held.get(number >> rest)
            if found is not None:
                return (own and found.source) or found.device or self.every
        return self.every


class Sources:
    """Answers, for each kind of path, which addresses the backend may see.

    Parameters
    ----------
    intent
        Read once; the answers are shared sets.
    """

    def __init__(self, intent: Intent) -> None:
        self._addresses: Mapping[str, _Addresses] = {
            machine.name: _addresses(machine) for machine in intent.machines
        }
        self._logical = intent.logical
        self._gateways: Mapping[str, str] = intent.logical.gateways() if intent.logical else {}
        self._kept: Mapping[str, tuple[IPv4Network, ...]] = {
            machine.name: tuple(
                IPv4Network(prefix)
                for prefix in (machine.translation.not_masqueraded if machine.translation else ())
            )
            for machine in intent.machines
        }

    def of_machine(self, name: str, backend: Endpoint) -> frozenset[str]:
        """The machine's own, of the device it reaches the backend by."""
        addresses = self._addresses[name]
        return (
            addresses.every
            if addresses.os == "windows"
            else addresses.toward(backend.address, own=True)
        )

    def of_pod_to_pod(self, pod: Endpoint) -> frozenset[str]:
        """The pod's own: Kubernetes promises no translation between pods."""
        return frozenset({pod.address})

    def of_pod_to_service(self, pod: Endpoint) -> frozenset[str]:
        """The pod's own; from a Windows pod also its node's, but where OVN is the one to serve."""
        own = frozenset({pod.address})
        if self._logical:
            return own
        return own | self._node_of(pod).every if pod.os == "windows" else own

    def of_pod_to_itself(self, pod: Endpoint) -> frozenset[str]:
        """A hairpin is masqueraded: its node's; from a Windows pod also the pod's own.

        OVN has one address for all of them.
        """
        if self._logical:
            return frozenset({self._logical.hairpin})
        node = self._node_of(pod)
        return node.every | {pod.address} if pod.os == "windows" else node.toward(pod.address)

    def of_pod_to_address(self, pod: Endpoint, target: Endpoint) -> frozenset[str]:
        """What a node or the world outside may see of a pod."""
        own = frozenset({pod.address})
        node = self._gateway_of(str(pod.node))
        if self._is_kept(node, target.address):
            return own
        if target.name == node:
            by_windows = self._addresses[node].os == "windows"
            return own | self._addresses[node].every if by_windows else own
        return self._addresses[node].uplink

    def of_node_port(self, entry: str, backend: Endpoint) -> frozenset[str]:
        """The entry node's, of the device it reaches the backend by (policy Cluster)."""
        addresses = self._addresses[entry]
        if addresses.os != "windows":
            return addresses.toward(backend.address)
        return addresses.bridge if entry == backend.node else addresses.outward

    def at_entry(self, source: Endpoint, entry: Endpoint) -> frozenset[str]:
        """What another node sees of whoever asks it, before it translates anything."""
        if source.kind == "pod":
            return self.of_pod_to_address(source, entry)
        return self.of_machine(source.name, entry)

    def _gateway_of(self, node: str) -> str:
        """The machine by which a node's pods leave the pod network: the node, but for OVN."""
        return self._gateways.get(node, node)

    def _node_of(self, pod: Endpoint) -> _Addresses:
        return self._addresses[str(pod.node)]

    def _is_kept(self, node: str, address: str) -> bool:
        return any(IPv4Address(address) in network for network in self._kept[node])


def _addresses(machine: MachineIntent) -> _Addresses:
    """Fall back on every address where a device that masquerades has none of its own."""
    uplink = _bare(tuple(a for card in machine.interfaces for a in card.addresses))
    bridge = _bare(machine.bridge.addresses if machine.bridge else ())
    tunnel = _bare(machine.tunnel.addresses if machine.tunnel else ())
    every = _bare(tuple(text for _, texts in machine.addressed() for text in texts))
    nameless_tunnel = machine.tunnel is not None and not tunnel
    return _Addresses(
        os=machine.os,
        every=every,
        uplink=uplink,
        bridge=bridge or every,
        outward=every if nameless_tunnel else uplink | tunnel,
        leaving=_leaving(machine),
    )


def _leaving(machine: MachineIntent) -> tuple[tuple[int, Mapping[int, _Way]], ...]:
    addressed = machine.addressed()
    held = {device: _bare(texts) for device, texts in addressed}
    found: dict[int, dict[int, _Way]] = {}

    def lead(prefix: IPv4Network, device: str, source: str | None = None) -> None:
        rest = prefix.max_prefixlen - prefix.prefixlen
        number = int(prefix.network_address) >> rest
        own = frozenset((source,)) if source else frozenset[str]()
        found.setdefault(rest, {}).setdefault(number, _Way(held.get(device, frozenset()), own))

    for device, texts in addressed:
        for text in texts:
            lead(IPv4Interface(text).network, device)
    for route in machine.routes:
        prefix = _EVERYWHERE.get(route.destination, route.destination)
        lead(IPv4Network(prefix), route.device, route.source)
    return tuple(sorted(found.items()))


@lru_cache(maxsize=1 << 14)
def _number(address: str) -> int:
    return int(IPv4Address(address))


def _bare(addresses: tuple[str, ...]) -> frozenset[str]:
    return frozenset(address.partition("/")[0] for address in addresses)
