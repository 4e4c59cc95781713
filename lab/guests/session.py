"""One session channel as the ends of a command's streams, and what is asked of it first."""

from __future__ import annotations

import select
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.guests.link import Link, watched

if TYPE_CHECKING:
    import paramiko

_PIECE = 1 << 16


class SessionEnds:
    """A command on a channel; see :class:`~lab.guests.conversation.Ends`."""

    def __init__(self, doing: str, link: Link, channel: paramiko.Channel) -> None:
        self._doing, self._link, self._channel = doing, link, channel
        channel.settimeout(0.0)
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)

    def give(self, data: memoryview) -> int:
        """Send what the channel's window takes."""
        if not self._channel.send_ready():
            return 0
        try:
            sent = self._channel.send(bytes(data[:_PIECE]))
        except TimeoutError:
            return 0
        except (OSError, EOFError):  # it reads no more; its end is told by its exit code
            sent = 0
        return sent or len(data)

    def take(self) -> tuple[bytes, bytes]:
        """What has come."""
        channel = self._channel
        out = channel.recv(_PIECE) if channel.recv_ready() else b""
        err = channel.recv_stderr(_PIECE) if channel.recv_stderr_ready() else b""
        return out, err

    def closed(self) -> bool:
        """Whether the other side has sent all."""
        return bool(self._channel.eof_received) or self._channel.closed

    def code(self) -> int | None:
        """The exit code that the other side has told."""
        if not self._channel.exit_status_ready():
            return None
        code = self._channel.exit_status
        if code >= 0:
            return code
        if self._link.ends():
            raise self._link.lost(self._doing)
        raise BrokenError(
            self._doing, "it ended without an exit code: a signal has ended it, or its sshd", ""
        )

    def wait(self, seconds: float) -> None:
        """Wait for output, or after all of it for the exit code."""
        if self.closed():
            self._channel.status_event.wait(seconds)
        else:
            self._poll.poll(seconds * 1000)


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal as the other side is told of it; sizes in characters."""

    kind: str
    """``$TERM``."""
    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Request:
    """What is to run on a channel."""

    subsystem: str | None = None
    """Of the SSH server, unless there is a command line."""
    line: str | None = None
    """None for a login shell, if no subsystem is wanted either."""
    terminal: Terminal | None = None


def request(
    doing: str, link: Link, channel: paramiko.Channel, wanted: Request, deadline: Deadline
) -> None:
    """Ask the other side to run it.

    Raises
    ------
    DeadlineError
        When it has not answered in time.
    LostError, BrokenError
        When the connection broke, or it refused.

    """
    from paramiko import SSHException  # noqa: PLC0415  slow to import

    try:
        with watched(deadline, channel.close):
            _ask(channel, wanted)
    except (SSHException, EOFError, OSError) as error:
        if not link.alive():
            raise link.lost(doing) from error
        if deadline.left() == 0.0:
            words = f"'{link.door.name}' has not started it within {deadline.seconds:g} s"
            raise DeadlineError(doing, words) from error
        raise BrokenError(doing, f"'{link.door.name}' refused to start it ({error})") from error


def _ask(channel: paramiko.Channel, wanted: Request) -> None:
    if wanted.terminal:
        seen = wanted.terminal
        channel.get_pty(seen.kind, seen.columns, seen.rows)
    if wanted.line is not None:
        channel.exec_command(wanted.line)
    elif wanted.subsystem is not None:
        channel.invoke_subsystem(wanted.subsystem)
    else:
        channel.invoke_shell()
