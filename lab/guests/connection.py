"""The way to a machine over SSH: one transport, made when first used, and its sessions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.guests.connecting import connect
from lab.guests.door import Door
from lab.guests.jumps import JUMPS
from lab.guests.link import Link, LostError, patience, watched

if TYPE_CHECKING:
    import paramiko

_STUCK_SECONDS = 5.0
"""How long after its deadline a call may still be inside the library before the whole transport
is given up: by then the peer takes no bytes any more."""


class Connection:
    """A connection that is made when it is first used, and once more when it has died.

    Parameters
    ----------
    way
        The doors to go through, the machine's own last.

    """

    def __init__(self, way: tuple[Door, ...]) -> None:
        self._way = way
        self._lock = threading.Lock()
        self._link: Link | None = None

    @contextmanager
    def session(self, doing: str, deadline: Deadline) -> Iterator[tuple[Link, paramiko.Channel]]:
        """A fresh session for the block, given up if the block overruns its deadline."""
        link, channel = self.opened(doing, deadline)
        try:
            with watched(Deadline(deadline.left() + _STUCK_SECONDS), link.transport.close):
                yield link, channel
        finally:
            link.done(channel)

    def opened(self, doing: str, deadline: Deadline) -> tuple[Link, paramiko.Channel]:
        """A fresh session; a connection that proves dead before anything ran is made anew, once.

        So is the one to the host that is gone through: both may have died unseen.

        Raises
        ------
        BrokenError
            As :func:`~lab.guests.connecting.connect` does.

        """
        for _ in self._way:
            with suppress(LostError):
                link = self._alive(doing, deadline)
                return link, link.open(doing, deadline)
        link = self._alive(doing, deadline)
        return link, link.open(doing, deadline)

    def dial(self, doing: str, address: tuple[str, int], deadline: Deadline) -> paramiko.Channel:
        """A channel to an address that the machine can reach; the caller closes it.

        Raises
        ------
        BrokenError
            As :meth:`~lab.guests.link.Link.channel` does, and as for a session.

        """
        for _ in self._way:
            with suppress(LostError):
                link = self._alive(doing, deadline)
                return link.channel(doing, "direct-tcpip", address, deadline)
        return self._alive(doing, deadline).channel(doing, "direct-tcpip", address, deadline)

    def close(self) -> None:
        """Give the connection up. What uses it ends with LostError; the next use connects."""
        with self._lock:
            self._drop()

    def _alive(self, doing: str, deadline: Deadline) -> Link:
        if not self._lock.acquire(timeout=patience(deadline)):
            words = f"another thread was still connecting after {deadline.seconds:g} s"
            raise DeadlineError(doing, words)
        try:
            if self._link is not None and not self._link.alive():
                self._drop()
            if self._link is None:
                self._link = self._connect(deadline)
            return self._link
        finally:
            self._lock.release()

    def _connect(self, deadline: Deadline) -> Link:
        if len(self._way) == 1:
            return connect(self._way[-1], None, deadline)
        jump = JUMPS.borrow(self._way[0], deadline)
        try:
            return connect(self._way[-1], jump, deadline)
        except BaseException:
            JUMPS.give_back(self._way[0])
            raise

    def _drop(self) -> None:
        if self._link is None:
            return
        self._link.close()
        self._link = None
        if len(self._way) > 1:
            JUMPS.give_back(self._way[0])
