"""A server for many TCP and UDP sockets, in one epoll loop.

A small request takes one round: TCP_DEFER_ACCEPT wakes the loop once the request has arrived, so
that it is accepted, read, answered and closed at once. Anything slower becomes a
:class:`_Connection`, which is bounded in time, size and number.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Self  # importing dataclasses takes 10 ms

from lab.providers.netns import protocol


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


CONNECTION_SECONDS = 10.0
"""A connection is closed after this long, finished or not; longer than any probe waits."""
DRAIN_SECONDS = 2.0
"""How long to read the rest of a refused request; a reset would lose the refusal."""
CONNECTIONS_LIMIT = 2_048
"""Most slow connections, twice a prober's in flight; beyond it the oldest is closed."""
BYTES_LIMIT = 256 << 20
"""Most bytes of unfinished requests; beyond it the oldest connection is closed."""

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

    def add_listener(self, sock: socket.socket, heard: Callable[[], bool]) -> None:
        """Call ``heard`` for what a non-blocking socket receives, until it returns False."""
        self._add(sock, lambda: _repeat(heard))

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
            sent = _send_some(sock, answer.data)
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
            meter, content = protocol.StreamMeter(), answer.answer
            descriptor = connection.sock.fileno()
            self._handlers[descriptor] = lambda: self._measure(connection, meter, content)
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
        connection.pending = connection.pending[_send_some(connection.sock, connection.pending) :]
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


def _send_some(sock: socket.socket, data: bytes) -> int:
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
    address = _PKTINFO.unpack_from(ancillary[0][2])[1] if ancillary else _NO_ADDRESS

    def reply(data: bytes, *, may_fragment: bool = True) -> None:
        with suppress(OSError):
            if may_fragment != fragments[0]:
                mode = _PMTUDISC_DONT if may_fragment else _PMTUDISC_PROBE
                sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, mode)
                fragments[0] = may_fragment
            info = _PKTINFO.pack(0, address, _NO_ADDRESS)
            control = [(socket.IPPROTO_IP, IP_PKTINFO, info)]
            sock.sendmsg([data], control, socket.MSG_DONTWAIT, sender)

    if isinstance(answer, Later):
        answer.begin(reply)
    else:
        reply(answer[0], may_fragment=answer[1])
    return True
