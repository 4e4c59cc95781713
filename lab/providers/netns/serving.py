"""One epoll loop that answers HTTP, UDP echo and DNS on many sockets of many namespaces.

A small request costs one round: TCP_DEFER_ACCEPT wakes the loop when the request is there, so
that it is accepted, read, answered and closed at once. Only what cannot be done at once
becomes a :class:`_Connection`, which is bounded in time, size and number.
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
from typing import Self

from lab.providers.netns.answers import Converse, EchoDatagram, Later, ResponderAnswer

CONNECTION_SECONDS = 10.0
"""A connection ends after this long, done or not; longer than any probe waits."""
DRAIN_SECONDS = 2.0
"""How long the rest of a refused request is read, so that the refusal is not lost to a reset."""
CONNECTIONS_LIMIT = 2_048
"""Slow connections held at once; the oldest gives way. Twice what a prober has in flight."""
BYTES_LIMIT = 256 << 20
"""Bytes of unfinished requests held at once; the oldest gives way."""
BACKLOG = 4_096
"""The kernel's own bound (somaxconn) on kernels since 5.4."""
UDP_BUFFER_BYTES = 4 << 20
"""Receive buffer asked for, so that a burst at one endpoint is not lost. Root gets it whole."""

_CHUNK = 65_536
_SMALL = 16_384
_SWEEP_SECONDS = 1.0
_LOG_LINES = 100
_IP_MTU_DISCOVER, _PMTUDISC_DONT, _PMTUDISC_PROBE = 10, 0, 3
"""ip(7): PROBE sets DF and heeds the device's MTU alone, not what ICMP said of the path."""
IP_PKTINFO = 8
"""ip(7); Python has no name for it before 3.14."""
_PKTINFO = struct.Struct("=i4s4s")
_PKTINFO_SPACE = socket.CMSG_SPACE(_PKTINFO.size)
_NO_ADDRESS = bytes(4)
_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


class _Connection:
    """A TCP connection that could not be dealt with at once."""

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
    """Sockets that listen, and the connections they brought; those it closes at its end."""

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
        """Serve a listening TCP socket, which must not block."""
        self._add(sock, lambda: self._accept(sock, converse))

    def add_datagrams(self, sock: socket.socket, echoed: EchoDatagram) -> None:
        """Serve a bound UDP socket, which must not block and must tell IP_PKTINFO."""
        fragments = [False]
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)
        self._add(sock, lambda: _echo(sock, echoed, fragments))

    def add_listener(self, sock: socket.socket, heard: Callable[[], None]) -> None:
        """Call ``heard`` whenever something has come on a socket, which must not block."""
        self._add(sock, heard)

    def _add(self, sock: socket.socket, handler: Callable[[], None]) -> None:
        self._handlers[sock.fileno()] = handler
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def serve(self) -> None:
        """Answer for ever."""
        while True:
            self.turn(_SWEEP_SECONDS if self._connections else -1)

    def turn(self, wait: float) -> None:
        """One round: wait at most so many seconds (-1: for ever) and answer what has come."""
        for descriptor, _ in self._epoll.poll(wait):
            handler = self._handlers.get(descriptor)
            if handler is None:  # it gave way to another of this round
                continue
            try:
                handler()
            except Exception as error:  # noqa: BLE001  one bad client must not end the service of all
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

    def _accept(self, listener: socket.socket, converse: Converse) -> None:
        try:
            sock, (host, port) = listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._make_room(error)
            return
        try:
            self._greet(sock, b"%s:%d" % (host.encode(), port), converse)
        except Exception:
            sock.close()
            raise

    def _greet(self, sock: socket.socket, client: bytes, converse: Converse) -> None:
        """Do all that can be done at once, which for a small request is everything."""
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
        connection.received += data
        self._held += len(data)
        if isinstance(answer, ResponderAnswer):
            answer = answer._replace(data=answer.data[sent:])
        if answer is not None:
            self._continue(connection, answer)

    def _hold(self, connection: _Connection) -> None:
        while self._connections and (
            len(self._connections) >= CONNECTIONS_LIMIT or self._held > BYTES_LIMIT
        ):
            self._close(next(iter(self._connections)))
        descriptor = connection.sock.fileno()
        self._connections[descriptor] = connection
        self._handlers[descriptor] = lambda: self._read(connection)
        self._epoll.register(descriptor, select.EPOLLIN)

    def _make_room(self, error: OSError) -> None:
        """Out of descriptors or memory: the oldest slow connection goes, or else time passes."""
        if self._connections:
            self._close(next(iter(self._connections)))
            return
        self._log(f"accept: {error.strerror}")
        time.sleep(0.01)  # not ours to free: the queue waits in the kernel, and so must we

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(connection.sock.fileno())
        elif connection.then != "drain":
            connection.received += data
            self._held += len(data)
            answered = connection.answered
            answer = connection.converse(connection.received, connection.client, answered)
            if answer is not None:
                self._continue(connection, answer)

    def _continue(self, connection: _Connection, answer: ResponderAnswer | Later) -> None:
        connection.answered = True
        if isinstance(answer, Later):
            answer.begin(lambda data: self._finish(connection, data))
            return
        connection.pending, connection.then = answer
        self._write(connection)

    def _finish(self, connection: _Connection, data: bytes) -> None:
        """Send the answer that somebody else has given, if the client is still there."""
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
        if connection is not None:  # else it is a listening socket, which stays
            del self._handlers[descriptor]
            self._held -= len(connection.received)
            connection.sock.close()

    def _log(self, line: str) -> None:
        """Say it, once: what goes wrong for one client goes wrong for thousands."""
        if line not in self._logged and len(self._logged) < _LOG_LINES:
            self._logged.add(line)
            print(f"responder: {line}", file=sys.stderr, flush=True)


def _sent(sock: socket.socket, data: bytes) -> int:
    """Send at once what can be; how many bytes are done with, all of them if nobody is there."""
    try:
        return sock.send(data, socket.MSG_DONTWAIT) if data else 0
    except BlockingIOError:
        return 0
    except OSError:
        return len(data)


def _echo(sock: socket.socket, echoed: EchoDatagram, fragments: list[bool]) -> None:
    """Answer one datagram from the very address it was sent to; what cannot be sent is lost."""
    try:
        data, ancillary, _, sender = sock.recvmsg(_CHUNK, _PKTINFO_SPACE)
    except OSError:  # nothing there after all, or an earlier answer found nobody
        return
    answer = echoed(data, b"%s:%d" % (sender[0].encode(), sender[1]))
    if answer is None:
        return
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
