"""A port of this machine that leads, inside a guest's SSH connection, to an address it can reach.

As ``ssh -L`` does. It listens on the loopback address alone, and only inside the ``with`` block.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import paramiko

_HERE = "127.0.0.1"
_PIECE = 65_536
_END_SECONDS = 5.0

Dial = Callable[[], "paramiko.Channel"]
"""Opens a channel to the address."""


@contextmanager
def forwarded(dial: Dial) -> Iterator[int]:
    """A local port for the block; each connection to it gets a channel of its own.

    One that cannot be led on is closed at once: whoever connected is told by that.
    """
    with socket.create_server((_HERE, 0)) as server:
        carriers = _Carriers(dial)
        acceptor = threading.Thread(target=_accept, args=(server, carriers), daemon=True)
        acceptor.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            acceptor.join(_END_SECONDS)
            carriers.end()


def _accept(server: socket.socket, carriers: _Carriers) -> None:
    with suppress(OSError):
        while True:
            carriers.carry(server.accept()[0])


class _Carriers:
    """The connections that are carried now."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._lock = threading.Lock()
        self._ends: set[Callable[[], None]] = set()
        self._threads: list[threading.Thread] = []
        self._over = False

    def carry(self, near: socket.socket) -> None:
        """Carry one connection, on threads of its own."""
        thread = threading.Thread(target=self._carry, args=(near,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def end(self) -> None:
        """End all of them, and wait for their threads."""
        with self._lock:
            self._over = True
            ends = tuple(self._ends)
        for end in ends:
            end()
        for thread in self._threads:
            thread.join(_END_SECONDS)

    def _carry(self, near: socket.socket) -> None:
        with near:
            try:
                far = self._dial()
            except Exception:  # noqa: BLE001  said by closing: the caller of the port sees it
                return

            def end() -> None:
                far.close()
                with suppress(OSError):
                    near.shutdown(socket.SHUT_RDWR)

            with self._lock:
                self._ends.add(end)
            if self._over:
                end()
            back = threading.Thread(target=_pump, args=(far.recv, near.sendall, end), daemon=True)
            back.start()
            _pump(near.recv, far.sendall, far.shutdown_write)
            back.join()
            end()
            with self._lock:
                self._ends.discard(end)


def _pump(
    take: Callable[[int], bytes], give: Callable[[bytes], object], ended: Callable[[], object]
) -> None:
    """Carry bytes one way until there are no more."""
    with suppress(OSError, EOFError):
        while piece := take(_PIECE):
            give(piece)
    with suppress(OSError, EOFError):
        ended()
