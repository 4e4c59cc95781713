"""One SSH transport that is let in: channels on it, and its end."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.guests.door import Door

if TYPE_CHECKING:
    import paramiko

SESSIONS = 8
"""Sessions at once on one transport; OpenSSH allows 10 (MaxSessions)."""
_CLOSE_SECONDS = 5.0
_ENDING_SECONDS = 1.0
"""A connection that breaks is over that soon after its channels are."""


class UnreachableError(BrokenError):
    """The machine did not let us in this time; ``happened`` says how far it went."""


class HostKeyError(BrokenError):
    """The machine shows another key than it must. Trying again is no cure."""


class LostError(BrokenError):
    """The connection was there, and is no more."""


@dataclass
class Link:
    """A transport that is let in, and the room that it has for sessions."""

    door: Door
    transport: paramiko.Transport
    _room: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(SESSIONS)
    )

    def alive(self) -> bool:
        """Whether the connection is still there, as far as is known."""
        return self.transport.is_active()

    def ends(self) -> bool:
        """Whether the connection is gone, or goes now: it closes its channels before it says so."""
        self.transport.join(_ENDING_SECONDS)
        return not self.alive()

    def open(self, doing: str, deadline: Deadline) -> paramiko.Channel:
        """A session channel, to be handed to :meth:`done`; waits where too many are open.

        Raises
        ------
        LostError
            When the connection turns out to be dead. Nothing has been run.
        DeadlineError
            When none was to be had in time.

        """
        if not self._room.acquire(timeout=patience(deadline)):
            raise DeadlineError(
                doing, f"{SESSIONS} other commands held the connection for {deadline.seconds:g} s"
            )
        try:
            return self.channel(doing, "session", None, deadline)
        except BaseException:
            self._room.release()
            raise

    def done(self, channel: paramiko.Channel) -> None:
        """Close a session channel; what runs on it and is on its lifeline ends."""
        try:
            channel.close()
        finally:
            self._room.release()

    def channel(
        self, doing: str, kind: str, address: tuple[str, int] | None, deadline: Deadline
    ) -> paramiko.Channel:
        """A new channel: ``"session"``, or ``"direct-tcpip"`` to an address behind the door.

        To close it is no error where the connection has just broken: its channels are closed, too.

        Raises
        ------
        LostError, DeadlineError
            As :meth:`open` does.
        UnreachableError
            When the other side refuses it.

        """
        from paramiko import ChannelException, SSHException  # noqa: PLC0415  slow to import

        source = ("127.0.0.1", 0) if address else None
        try:
            channel = self.transport.open_channel(
                kind, address, source, timeout=min(patience(deadline), 3600.0)
            )
        except ChannelException as error:
            where = f"to {address[0]} port {address[1]} " if address else ""
            raise UnreachableError(
                doing,
                f"{self.door.name} opens no channel {where}({error.text.lower()})",
                "see that the machine runs, and what its sshd allows (MaxSessions, "
                "AllowTcpForwarding)",
            ) from error
        except (SSHException, EOFError, OSError) as error:
            if not self.ends() and deadline.left() <= 0.0:
                raise DeadlineError(
                    doing, f"'{self.door.name}' opened no channel within {deadline.seconds:g} s"
                ) from error
            raise self.lost(doing) from error
        close = channel.close

        def quietly() -> None:  # a transport in this channel closes it in a thread of paramiko's
            with suppress(SSHException, EOFError, OSError):
                close()

        channel.close = quietly  # type: ignore[method-assign]
        return channel

    def lost(self, doing: str) -> LostError:
        """The error for what was under way when the connection broke."""
        found = self.transport.get_exception()
        words = f" ({found})" if found and str(found) else ""
        return LostError(
            doing,
            f"the connection to '{self.door.name}' ({self.door.address}) was lost{words}",
            "see whether the machine still runs, then repeat",
        )

    def close(self) -> None:
        """End the transport and its thread. Safe to repeat."""
        end(self.transport)


def end(transport: paramiko.Transport) -> None:
    """Close a transport, and wait for its thread."""
    transport.close()
    transport.sock.close()
    transport.packetizer.complete_handshake()  # else its timer outlives a handshake that failed
    if transport.is_alive():
        transport.join(_CLOSE_SECONDS)


def patience(deadline: Deadline) -> float:
    """Seconds left, as locks and sockets take them: never infinite, never zero."""
    left = deadline.left()
    return threading.TIMEOUT_MAX if math.isinf(left) else max(left, 0.001)


@contextmanager
def watched(deadline: Deadline, give_up: Callable[[], None]) -> Iterator[None]:
    """Give up at the deadline even if the block is inside a call that knows of none."""
    if math.isinf(deadline.left()):
        yield
        return
    timer = threading.Timer(deadline.left(), lambda: _quietly(give_up))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join(_CLOSE_SECONDS)


def _quietly(give_up: Callable[[], None]) -> None:
    with suppress(Exception):  # whoever waits in the block is told by its own call
        give_up()
