"""The input of a command over WinRM, given while its output is received."""

from __future__ import annotations

import threading
from functools import partial

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.guests.winrm_errors import FaultError, QuietError
from lab.guests.winrm_line import Line, Protocol, Trunk

PIECE = 65_536
"""Bytes of input in one message: 88 kB of it, and the service takes 150 kB and more
(MaxEnvelopeSizekb)."""
SEND_SECONDS = 1_800
"""How long the service may wait until the command reads a piece (MaxTimeoutms)."""
_END_SECONDS = 5.0


class Feeder:
    """Gives a command its input, on a connection of its own: it may talk before it listens."""

    def __init__(self, trunk: Trunk, doing: str, names: tuple[str, str]) -> None:
        self._line: Line = trunk.fresh()
        self._doing, self._names = doing, names
        self.lost = ""
        """Why it could not go on; empty as long as it can, or where nobody reads it any more."""
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, content: bytes, deadline: Deadline) -> None:
        """Begin, in a thread."""
        self._thread = threading.Thread(
            target=self._feed, args=(content, deadline), name="winrm-input", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Give no more."""
        self._over.set()
        self._line.cut()
        if self._thread:
            self._thread.join(_END_SECONDS)
        self._line.close()

    def _feed(self, content: bytes, deadline: Deadline) -> None:
        """Give piece after piece, none of them twice.

        Where one is refused the command reads no more, and its end is told by its exit code.
        """
        shell, command = self._names
        view = memoryview(content)
        while view and not self._over.is_set():
            piece, view = bytes(view[:PIECE]), view[PIECE:]
            give = partial(_give, shell, command, piece, end=not view)
            try:
                self._line.ask(self._doing, deadline, give, wait=SEND_SECONDS)
            except FaultError:
                return
            except QuietError:
                self.lost = "the command did not read it in time"
                return
            except BrokenError as error:
                self.lost = error.happened
                return


def _give(shell: str, command: str, piece: bytes, client: Protocol, *, end: bool) -> None:
    client.send_command_input(shell, command, piece, end=end)
