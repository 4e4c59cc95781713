"""The responder for all pods and machines of a lab: one process with sockets in all namespaces.

Started inside the lab's holder as ``python -I -S .../responder.py CONFIG.json``. The file holds a
list of objects::

    {"namespace": "worker1-p1",        under /run/netns, or an absolute path
     "name": "worker1-p1",             in every answer
     "tcp": [8080], "udp": [8080],     HTTP and echo
     "dns": {"name.": ["address"]},    or null; names in lower case; answered on UDP and TCP 53
     "forward": {"to": "address", "but": "domain."},   or null; the server for other names
     "health": {"32000": ["web", 1]}}  or null; TCP port to Service and local backends

Datagrams to the Unix socket /run/pulse.socket come back: a prober sees whether it keeps up.

It prints ``ready`` to standard output once all sockets listen, closes standard output, and serves
until SIGTERM. Errors go to standard error; if a socket cannot be opened it exits with code 1
and without ``ready``.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple  # importing dataclasses takes 10 ms

if not __package__:  # run by path
    sys.path.insert(0, os.path.abspath(__file__).removesuffix("/lab/providers/netns/responder.py"))  # noqa: PTH100  pathlib is slow to import here

from lab.providers.netns import dns, isolation, protocol
from lab.providers.netns.socket_server import (
    CONNECTIONS_LIMIT,
    IP_PKTINFO,
    Answered,
    Converse,
    EchoDatagram,
    Later,
    ResponderAnswer,
    SocketServer,
    Stream,
)


def http_responder(endpoint: bytes) -> Converse:
    """HTTP as defined in :mod:`lab.providers.netns.protocol`."""

    def converse(data: bytearray, client: bytes, greeted: bool) -> Answered | None:
        try:
            request = protocol.read_request(data)
        except protocol.RequestError as error:
            return ResponderAnswer(protocol.refusal(error, endpoint, client), "drain")
        if request is None:
            return None
        if protocol.asks_for_stream(request):
            return Stream(lambda rate: protocol.stream_answer(rate, endpoint, client))
        end = request.body_at + request.length
        if len(data) < end:
            waits = request.waits and not greeted
            return ResponderAnswer(protocol.CONTINUE, "read") if waits else None
        body = bytes(data[request.body_at : end])
        return ResponderAnswer(protocol.respond(request, body, endpoint, client), "close")

    return converse


def health_responder(service: str, local: int) -> Converse:
    """kube-proxy's answer to any request on a Service's health check port."""
    health = protocol.health_answer(service, local)

    def converse(data: bytearray, _client: bytes, _greeted: bool) -> ResponderAnswer | None:
        try:
            request = protocol.read_request(data)
        except protocol.RequestError:
            return ResponderAnswer(health, "drain")
        return None if request is None else ResponderAnswer(health, "close")

    return converse


def echo_responder(endpoint: bytes) -> EchoDatagram:
    """UDP echo as defined in :mod:`lab.providers.netns.protocol`."""
    return lambda data, client: protocol.echo_datagram(data, endpoint, client)


class Elsewhere(NamedTuple):
    """Another DNS server, for names outside the domain ``but``."""

    ask: Callable[[bytes, Callable[[bytes], None]], None]
    but: str

    def serves(self, wire: bytes) -> bool:
        """True if the query is for the other server."""
        name = dns.asked_name(wire)
        return name is not None and not f".{name}".endswith(f".{self.but}")


def dns_stream(
    records: Mapping[str, Sequence[str]], elsewhere: Elsewhere | None = None
) -> Converse:
    """DNS over TCP, one query per connection."""

    def converse(data: bytearray, _client: bytes, _greeted: bool) -> Answered | None:
        if (wire := protocol.unframe(data)) is None:
            return None
        if elsewhere and elsewhere.serves(wire):
            ask, question = elsewhere.ask, wire
            return Later(
                lambda then: ask(question, lambda dns_reply: then(protocol.frame(dns_reply)))
            )
        reply = dns.answer_question(wire, records)
        return ResponderAnswer(b"" if reply is None else protocol.frame(reply), "close")

    return converse


def dns_datagram(
    records: Mapping[str, Sequence[str]], elsewhere: Elsewhere | None = None
) -> EchoDatagram:
    """DNS over UDP."""

    def reply(data: bytes, _client: bytes) -> tuple[bytes, bool] | Later | None:
        if elsewhere and elsewhere.serves(data):
            ask = elsewhere.ask
            return Later(lambda then: ask(data, then))
        wire = dns.answer_question(data, records)
        return None if wire is None else (wire, True)

    return reply


NETNS_DIRECTORY = "/run/netns"
BACKLOG = 4_096
"""The kernel's limit (somaxconn) since Linux 5.4."""
UDP_BUFFER_BYTES = 4 << 20
"""Requested socket buffers, so that a burst at one endpoint and its answers fit. Only root gets
the full size."""
DNS_PORT = 53
_DATAGRAM = socket.SOCK_DGRAM
_MORE_DESCRIPTORS = 2 * CONNECTIONS_LIMIT
_BUFFERS = ((33, socket.SO_RCVBUF), (32, socket.SO_SNDBUF))
"""SO_RCVBUFFORCE and SO_SNDBUFFORCE of asm-generic/socket.h, each with the unprivileged option,
which rmem_max and wmem_max limit."""
_DEFER_SECONDS = 5
"""How long the kernel holds back a silent client; its timers round this up."""


class AnsweringNamespace(NamedTuple):
    """One namespace, and the services that answer in it."""

    namespace: str
    name: str
    tcp: tuple[int, ...]
    udp: tuple[int, ...]
    dns: Mapping[str, Sequence[str]] | None
    health: Mapping[str, tuple[str, int]]
    forward: Mapping[str, str] | None = None

    def sockets(self) -> int:
        """The number of sockets it needs."""
        own = len(self.tcp) + len(self.udp) + len(self.health) + (self.forward is not None)
        return own + 2 * (self.dns is not None)


def read_config(text: str) -> tuple[AnsweringNamespace, ...]:
    """Read the configuration; ValueError or KeyError if its format is wrong."""
    entries: list[dict[str, Any]] = json.loads(text)
    return tuple(
        AnsweringNamespace(
            entry["namespace"],
            entry["name"],
            tuple(entry["tcp"]),
            tuple(entry["udp"]),
            entry.get("dns"),
            entry.get("health") or {},
            entry.get("forward"),
        )
        for entry in entries
    )


_PULSE_BYTES = 16_384


def answer_pulse(sock: socket.socket) -> bool:
    """Return a datagram to its prober, which may have ended; False if there is none."""
    try:
        data, sender = sock.recvfrom(_PULSE_BYTES)
    except OSError:
        return False
    with suppress(OSError):
        sock.sendto(data, sender)
    return True


def _add_pulses(server: SocketServer, path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108  pathlib is slow to import here
    sock = socket.socket(socket.AF_UNIX, _DATAGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    sock.bind(path)
    server.add_listener(sock, lambda: answer_pulse(sock))


def listen(server: SocketServer, endpoints: Sequence[AnsweringNamespace]) -> None:
    """Open every socket in its namespace, then return the thread to its original namespace.

    Raises OSError: names the namespace, and the socket if that failed.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for endpoint in endpoints:
            _enter(os.path.join(NETNS_DIRECTORY, endpoint.namespace))  # noqa: PTH118  as above
            open_sockets(server, endpoint)
    finally:
        isolation.setns(home, isolation.CLONE_NEWNET)
        os.close(home)


def _enter(path: str) -> None:
    namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        isolation.setns(namespace, isolation.CLONE_NEWNET)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(namespace)


def open_sockets(server: SocketServer, endpoint: AnsweringNamespace) -> None:
    """Open every socket of an endpoint in the thread's namespace."""
    name = endpoint.name.encode()
    for port in endpoint.tcp:
        server.add_stream(_stream(endpoint, port), http_responder(name))
    for port in endpoint.udp:
        server.add_datagrams(_datagrams(endpoint, port), echo_responder(name))
    for number, (service, local) in endpoint.health.items():
        server.add_stream(_stream(endpoint, int(number)), health_responder(service, local))
    if endpoint.dns is not None:
        elsewhere = _open_forwarder(server, endpoint)
        answer = dns_stream(endpoint.dns, elsewhere)
        server.add_stream(_stream(endpoint, DNS_PORT), answer)
        datagram = dns_datagram(endpoint.dns, elsewhere)
        server.add_datagrams(_datagrams(endpoint, DNS_PORT), datagram)


def _open_forwarder(server: SocketServer, endpoint: AnsweringNamespace) -> Elsewhere | None:
    if endpoint.forward is None:
        return None
    sock = socket.socket(socket.AF_INET, _DATAGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    sock.connect((endpoint.forward["to"], DNS_PORT))
    forwarder = dns.Forwarder(sock)
    server.add_listener(sock, forwarder.hear)
    return Elsewhere(forwarder.ask, endpoint.forward["but"])


def _stream(endpoint: AnsweringNamespace, port: int) -> socket.socket:
    sock = _bind_socket(endpoint, socket.SOCK_STREAM, port)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _DEFER_SECONDS)
    sock.listen(BACKLOG)
    return sock


def _datagrams(endpoint: AnsweringNamespace, port: int) -> socket.socket:
    sock = _bind_socket(endpoint, socket.SOCK_DGRAM, port)
    sock.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
    for forced, allowed in _BUFFERS:
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, UDP_BUFFER_BYTES)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, allowed, UDP_BUFFER_BYTES)
    return sock


def _bind_socket(endpoint: AnsweringNamespace, kind: int, port: int) -> socket.socket:
    where = f"{'UDP' if kind == socket.SOCK_DGRAM else 'TCP'} port {port}"
    try:
        sock = socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("0.0.0.0", port))  # noqa: S104  all addresses of the pod's namespace
    except OSError as error:
        place = f"{where} in namespace '{endpoint.namespace}'"
        raise OSError(error.errno, error.strerror, place) from None
    return sock


def main(arguments: Sequence[str]) -> int:
    """Open every socket, print ``ready``, and serve."""
    with SocketServer() as server:
        try:
            _prepare(server, arguments[0])
        except (OSError, ValueError, KeyError, IndexError) as error:
            print(f"responder: cannot start: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
        _say_ready()
        server.serve()
    return 0


def _prepare(server: SocketServer, config: str) -> None:
    with open(config, encoding="utf-8") as file:  # noqa: PTH123  pathlib is slow to import here
        endpoints = read_config(file.read())
    isolation.raise_descriptors(
        sum(endpoint.sockets() for endpoint in endpoints) + _MORE_DESCRIPTORS
    )
    _add_pulses(server, isolation.PULSE_SOCKET)
    listen(server, endpoints)


def _say_ready() -> None:
    os.write(1, b"ready\n")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
