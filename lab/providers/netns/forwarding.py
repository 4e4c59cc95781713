"""Questions that another name server is asked, as CoreDNS forwards what is not the cluster's.

One socket leads to that server, and the id of a question tells whose answer comes back. Nobody is
waited for: who gets no answer in time has stopped waiting by himself.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from lab.providers.netns import dnswire

WAITING_LIMIT = 16_384
"""Questions without an answer that are kept; a quarter of all ids. The oldest gives way."""
_IDS = 1 << 16
_LONGEST = 65_535

Then = Callable[[bytes], None]
"""What is done with an answer."""


class Forwarder:
    """The way to one other name server.

    Parameters
    ----------
    sock
        A datagram socket that is connected to it and does not block.

    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._waiting: dict[int, tuple[bytes, Then]] = {}
        self._next = 0

    def ask(self, question: bytes, then: Then) -> None:
        """Pass a question on; ``then`` gets its answer, if one comes."""
        while len(self._waiting) >= WAITING_LIMIT:
            del self._waiting[next(iter(self._waiting))]
        while self._next in self._waiting:
            self._next = (self._next + 1) % _IDS
        number, self._next = self._next, (self._next + 1) % _IDS
        self._waiting[number] = question, then
        with suppress(OSError):  # lost like any other packet; a refusal is heard of at the next
            self.sock.send(dnswire.renumbered(question, number))

    def hear(self) -> None:
        """Take what has come from the other server, and hand it on."""
        try:
            wire = self.sock.recv(_LONGEST)
        except BlockingIOError:
            return
        except OSError:  # nobody listens there: whoever waits is told
            self._fail()
            return
        question, then = self._waiting.pop(dnswire.number_of(wire), (b"", None))
        if then is not None:
            then(dnswire.renumbered(wire, dnswire.number_of(question)))

    def _fail(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for question, then in waiting.values():
            then(dnswire.failed(question))
