"""UDP connections to backends that no longer exist, which the kernel would keep using."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from lab._dataclass import dataclass
from lab.providers.netns import namespaces
from lab.providers.netns.netlink import Socket, attributes
from lab.providers.netns.operations import attribute
from lab.topology.intent import MachineIntent, Translation
from lab.topology.routing import own_addresses

# Numbers of linux/netfilter/nfnetlink_conntrack.h.
_NETFILTER = 12
_GET, _DELETE = 0x101, 0x102
"""Message types: subsystem ctnetlink (1) in the upper byte."""
_FAMILY = struct.pack("=BBH", socket.AF_INET, 0, 0)
_ORIGINAL, _REPLY = 1, 2
_IP, _TRANSPORT = 1, 2
_SOURCE, _TARGET = 1, 2
_PROTOCOL, _SOURCE_PORT, _TARGET_PORT = 1, 2, 3

UdpEnd = tuple[str, int]
"""Address and port."""


@dataclass(frozen=True, slots=True)
class UdpConnection:
    """One UDP connection."""

    target: UdpEnd
    answers: UdpEnd
    original: bytes
    """The original direction's tuple in the kernel's encoding; identifies the connection."""


def is_stale(machine: MachineIntent, translation: Translation) -> Callable[[UdpConnection], bool]:
    """Return a predicate for connections to backends that no longer exist. Pure."""
    served = dict(_list_served(machine, translation))

    def stale(flow: UdpConnection) -> bool:
        backends = served.get(flow.target)
        return bool(backends) and flow.answers not in backends  # type: ignore[operator]

    return stale


def _list_served(
    machine: MachineIntent, translation: Translation
) -> Iterator[tuple[UdpEnd, frozenset[UdpEnd]]]:
    """Each UDP Service's address and port with all its backends, whatever its traffic policies."""
    own = own_addresses(machine)
    for service in translation.services:
        for port in service.ports:
            if "udp" not in port.protocols:
                continue
            ends = frozenset((backend.address, port.target_port) for backend in service.backends)
            yield (service.address, port.port), ends
            if port.node_port is not None:
                yield from (((address, port.node_port), ends) for address in own)


def forget_stale(machines: Iterable[MachineIntent]) -> None:
    """Inside the holder: delete stale connections on every machine with Service translation."""
    for machine in machines:
        if machine.translation:
            namespaces.enter(machine.name)
            with Socket(machine.name, _NETFILTER) as channel:
                # A new lab has no connections; skip building the long list of Services.
                if flows := list(_list_flows(channel)):
                    stale = is_stale(machine, machine.translation)
                    for flow in filter(stale, flows):
                        body = _FAMILY + attribute(_ORIGINAL | 0x8000, flow.original)
                        channel.request(_DELETE, body)  # an error means it is already gone


def _list_flows(channel: Socket) -> Iterator[UdpConnection]:
    bodies: list[bytes] = []
    with suppress(OSError):  # a kernel without ctnetlink
        bodies = channel.dump(_GET, _FAMILY)
    for body in bodies:
        with suppress(KeyError):  # other protocols have no ports
            if flow := read_connection(body[len(_FAMILY) :]):
                yield flow


def read_connection(body: bytes) -> UdpConnection | None:
    """Parse a conntrack entry; None if it is not UDP. Pure.

    Raises KeyError if it has no IPv4 addresses or ports.
    """
    parts = attributes(body)
    original, reply = _read_tuple(parts[_ORIGINAL]), _read_tuple(parts[_REPLY])
    if original[0] != socket.IPPROTO_UDP:
        return None
    return UdpConnection(original[2], reply[1], parts[_ORIGINAL])


def _read_tuple(body: bytes) -> tuple[int, UdpEnd, UdpEnd]:
    """Protocol, source and target."""
    parts = attributes(body)
    addresses, transport = attributes(parts[_IP]), attributes(parts[_TRANSPORT])
    source, target = (socket.inet_ntoa(addresses[part]) for part in (_SOURCE, _TARGET))
    ports = (int.from_bytes(transport[part], "big") for part in (_SOURCE_PORT, _TARGET_PORT))
    from_port, to_port = ports
    return transport[_PROTOCOL][0], (source, from_port), (target, to_port)
