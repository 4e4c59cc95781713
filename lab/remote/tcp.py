"""TCP, and TLS over it, to a server: every step ends at the deadline."""

from __future__ import annotations

import math
import socket
import ssl
import struct
import threading
from typing import Self

from lab._deadline import Deadline
from lab.remote.shell import UnreachableError

_AT_ONCE = struct.pack("ii", 1, 0)
"""``SO_LINGER`` with no time for what is unsent: the connection is reset when it is closed."""
CONNECT_SECONDS = 10.0
"""For the TCP connection alone, so that one lost SYN does not use up a long deadline."""
DEAD_SECONDS = 45
"""How long sent data may stay unacknowledged before the connection is dropped."""


def connect_tcp(doing: str, host: str, port: int, deadline: Deadline, hint: str) -> socket.socket:
    """Connect to a port.

    Raises
    ------
    UnreachableError
        With the outcome: ``"connection refused"``, ``"no answer to the connection"``.

    """
    try:
        sock = socket.create_connection(
            (host, port), timeout=min(timeout_of(deadline), CONNECT_SECONDS)
        )
    except OSError as error:
        raise UnreachableError(doing, _words(error), hint) from error
    # Data that stays unacknowledged means a dead peer, long before the kernel's own limit.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_SECONDS * 1000)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer to the connection"
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    return (error.strerror or str(error)).lower()


def timeout_of(deadline: Deadline) -> float:
    """Seconds left, as locks and sockets take them: never infinite, never zero."""
    left = deadline.left()
    return threading.TIMEOUT_MAX if math.isinf(left) else max(left, 0.001)


class TimedConnection:
    """TCP, or TLS over it, to a server; a slow server does not extend the deadline.

    What sends and receives raises TimeoutError once the deadline is over, and OSError as sockets
    do. It is a context manager: left with an exception, the connection is broken off.

    Parameters
    ----------
    tls
        With the certificates; None for bare TCP.
    name
        What the server's certificate must be for; the host itself if None.

    """

    def __init__(  # noqa: PLR0913, PLR0917  what a connection is to
        self,
        doing: str,
        host: str,
        port: int,
        deadline: Deadline,
        tls: ssl.SSLContext | None = None,
        name: str | None = None,
    ) -> None:
        self._deadline = deadline
        self._socket = connect_tcp(doing, host, port, deadline, "")
        if tls is None:
            return
        try:
            self._take_time()
            self._socket = tls.wrap_socket(self._socket, server_hostname=name or host)
        except BaseException:
            self.break_off()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._socket.close()
        else:
            self.break_off()

    def recv(self, size: int) -> bytes:
        """What has come, at most so many bytes; none when the server has ended the connection."""
        self._take_time()
        return self._socket.recv(size)

    def send(self, data: bytes) -> int:
        """Send some of it; how many bytes that was."""
        self._take_time()
        return self._socket.send(data)

    def gettimeout(self) -> float | None:
        """Seconds that the last piece had."""
        return self._socket.gettimeout()

    def close(self) -> None:
        """End the connection; what has been sent still arrives."""
        self._socket.close()

    def break_off(self) -> None:
        """End the connection at both ends, now.

        In order it would not be sure: a server whose window is full when the connection is shut
        down here waits for a window that never opens, with its socket and whatever runs behind it
        (seen for 107 s on Linux 6, where what had come was read before the close).
        """
        if self._socket.fileno() >= 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self._socket.close()

    def _take_time(self) -> None:
        left = self._deadline.left()
        if not left:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(left)
