"""UDP connections in a namespace's conntrack table, read and deleted over netlink.

Numbers are those of linux/netfilter/nfnetlink_conntrack.h.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from lab.providers.netns import namespaces
from lab.providers.netns.netlink import Socket, attributes
from lab.providers.netns.operations import attribute
from lab.topology.intent import MachineIntent, Translation
from lab.topology.routing import own_addresses

_NETFILTER = 12
_GET, _DELETE = 0x101, 0x102
"""Of the subsystem ctnetlink (1)."""
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

    asked: UdpEnd
    answers: UdpEnd
    original: bytes
    """Its first direction, as the kernel writes it: by that it is known."""


def is_stale(machine: MachineIntent, translation: Translation) -> Callable[[UdpConnection], bool]:
    """Which connections the machine leads to backends that are not there any more. Pure."""
    served = dict(_served(machine, translation))

    def stale(flow: UdpConnection) -> bool:
        backends = served.get(flow.asked)
        return bool(backends) and flow.answers not in backends  # type: ignore[operator]

    return stale


def _served(
    machine: MachineIntent, translation: Translation
) -> Iterator[tuple[UdpEnd, frozenset[UdpEnd]]]:
    """Addresses and ports of Services over UDP, and all backends, whatever the policies."""
    own = own_addresses(machine)
    for service in translation.services:
        for port in service.ports:
            if "udp" not in port.protocols:
                continue
            ends = frozenset((one.address, port.target_port) for one in service.backends)
            yield (service.address, port.port), ends
            if port.node_port is not None:
                yield from (((address, port.node_port), ends) for address in own)


def forget_stale(machines: Iterable[MachineIntent]) -> None:
    """Inside the holder: forget them on every machine that translates."""
    for machine in machines:
        if machine.translation:
            namespaces.enter(machine.name)
            with Socket(machine.name, _NETFILTER) as channel:
                # None in a lab that is new, and what is served is a long list.
                if flows := list(_flows(channel)):
                    stale = is_stale(machine, machine.translation)
                    for flow in filter(stale, flows):
                        body = _FAMILY + attribute(_ORIGINAL | 0x8000, flow.original)
                        channel.request(_DELETE, body)  # an error means that it is already gone


def _flows(channel: Socket) -> Iterator[UdpConnection]:
    bodies: list[bytes] = []
    with suppress(OSError):  # a kernel without ctnetlink
        bodies = channel.dump(_GET, _FAMILY)
    for body in bodies:
        with suppress(KeyError):  # of another protocol: it has no ports
            if flow := read_connection(body[len(_FAMILY) :]):
                yield flow


def read_connection(body: bytes) -> UdpConnection | None:
    """One connection; None where it is not UDP. Pure.

    Raises
    ------
    KeyError
        If it has no addresses or ports of IPv4.

    """
    parts = attributes(body)
    original, reply = _tuple(parts[_ORIGINAL]), _tuple(parts[_REPLY])
    if original[0] != socket.IPPROTO_UDP:
        return None
    return UdpConnection(original[2], reply[1], parts[_ORIGINAL])


def _tuple(body: bytes) -> tuple[int, UdpEnd, UdpEnd]:
    """Protocol, source and target."""
    parts = attributes(body)
    addresses, transport = attributes(parts[_IP]), attributes(parts[_TRANSPORT])
    source, target = (socket.inet_ntoa(addresses[one]) for one in (_SOURCE, _TARGET))
    ports = (int.from_bytes(transport[one], "big") for one in (_SOURCE_PORT, _TARGET_PORT))
    from_port, to_port = ports
    return transport[_PROTOCOL][0], (source, from_port), (target, to_port)
