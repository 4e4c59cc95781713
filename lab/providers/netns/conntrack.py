"""UDP connections in a namespace's conntrack table, read and deleted over netlink.

Numbers are those of linux/netfilter/nfnetlink_conntrack.h.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from lab.providers.netns import namespaces
from lab.providers.netns.operations import attribute
from lab.topology.intent import MachineIntent, Translation
from lab.topology.routing import own_addresses

_NETFILTER = 12
_NEW, _GET, _DELETE = 0x100, 0x101, 0x102
"""Of the subsystem ctnetlink (1)."""
_CONNTRACK_REQUEST, _CONNTRACK_ACK, _CONNTRACK_DUMP = 0x1, 0x4, 0x300
_CONNTRACK_ERROR, _CONNTRACK_DONE = 2, 3
_CONNTRACK_HEADER = struct.Struct("=IHHII")
_FAMILY = struct.pack("=BBH", socket.AF_INET, 0, 0)
_ORIGINAL, _REPLY = 1, 2
_IP, _TRANSPORT = 1, 2
_SOURCE, _TARGET = 1, 2
_PROTOCOL, _SOURCE_PORT, _TARGET_PORT = 1, 2, 3
_CONNTRACK_KIND = 0x3FFF
"""Without the bits that say nested and network order."""
_BUFFER = 1 << 16

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
            if flows := _flows():  # none in a lab that is new, and what is served is a long list
                stale = is_stale(machine, machine.translation)
                _forget([flow for flow in flows if stale(flow)])


def _flows() -> list[UdpConnection]:
    """Every UDP connection of the namespace that the thread is in."""
    with _opened() as channel:
        channel.send(_message(_GET, _CONNTRACK_DUMP, _FAMILY))
        return list(_listed(channel))


def _forget(flows: Iterable[UdpConnection]) -> None:
    with _opened() as channel:
        for flow in flows:
            body = _FAMILY + attribute(_ORIGINAL | 0x8000, flow.original)
            channel.send(_message(_DELETE, _CONNTRACK_ACK, body))
            channel.recv(_BUFFER)  # an error means that it is already gone


def _opened() -> socket.socket:
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETFILTER)
    channel.bind((0, 0))
    return channel


def _message(kind: int, flags: int, body: bytes) -> bytes:
    return (
        _CONNTRACK_HEADER.pack(
            _CONNTRACK_HEADER.size + len(body), kind, _CONNTRACK_REQUEST | flags, 1, 0
        )
        + body
    )


def _listed(channel: socket.socket) -> Iterator[UdpConnection]:
    while True:
        data = channel.recv(_BUFFER)
        while data:
            length, kind, *_ = _CONNTRACK_HEADER.unpack_from(data)
            if kind in {_CONNTRACK_DONE, _CONNTRACK_ERROR}:
                return
            if kind == _NEW:
                with suppress(KeyError):  # of another protocol: it has no ports
                    flow = read_connection(data[_CONNTRACK_HEADER.size + len(_FAMILY) : length])
                    if flow is not None:
                        yield flow
            data = data[(length + 3) & ~3 :]


def read_connection(body: bytes) -> UdpConnection | None:
    """One connection; None where it is not UDP. Pure.

    Raises
    ------
    KeyError
        If it has no addresses or ports of IPv4.

    """
    parts = _attributes(body)
    original, reply = _tuple(parts[_ORIGINAL]), _tuple(parts[_REPLY])
    if original[0] != socket.IPPROTO_UDP:
        return None
    return UdpConnection(original[2], reply[1], parts[_ORIGINAL])


def _tuple(body: bytes) -> tuple[int, UdpEnd, UdpEnd]:
    """Protocol, source and target."""
    parts = _attributes(body)
    addresses, transport = _attributes(parts[_IP]), _attributes(parts[_TRANSPORT])
    source, target = (socket.inet_ntoa(addresses[one]) for one in (_SOURCE, _TARGET))
    ports = (int.from_bytes(transport[one], "big") for one in (_SOURCE_PORT, _TARGET_PORT))
    from_port, to_port = ports
    return transport[_PROTOCOL][0], (source, from_port), (target, to_port)


def _attributes(body: bytes) -> Mapping[int, bytes]:
    found = {}
    while len(body) >= struct.calcsize("=HH"):
        length, kind = struct.unpack_from("=HH", body)
        if length < struct.calcsize("=HH"):
            break
        found[kind & _CONNTRACK_KIND] = body[4:length]
        body = body[(length + 3) & ~3 :]
    return found
