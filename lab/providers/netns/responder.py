"""The responder for all pods and machines of a lab: one process with sockets in all namespaces.

Started inside the lab's holder as ``python -I -m lab.providers.netns.responder CONFIG.json``,
or ``python -I .../responder.py CONFIG.json`` if the package is not installed. The file holds
a list of objects::

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

One epoll loop answers everything. A small request takes one round: TCP_DEFER_ACCEPT wakes the loop
once the request has arrived, so that it is accepted, read, answered and closed at once. Anything
slower becomes a :class:`_Connection`, which is bounded in time, size and number.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self  # importing dataclasses takes 10 ms

if not __package__:  # run by path
    sys.path.insert(0, os.path.abspath(__file__).removesuffix("/lab/providers/netns/responder.py"))  # noqa: PTH100  pathlib is slow to import here

from lab.providers.netns import dns, isolation, protocol


class Later(NamedTuple):
    """An answer from another server; ``begin`` takes the callback that receives it."""

    begin: Callable[[Callable[[bytes], None]], None]


EchoDatagram = Callable[[bytes, bytes], tuple[bytes, bool] | Later | None]
"""Maps a datagram and its sender (address:port) to the answer and whether it may fragment."""


class ResponderAnswer(NamedTuple):
    """Data to send on a connection, and what to do afterwards."""

    data: bytes
    then: str
    """``close``; ``read`` more; or ``drain``: discard what the client still sends, then close."""


class Stream(NamedTuple):
    """A stream to measure and discard; ``answer`` builds the answer from bits per second."""

    answer: Callable[[float], bytes]


Answered = ResponderAnswer | Later | Stream
Converse = Callable[[bytearray, bytes, bool], Answered | None]
"""Maps the bytes received, the client, and whether it was answered before to the next answer, or
None to read more. A later answer is sent unchanged, then the connection is closed."""


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
    said = protocol.health_answer(service, local)

    def converse(data: bytearray, _client: bytes, _greeted: bool) -> ResponderAnswer | None:
        try:
            request = protocol.read_request(data)
        except protocol.RequestError:
            return ResponderAnswer(said, "drain")
        return None if request is None else ResponderAnswer(said, "close")

    return converse


def echo_responder(endpoint: bytes) -> EchoDatagram:
    """UDP echo as defined in :mod:`lab.providers.netns.protocol`."""
    return lambda data, client: protocol.echo_datagram(data, endpoint, client)


class Elsewhere(NamedTuple):
    """Another DNS server, for names outside the domain ``but``."""

    ask: Callable[[bytes, Callable[[bytes], None]], None]
    but: str

    def asked(self, wire: bytes) -> bool:
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
        if elsewhere and elsewhere.asked(wire):
            ask, question = elsewhere.ask, wire
            return Later(lambda then: ask(question, lambda said: then(protocol.frame(said))))
        reply = dns.answer_question(wire, records)
        return ResponderAnswer(b"" if reply is None else protocol.frame(reply), "close")

    return converse


def dns_datagram(
    records: Mapping[str, Sequence[str]], elsewhere: Elsewhere | None = None
) -> EchoDatagram:
    """DNS over UDP."""

    def reply(data: bytes, _client: bytes) -> tuple[bytes, bool] | Later | None:
        if elsewhere and elsewhere.asked(data):
            ask = elsewhere.ask
            return Later(lambda then: ask(data, then))
        wire = dns.answer_question(data, records)
        return None if wire is None else (wire, True)

    return reply


CONNECTION_SECONDS = 10.0
"""A connection is closed after this long, finished or not; longer than any probe waits."""
DRAIN_SECONDS = 2.0
"""How long to read the rest of a refused request; a reset would lose the refusal."""
CONNECTIONS_LIMIT = 2_048
"""Most slow connections, twice a prober's in flight; beyond it the oldest is closed."""
BYTES_LIMIT = 256 << 20
"""Most bytes of unfinished requests; beyond it the oldest connection is closed."""
BACKLOG = 4_096
"""The kernel's limit (somaxconn) since Linux 5.4."""
UDP_BUFFER_BYTES = 4 << 20
"""Requested socket buffers, so that a burst at one endpoint and its answers fit. Only root gets
the full size."""

_AT_ONCE = 64
"""Clients of one socket that are served in a round. With one alone, a socket with many would fall
behind the others on a busy machine, and stay behind: it answers those first that have given up."""
_CHUNK = 65_536
_STREAM_CHUNK = 1 << 20
_SMALL = 16_384
_SWEEP_SECONDS = 1.0
_LOG_LINES = 100
_IP_MTU_DISCOVER, _PMTUDISC_DONT, _PMTUDISC_PROBE = 10, 0, 3
"""ip(7): PROBE sets DF and respects only the device's MTU, not the path MTU learnt from ICMP."""
IP_PKTINFO = 8
"""ip(7); missing in Python before 3.14."""
_PKTINFO = struct.Struct("=i4s4s")
_PKTINFO_SPACE = socket.CMSG_SPACE(_PKTINFO.size)
_NO_ADDRESS = bytes(4)
_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


class _Connection:
    __slots__ = (
        "answered",
        "client",
        "converse",
        "deadline",
        "pending",
        "received",
        "sock",
        "then",
    )

    def __init__(self, sock: socket.socket, client: bytes, converse: Converse) -> None:
        self.sock = sock
        self.client = client
        self.converse = converse
        self.received = bytearray()
        self.pending = b""
        self.then = "read"
        self.answered = False
        self.deadline = time.monotonic() + CONNECTION_SECONDS


class SocketServer:
    """Serves listening sockets and their connections; on exit it closes the connections."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._connections: dict[int, _Connection] = {}
        self._held = 0
        self._logged: set[str] = set()
        self._swept = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in list(self._connections):
            self._close(descriptor)
        self._epoll.close()

    def add_stream(self, sock: socket.socket, converse: Converse) -> None:
        """Serve a non-blocking, listening TCP socket."""
        self._add(sock, lambda: _repeat(lambda: self._accept(sock, converse)))

    def add_datagrams(self, sock: socket.socket, echoed: EchoDatagram) -> None:
        """Serve a non-blocking, bound UDP socket with IP_PKTINFO enabled."""
        fragments = [False]
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)
        self._add(sock, lambda: _repeat(lambda: _echo(sock, echoed, fragments)))

    def add_listener(self, sock: socket.socket, heard: Callable[[], None]) -> None:
        """Call ``heard`` whenever a non-blocking socket is readable."""
        self._add(sock, heard)

    def _add(self, sock: socket.socket, handler: Callable[[], None]) -> None:
        self._handlers[sock.fileno()] = handler
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def serve(self) -> None:
        """Serve until the epoll object is closed."""
        while not self._epoll.closed:
            self.turn(_SWEEP_SECONDS if self._connections else -1)

    def turn(self, wait: float) -> None:
        """One round: wait at most ``wait`` seconds (-1: no limit) and handle all events."""
        for descriptor, _ in self._epoll.poll(wait):
            handler = self._handlers.get(descriptor)
            if handler is None:  # closed earlier in this round to make room
                continue
            try:
                handler()
            except Exception as error:  # noqa: BLE001  one bad client must not stop the server
                self._log(f"{type(error).__name__}: {error}")
                self._close(descriptor)
        self._sweep()

    def _sweep(self) -> None:
        now = time.monotonic()
        if now - self._swept < _SWEEP_SECONDS:
            return
        self._swept = now
        for descriptor, connection in list(self._connections.items()):
            if connection.deadline <= now:
                self._close(descriptor)

    def _accept(self, listener: socket.socket, converse: Converse) -> bool:
        """Serve one client; False if there is none."""
        try:
            sock, (host, port) = listener.accept()
        except (BlockingIOError, ConnectionError):
            return False
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._make_room(error)
            return False
        try:
            self._greet(sock, b"%s:%d" % (host.encode(), port), converse)
        except Exception:
            sock.close()
            raise
        return True

    def _greet(self, sock: socket.socket, client: bytes, converse: Converse) -> None:
        """Handle as much as possible at once; a small request completes here."""
        try:
            data = sock.recv(_SMALL, socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._hold(_Connection(sock, client, converse))
            return
        except ConnectionError:
            data = b""
        answer = converse(bytearray(data), client, False) if data else ResponderAnswer(b"", "close")
        sent = 0
        if isinstance(answer, ResponderAnswer) and answer.then == "close":
            sent = _sent(sock, answer.data)
            if sent == len(answer.data):
                sock.close()
                return
        connection = _Connection(sock, client, converse)
        self._hold(connection)
        if not self._receive(connection, data):
            return
        if isinstance(answer, ResponderAnswer):
            answer = answer._replace(data=answer.data[sent:])
        if answer is not None:
            self._continue(connection, answer)

    def _hold(self, connection: _Connection) -> None:
        if len(self._connections) >= CONNECTIONS_LIMIT:
            self._close(next(iter(self._connections)))
        descriptor = connection.sock.fileno()
        self._connections[descriptor] = connection
        self._handlers[descriptor] = lambda: self._read(connection)
        self._epoll.register(descriptor, select.EPOLLIN)

    def _receive(self, connection: _Connection, data: bytes) -> bool:
        """Keep a part of a request; False if its connection had to be closed to make room."""
        connection.received += data
        self._held += len(data)
        descriptor = connection.sock.fileno()
        while self._held > BYTES_LIMIT:
            self._close(next(iter(self._connections)))
        return descriptor in self._connections

    def _make_room(self, error: OSError) -> None:
        """Out of descriptors or memory: close the oldest slow connection, or else wait briefly."""
        if self._connections:
            self._close(next(iter(self._connections)))
            return
        self._log(f"accept: {error.strerror}")
        time.sleep(0.01)  # nothing to free: the kernel queues the clients

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(connection.sock.fileno())
        elif connection.then != "drain" and self._receive(connection, data):
            answered = connection.answered
            answer = connection.converse(connection.received, connection.client, answered)
            if answer is not None:
                self._continue(connection, answer)

    def _continue(self, connection: _Connection, answer: Answered) -> None:
        connection.answered = True
        if isinstance(answer, Later):
            answer.begin(lambda data: self._finish(connection, data))
            return
        if isinstance(answer, Stream):
            meter, said = protocol.StreamMeter(), answer.answer
            descriptor = connection.sock.fileno()
            self._handlers[descriptor] = lambda: self._measure(connection, meter, said)
            return
        connection.pending, connection.then = answer
        self._write(connection)

    def _measure(
        self,
        connection: _Connection,
        meter: protocol.StreamMeter,
        answer: Callable[[float], bytes],
    ) -> None:
        """Read part of a stream; answer once its throughput is known."""
        try:
            size = len(connection.sock.recv(_STREAM_CHUNK, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:
            self._close(connection.sock.fileno())
        elif (rate := meter.add(size, time.monotonic())) is not None:
            self._continue(connection, ResponderAnswer(answer(rate), "drain"))

    def _finish(self, connection: _Connection, data: bytes) -> None:
        """Send another server's answer, if the client is still connected."""
        if self._connections.get(connection.sock.fileno()) is connection:
            self._continue(connection, ResponderAnswer(data, "close"))

    def _write(self, connection: _Connection) -> None:
        descriptor = connection.sock.fileno()
        connection.pending = connection.pending[_sent(connection.sock, connection.pending) :]
        if connection.pending:
            self._handlers[descriptor] = lambda: self._write(connection)
            self._epoll.modify(descriptor, select.EPOLLOUT)
        elif connection.then == "close":
            self._close(descriptor)
        else:
            if connection.then == "drain":
                connection.deadline = time.monotonic() + DRAIN_SECONDS
                with suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_WR)
            self._handlers[descriptor] = lambda: self._read(connection)
            self._epoll.modify(descriptor, select.EPOLLIN)

    def _close(self, descriptor: int) -> None:
        connection = self._connections.pop(descriptor, None)
        if connection is not None:  # None for a listening socket, which stays open
            del self._handlers[descriptor]
            self._held -= len(connection.received)
            connection.sock.close()

    def _log(self, line: str) -> None:
        """Log each distinct line once: what fails for one client fails for thousands."""
        if line not in self._logged and len(self._logged) < _LOG_LINES:
            self._logged.add(line)
            print(f"responder: {line}", file=sys.stderr, flush=True)


def _sent(sock: socket.socket, data: bytes) -> int:
    """Send without blocking; the number of bytes sent, or all of them if the peer is gone."""
    try:
        return sock.send(data, socket.MSG_DONTWAIT) if data else 0
    except BlockingIOError:
        return 0
    except OSError:
        return len(data)


def _repeat(serve: Callable[[], bool]) -> None:
    """Serve the clients of one socket until there are no more."""
    for _ in range(_AT_ONCE):
        if not serve():
            return


def _echo(sock: socket.socket, echoed: EchoDatagram, fragments: list[bool]) -> bool:
    """Answer one datagram from the address it was sent to; False if there is none.

    An answer that cannot be sent is dropped.
    """
    try:
        data, ancillary, _, sender = sock.recvmsg(_CHUNK, _PKTINFO_SPACE)
    except OSError:  # nothing to read after all, or an ICMP error for an earlier answer
        return False
    answer = echoed(data, b"%s:%d" % (sender[0].encode(), sender[1]))
    if answer is None:
        return True
    asked = _PKTINFO.unpack_from(ancillary[0][2])[1] if ancillary else _NO_ADDRESS

    def reply(data: bytes, *, may_fragment: bool = True) -> None:
        with suppress(OSError):
            if may_fragment != fragments[0]:
                mode = _PMTUDISC_DONT if may_fragment else _PMTUDISC_PROBE
                sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, mode)
                fragments[0] = may_fragment
            info = _PKTINFO.pack(0, asked, _NO_ADDRESS)
            control = [(socket.IPPROTO_IP, IP_PKTINFO, info)]
            sock.sendmsg([data], control, socket.MSG_DONTWAIT, sender)

    if isinstance(answer, Later):
        answer.begin(reply)
    else:
        reply(answer[0], may_fragment=answer[1])
    return True


NETNS_DIRECTORY = "/run/netns"
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
            one["namespace"],
            one["name"],
            tuple(one["tcp"]),
            tuple(one["udp"]),
            one.get("dns"),
            one.get("health") or {},
            one.get("forward"),
        )
        for one in entries
    )


def answer_pulse(sock: socket.socket) -> None:
    """Return a datagram to its prober, which may have ended."""
    with suppress(OSError):
        data, sender = sock.recvfrom(_SMALL)
        sock.sendto(data, sender)


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
    there = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        isolation.setns(there, isolation.CLONE_NEWNET)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(there)


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
        elsewhere = _elsewhere(server, endpoint)
        answer = dns_stream(endpoint.dns, elsewhere)
        server.add_stream(_stream(endpoint, DNS_PORT), answer)
        datagram = dns_datagram(endpoint.dns, elsewhere)
        server.add_datagrams(_datagrams(endpoint, DNS_PORT), datagram)


def _elsewhere(server: SocketServer, endpoint: AnsweringNamespace) -> Elsewhere | None:
    if endpoint.forward is None:
        return None
    sock = socket.socket(socket.AF_INET, _DATAGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    sock.connect((endpoint.forward["to"], DNS_PORT))
    forwarder = dns.Forwarder(sock)
    server.add_listener(sock, forwarder.hear)
    return Elsewhere(forwarder.ask, endpoint.forward["but"])


def _stream(endpoint: AnsweringNamespace, port: int) -> socket.socket:
    sock = _bound(endpoint, socket.SOCK_STREAM, port)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _DEFER_SECONDS)
    sock.listen(BACKLOG)
    return sock


def _datagrams(endpoint: AnsweringNamespace, port: int) -> socket.socket:
    sock = _bound(endpoint, socket.SOCK_DGRAM, port)
    sock.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
    for forced, allowed in _BUFFERS:
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, UDP_BUFFER_BYTES)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, allowed, UDP_BUFFER_BYTES)
    return sock


def _bound(endpoint: AnsweringNamespace, kind: int, port: int) -> socket.socket:
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
    isolation.raise_descriptors(sum(one.sockets() for one in endpoints) + _MORE_DESCRIPTORS)
    _add_pulses(server, isolation.PULSE_SOCKET)
    listen(server, endpoints)


def _say_ready() -> None:
    os.write(1, b"ready\n")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
