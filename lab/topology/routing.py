"""Where a machine or pod of the Intent sends a packet: longest prefix and ARP."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, ip_interface

from lab.topology.intent import Intent, Interface, MachineIntent, Pod, Route

_DEFAULT = "0.0.0.0/0"


def bare(text: str) -> str:
    """An address without its prefix length."""
    return text.partition("/")[0]


def own_addresses(machine: MachineIntent) -> frozenset[str]:
    """Every address of the machine itself, without its pods'."""
    return frozenset(bare(text) for _, texts in machine.addressed() for text in texts)


def find_route(machine: MachineIntent, address: str) -> Route | None:
    """The route for packets to an address, or None.

    Connected networks count as routes without ``via``.
    """
    fitting = [
        route
        for route in (*machine.routes, *list_connected(machine))
        if covers(route.destination, address)
    ]
    return max(fitting, key=lambda route: _network(route.destination).prefixlen, default=None)


def list_connected(machine: MachineIntent) -> Iterator[Route]:
    """The routes that its devices' addresses create."""
    for device, texts in machine.addressed():
        for text in texts:
            network = ip_interface(text).network
            if network.num_addresses > 1:
                yield Route(str(network), device)


def covers(prefix: str, address: str) -> bool:
    """Whether a prefix, or ``"default"``, contains the address."""
    return _address(address) in _network(prefix)


def holder(intent: Intent, segment: str, address: str) -> tuple[MachineIntent, str] | None:
    """The machine and interface that answer ARP for an address on a segment: owner or proxy."""
    for machine in intent.everything():
        for card in machine.interfaces:
            if card.segment != segment:
                continue
            owned = {bare(text) for text in card.held}
            proxied = {proxy.address for proxy in machine.proxies if proxy.device == card.name}
            if address in owned | proxied:
                return machine, card.name
    return None


def pod_with(machine: MachineIntent, address: str) -> Pod | None:
    """The machine's pod with this address."""
    return next((pod for pod in machine.pods if bare(pod.address) == address), None)


def card_of(machine: MachineIntent, device: str) -> Interface | None:
    """The machine's interface with this name."""
    return next((interface for interface in machine.interfaces if interface.name == device), None)


def address_of(machine: MachineIntent, device: str, next_hop: str) -> str:
    """The source address of a machine's own packets that leave by a device.

    It is the device's address in the network of the next hop, or its first; the machine's first if
    the device has none (the kernel's ``inet_select_addr``).
    """
    own = [text for name, texts in machine.addressed() if name == device for text in texts]
    near = [text for text in own if covers(network_of(text), next_hop)]
    every = [text for _, texts in machine.addressed() for text in texts]
    return bare(next(iter((*near, *own, *every)), ""))


def source_by(machine: MachineIntent, route: Route, target: str) -> str:
    """The source address of a machine's own packets to ``target`` by a route."""
    return route.source or address_of(machine, route.device, route.via or target)


def network_of(address: str) -> str:
    """The prefix of an address with prefix length."""
    return str(ip_interface(address).network)


@lru_cache(maxsize=4096)
def _network(prefix: str) -> IPv4Network:
    return IPv4Network(_DEFAULT if prefix == "default" else prefix)


@lru_cache(maxsize=4096)
def _address(text: str) -> IPv4Address:
    return IPv4Address(text)
