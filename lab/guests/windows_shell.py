r"""A shell on a Windows guest: commands over WinRM, files over SSH.

What commands mean:

- ``run(("C:\\x\\y.exe", "a b"))`` starts that program with those arguments, and nothing on the way
  interprets them; see :mod:`lab.guests.command_line`.
- ``powershell(script)`` runs a script; its exit code is that of the script, of the last program
  that it ran, or 1 where an error ended it.
- Standard error is text, also where PowerShell wrote CLIXML.
- Output is UTF-8, and its lines end as Windows ends them.

Files are written without modes: on Windows the directory's access list says who reads them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.guests import powershell
from lab.guests.clixml import readable
from lab.guests.command_line import started
from lab.guests.connection import Connection
from lab.guests.conversation import Lines
from lab.guests.door import way
from lab.guests.files import Files
from lab.guests.identity import KeyFileError
from lab.guests.link import HostKeyError
from lab.guests.session import Request, SessionEnds, request
from lab.guests.shell import Completed
from lab.guests.ssh import AGAIN_SECONDS, ATTACH_SECONDS
from lab.guests.windows_paths import DIRECTORY, sftp_path
from lab.guests.windows_reach import WindowsReach
from lab.guests.windows_waiting import Tries
from lab.guests.winrm_command import WinrmCommand
from lab.guests.winrm_endpoint import endpoint
from lab.guests.winrm_line import Trunk

_TEMPORARY = f"{DIRECTORY}\\run"
_CLEAN_SECONDS = 10.0
_SHOWN = 120
_NOTHING = ("cmd.exe", "/d", "/c", "exit 0")
_SFTP = "see that sshd_config there has 'Subsystem sftp sftp-server.exe'"


class WindowsShell:
    """A :class:`~lab.guests.shell.GuestShell` on Windows, as its Administrator.

    Connections are made when they are first used, kept, and made anew when they have died; a
    command that may have begun is never begun again. Used by threads.

    Parameters
    ----------
    reach
        The guest.

    Raises
    ------
    UsageError
        When port and certificate do not fit together.

    """

    def __init__(self, reach: WindowsReach) -> None:
        doors = way(reach.ssh)
        self._door = doors[-1]
        self._name = reach.ssh.name
        self._connection = Connection(doors)
        self._trunk = Trunk(endpoint(reach), doors[0] if len(doors) > 1 else None)

    @property
    def name(self) -> str:
        """The machine's, for messages."""
        return self._name

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run a command to its end; see :class:`~lab.guests.shell.GuestShell`.

        At the deadline it is ended, with its shell.
        """
        return self._run(f"running '{_shown(command)}'", command, deadline, stdin)

    def stream(
        self,
        command: Sequence[str],
        deadline: Deadline,
        heard: Callable[[bytes], None],
        stdin: bytes = b"",
    ) -> Completed:
        """As :meth:`run`; each line is told with its newline, the last perhaps without."""
        lines, err = Lines(heard), bytearray()

        def hear(said: bytes, complained: bytes) -> None:
            lines(said)
            err.extend(complained)

        code = self._conducted(f"running '{_shown(command)}'", command, deadline, stdin, hear)
        lines.end()
        return Completed(code, "", readable(err.decode(errors="replace")))

    def powershell(self, script: str, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run a PowerShell script to its end; errors end it, and its exit code is true.

        A long one travels as a file over SSH, and is removed afterwards. It may not begin with
        ``param``.

        Raises
        ------
        BrokenError, DeadlineError
            As :meth:`run` does.

        """
        doing = f"running the script '{_first(script)}'"
        whole = powershell.whole(script)
        if powershell.fits(whole):
            return self._run(doing, powershell.encoded(whole), deadline, stdin)
        path = f"{_TEMPORARY}-{secrets.token_hex(4)}.ps1"
        self.put(powershell.as_file(whole), path, 0o600, deadline)
        try:
            return self._run(doing, powershell.filed(path), deadline, stdin)
        finally:
            self.remove(path)

    def put(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:  # noqa: ARG002  GuestShell has it
        r"""Write a file, ``C:\directory\name``, whole or not at all; it gets no mode."""
        doing = f"writing '{path}' on '{self._name}'"
        place = sftp_path(path)
        with self._connection.session(doing, deadline) as (link, channel):
            files = Files(doing, link, channel, deadline, become=False, cure=_SFTP)
            files.put(content, place, None)

    def get(self, path: str, deadline: Deadline) -> bytes:
        """Read a file."""
        doing = f"reading '{path}' of '{self._name}'"
        place = sftp_path(path)
        with self._connection.session(doing, deadline) as (link, channel):
            return Files(doing, link, channel, deadline, become=False, cure=_SFTP).get(place)

    def remove(self, path: str) -> None:
        """Remove a file of the lab's own, if that can be done now; else it stays."""
        doing = f"removing '{path}' of '{self._name}'"
        deadline = Deadline(_CLEAN_SECONDS)
        try:
            with self._connection.session(doing, deadline) as (link, channel):
                files = Files(doing, link, channel, deadline, become=False, cure=_SFTP)
                files.remove(sftp_path(path))
        except BrokenError:
            return  # the machine may be restarting; the directory is the lab's own

    def wait(self, deadline: Deadline) -> None:
        """Wait until the machine takes a command over WinRM and has SFTP, both let in.

        Raises
        ------
        DeadlineError
            With what the last try has met.
        CertificateError, HostKeyError, KeyFileError
            At once.
        PasswordError
            After :data:`~lab.guests.windows_waiting.REFUSALS` in a row.

        """
        doing = f"waiting for '{self._name}' ({self._door.host}) to take commands and files"
        Tries(self._tried).wait(doing, deadline, AGAIN_SECONDS)

    def attach(self, command: Sequence[str]) -> int:
        """Run a command with this terminal as its own, over SSH; an empty one is a login shell."""
        from lab.guests.terminal import lend, own_terminal  # noqa: PLC0415  slow, and rarely used

        doing = f"running '{_shown(command) or 'a shell'}' on '{self._name}'"
        deadline = Deadline(ATTACH_SECONDS)
        link, channel = self._connection.opened(doing, deadline)
        try:
            wanted = Request(line=_attached(command), terminal=own_terminal())
            request(doing, link, channel, wanted, deadline)
            return lend(SessionEnds(doing, link, channel), channel, raw=wanted.terminal is not None)
        finally:
            link.done(channel)

    def close(self) -> None:
        """Give the connections up. Safe to repeat; the next use connects again."""
        self._trunk.close()
        self._connection.close()

    def _tried(self, deadline: Deadline) -> str:
        """What one try to run a command and to open SFTP has met; empty if both went well."""
        done = self.run(_NOTHING, deadline)
        if done.code:
            return f"WinRM: a command ended with {done.code}: {done.stderr.strip()}"
        doing = f"opening SFTP on '{self._name}'"
        try:
            with self._connection.session(doing, deadline) as (link, channel):
                Files(doing, link, channel, deadline, become=False, cure=_SFTP).look()
        except (HostKeyError, KeyFileError):
            raise
        except BrokenError as error:
            return f"WinRM takes commands; SSH: {error.happened}"
        return ""

    def _run(
        self, doing: str, command: Sequence[str], deadline: Deadline, stdin: bytes
    ) -> Completed:
        out, err = bytearray(), bytearray()

        def hear(said: bytes, complained: bytes) -> None:
            out.extend(said)
            err.extend(complained)

        code = self._conducted(doing, command, deadline, stdin, hear)
        said = readable(err.decode(errors="replace"))
        return Completed(code, out.decode(errors="replace"), said)

    def _conducted(
        self,
        doing: str,
        command: Sequence[str],
        deadline: Deadline,
        stdin: bytes,
        heard: Callable[[bytes, bytes], object],
    ) -> int:
        whole = f"{doing} on '{self._name}'"
        start = started(command)
        self._trunk.enter(whole, deadline)
        try:
            return WinrmCommand(self._trunk, whole, deadline, heard).run(start, stdin)
        finally:
            self._trunk.leave()


def _attached(command: Sequence[str]) -> str | None:
    """For the shell that sshd starts, whichever it is: PowerShell, with an encoded script."""
    if not command:
        return None
    start = started(command)
    script = powershell.interactive(start.program.strip('"'), start.arguments)
    return " ".join(powershell.encoded(script))


def _shown(command: Sequence[str]) -> str:
    line = " ".join(command)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def _first(script: str) -> str:
    line = next((line.strip() for line in script.splitlines() if line.strip()), "")
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
