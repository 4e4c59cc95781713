"""A connection of which each piece comes before a deadline, and that can be broken off."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Self

from lab._deadline import Deadline
from lab.guests.sockets import reached

_AT_ONCE = struct.pack("ii", 1, 0)
"""``SO_LINGER`` with no time for what is unsent: the connection is reset when it is closed."""


class TimedConnection:
    """TCP, or TLS over it, to a server; a server that drips keeps nobody beyond the deadline.

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
        self._socket = reached(doing, host, port, deadline, "")
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
