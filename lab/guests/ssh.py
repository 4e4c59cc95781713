"""A shell on a machine over SSH: one transport, many channels, used by many threads."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.guests.connection import Connection
from lab.guests.conversation import Lines, converse
from lab.guests.door import Door, way
from lab.guests.files import Files
from lab.guests.forward import forwarded
from lab.guests.identity import KeyFileError
from lab.guests.lifeline import as_root, held
from lab.guests.link import HostKeyError
from lab.guests.session import Request, SessionEnds, request
from lab.guests.shell import Completed, Reach

ROOT = "root"
TRY_SECONDS = 30.0
"""The longest that one try to log in may take while a machine is waited for."""
WHOLE_SECONDS = 1.0
"""A try that the end of the wait cuts off sooner says nothing; what the one before met does."""
AGAIN_SECONDS = 0.25
"""Between two such tries."""
ATTACH_SECONDS = 30.0
"""For connecting before a terminal is lent."""
_SHOWN = 120
_WELL = "it takes commands"
_SUDO = re.compile(r"sudo: a password is required|sudo: (command )?not found")


class SshShell:
    """A :class:`~lab.guests.shell.GuestShell` over SSH, always acting as root.

    Another user than root gets there by ``sudo -n``. The connection is made when it is first
    used, and once more when it has died; a command that was under way is never run again.

    Parameters
    ----------
    reach
        The guest, or the doors on the way to any machine, its own last.

    """

    def __init__(self, reach: Reach | tuple[Door, ...]) -> None:
        self._way = way(reach) if isinstance(reach, Reach) else reach
        self._door = self._way[-1]
        self._become = self._door.user != ROOT
        self._connection = Connection(self._way)

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run a command to its end; see :class:`~lab.guests.shell.GuestShell`.

        At the deadline it is killed, with its process group; so it is when the connection
        breaks, as soon as the machine's sshd takes note of it.
        """
        out = bytearray()
        code, err = self._run(command, deadline, stdin, out.extend)
        return Completed(code, out.decode(errors="replace"), err)

    def stream(
        self,
        command: Sequence[str],
        deadline: Deadline,
        heard: Callable[[bytes], None],
        stdin: bytes = b"",
    ) -> Completed:
        """As :meth:`run`; each line is told with its newline, the last perhaps without."""
        lines = Lines(heard)
        code, err = self._run(command, deadline, stdin, lines)
        lines.end()
        return Completed(code, "", err)

    def put(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:
        """Write a file, whole or not at all; ``mode`` as in chmod(2). A link is replaced."""
        doing = f"writing '{path}' on '{self._door.name}'"
        with self._connection.session(doing, deadline) as (link, channel):
            Files(doing, link, channel, deadline, self._become).put(content, path, mode)

    def get(self, path: str, deadline: Deadline) -> bytes:
        """Read a file."""
        doing = f"reading '{path}' of '{self._door.name}'"
        with self._connection.session(doing, deadline) as (link, channel):
            return Files(doing, link, channel, deadline, self._become).get(path)

    def wait(self, deadline: Deadline) -> None:
        """Wait until the machine takes a command.

        Raises
        ------
        DeadlineError
            With what the last try has met.
        HostKeyError, KeyFileError
            At once.

        """
        met = ""

        def look() -> str:
            nonlocal met
            own = Deadline(min(deadline.left(), TRY_SECONDS))
            found = self._try(own)
            if not met or own.left() > 0.0 or own.seconds >= WHOLE_SECONDS:
                met = found
            return met

        deadline.wait(
            f"waiting for '{self._door.name}' ({self._door.address}) to take a command",
            look,
            until=lambda found: found == _WELL,
            every=AGAIN_SECONDS,
            cure="look at what its console says",
        )

    def attach(self, command: Sequence[str]) -> int:
        """Run a command with this terminal as its own; an empty one is a login shell.

        Where there is no terminal, the three streams are passed on as they are.
        """
        from lab.guests.terminal import lend, own_terminal  # noqa: PLC0415  slow, and rarely used

        doing = f"running '{_shown(command) or 'a shell'}' on '{self._door.name}'"
        deadline = Deadline(ATTACH_SECONDS)
        link, channel = self._connection.opened(doing, deadline)
        try:
            wanted = Request(line=self._attached(command), terminal=own_terminal())
            request(doing, link, channel, wanted, deadline)
            return lend(SessionEnds(doing, link, channel), channel, raw=wanted.terminal is not None)
        finally:
            link.done(channel)

    def forward(self, address: tuple[str, int], seconds: float) -> AbstractContextManager[int]:
        """A port of this machine that leads to an address as the guest sees it.

        Parameters
        ----------
        address
            Host and port; ``("127.0.0.1", 6443)`` is the guest's own.
        seconds
            For each connection to be led on.

        """
        doing = f"reaching {address[0]} port {address[1]} through '{self._door.name}'"
        return forwarded(lambda: self._connection.dial(doing, address, Deadline(seconds)))

    def close(self) -> None:
        """Give the connection up. What uses it ends with LostError; the next use connects."""
        self._connection.close()

    def _attached(self, command: Sequence[str]) -> str | None:
        if command:
            return shlex.join(as_root(command, become=self._become))
        return "sudo -n -i" if self._become else None

    def _run(
        self,
        command: Sequence[str],
        deadline: Deadline,
        stdin: bytes,
        out: Callable[[bytes], object],
    ) -> tuple[int, str]:
        doing = f"running '{_shown(command)}' on '{self._door.name}'"
        line = shlex.join(held(command, len(stdin), become=self._become))
        err = bytearray()

        def hear(said: bytes, complained: bytes) -> None:
            out(said)
            err.extend(complained)

        with self._connection.session(doing, deadline) as (link, channel):
            request(doing, link, channel, Request(line=line), deadline)
            ends = SessionEnds(doing, link, channel)
            code = converse(doing, ends, stdin, deadline, hear)
        said = err.decode(errors="replace")
        if self._become and code and _SUDO.search(said):
            raise BrokenError(
                doing,
                f"user '{self._door.user}' may not become root there: {said.strip()}",
                f"allow it: '{self._door.user} ALL=(ALL) NOPASSWD: ALL' in /etc/sudoers.d, "
                "or log in as root",
            )
        return code, said

    def _try(self, deadline: Deadline) -> str:
        """What one try to run a command has met, in words."""
        try:
            done = self.run(("true",), deadline)
        except (HostKeyError, KeyFileError):
            raise
        except BrokenError as error:
            return error.happened
        return f"'true' ended with {done.code}: {done.stderr.strip()}" if done.code else _WELL


def _shown(command: Sequence[str]) -> str:
    line = shlex.join(command)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
