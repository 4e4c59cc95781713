"""TCP to a machine: connected, or said how far that went."""

from __future__ import annotations

import socket

from lab._deadline import Deadline
from lab.guests.link import UnreachableError, patience

CONNECT_SECONDS = 10.0
"""For the TCP connection alone, so that one lost SYN does not use up a long deadline."""
DEAD_SECONDS = 45
"""A connection whose packets nobody acknowledges for so long is given up."""


def reached(doing: str, host: str, port: int, deadline: Deadline, cure: str) -> socket.socket:
    """A connection to that port.

    Raises
    ------
    UnreachableError
        With what was met: ``"connection refused"``, ``"no answer to the connection"``.

    """
    try:
        sock = socket.create_connection(
            (host, port), timeout=min(patience(deadline), CONNECT_SECONDS)
        )
    except OSError as error:
        raise UnreachableError(doing, _words(error), cure) from error
    # Data that nobody acknowledges means a dead peer, long before the kernel's own patience ends.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_SECONDS * 1000)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _words(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer to the connection"
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    return (error.strerror or str(error)).lower()
