r"""A shell on a Windows machine: commands over WinRM, files over SSH.

What commands mean:

- ``run(("C:\\x\\y.exe", "a b"))`` starts that program with those arguments, and nothing on the way
  interprets them; see :mod:`lab.remote.windows_commands`.
- ``powershell(script)`` runs a script; its exit code is that of the script, of the last program
  that it ran, or 1 where an error ended it.
- Standard error is text, also where PowerShell wrote CLIXML.
- Output is UTF-8, and its lines end as Windows ends them.

Files are written without modes: on Windows the directory's access list says who reads them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress

from lab._deadline import Deadline
from lab._errors import BrokenError, UsageError
from lab.remote.command import CommandShell, shortened
from lab.remote.connection import Connection
from lab.remote.shell import Completed, HostKeyError, KeyFileError, WindowsReach
from lab.remote.ssh import AGAIN_SECONDS, SftpFiles, attach, sftp, wait_until_ready
from lab.remote.transport import servers_to
from lab.remote.windows_commands import (
    encoded_command,
    file_command,
    fits_command_line,
    interactive_script,
    readable,
    script_file,
    started,
    wrap_script,
)
from lab.remote.winrm import WinrmCommand
from lab.remote.winrm_connection import CertificateError, PasswordError, WinrmPool

DIRECTORY = "C:\\hybridlab"
"""What the lab sends is kept there; the machine's first script makes it."""
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_NEVER = re.compile(r'[<>"|?*\x00-\x1f]|:')


def sftp_path(path: str) -> str:
    """The path for SFTP.

    Raises
    ------
    UsageError
        When it does not begin with a drive, or holds what no Windows path can.

    """
    if not _DRIVE.match(path):
        raise UsageError(
            f"naming the file '{path}' on Windows",
            "it does not begin with a drive",
            "write it as C:\\directory\\file",
        )
    found = _NEVER.search(path[2:])
    if found:
        raise UsageError(
            f"naming the file '{path}' on Windows", f"no name there can hold {found[0]!r}"
        )
    return "/" + path.replace("\\", "/")


REFUSALS = 3
"""Refused passwords in a row that end a wait: while a machine starts, one may be refused for a
passing reason. Windows locks Administrator after 10 within 10 minutes (Microsoft KB5020282)."""
REFUSED_SECONDS = 15.0
"""Between them."""
_TEMPORARY = f"{DIRECTORY}\\run"
_CLEAN_SECONDS = 10.0
_NOTHING = ("cmd.exe", "/d", "/c", "exit 0")
_SFTP = "see that sshd_config there has 'Subsystem sftp sftp-server.exe'"


class WindowsShell(CommandShell):
    """A :class:`~lab.remote.shell.Shell` on Windows, as its Administrator.

    Connections are made when they are first used, kept, and replaced when they have died; a
    command that may have begun is never begun again. Used by threads.

    Parameters
    ----------
    reach
        The machine.

    Raises
    ------
    UsageError
        When the certificate's digest is not one.

    """

    def __init__(self, reach: WindowsReach) -> None:
        servers = servers_to(reach.ssh)
        self._host = reach.ssh.address
        self._name = reach.ssh.name
        self._connection = Connection(servers)
        self._pool = WinrmPool(reach, servers[0] if len(servers) > 1 else None)

    @property
    def name(self) -> str:
        """The machine's, for messages."""
        return self._name

    def powershell(self, script: str, deadline: Deadline, stdin: bytes = b"") -> Completed:
        """Run a PowerShell script to its end; errors end it, and its exit code is true.

        A long one travels as a file over SSH, and is removed afterwards. It may not begin with
        ``param``.

        Raises
        ------
        BrokenError, DeadlineError
            As :meth:`run` does.

        """
        first = next((line.strip() for line in script.splitlines() if line.strip()), "")
        doing = f"running the script '{shortened(first)}' on '{self._name}'"
        script = wrap_script(script)
        out = bytearray()
        if fits_command_line(script):
            command = encoded_command(script)
            code, err = self._winrm(doing, command, deadline, stdin, out.extend)
        else:
            path = f"{_TEMPORARY}-{secrets.token_hex(4)}.ps1"
            self.put(script_file(script), path, 0o600, deadline)
            try:
                code, err = self._winrm(doing, file_command(path), deadline, stdin, out.extend)
            finally:
                self.remove(path)
        return Completed(code, out.decode(errors="replace"), err)

    def put(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:  # noqa: ARG002  Shell has it
        r"""Write a file, ``C:\directory\name``, whole or not at all; it gets no mode."""
        place = sftp_path(path)
        with self._files(f"writing '{path}' on '{self._name}'", deadline) as files:
            files.put(content, place, None)

    def get(self, path: str, deadline: Deadline) -> bytes:
        """Read a file."""
        place = sftp_path(path)
        with self._files(f"reading '{path}' of '{self._name}'", deadline) as files:
            return files.get(place)

    def remove(self, path: str) -> None:
        """Remove one of the lab's own files if that is possible now; otherwise it stays."""
        doing, deadline = f"removing '{path}' of '{self._name}'", Deadline(_CLEAN_SECONDS)
        # The machine may be restarting, and only the lab reads that directory.
        with suppress(BrokenError), self._files(doing, deadline) as files:
            files.remove(sftp_path(path))

    def wait(self, deadline: Deadline) -> None:
        """Wait until the machine takes a command over WinRM and serves files over SFTP.

        Raises
        ------
        DeadlineError
            With the outcome of the last attempt.
        CertificateError, HostKeyError, KeyFileError
            At once.
        PasswordError
            After :data:`REFUSALS` in a row.

        """
        doing = f"waiting for '{self._name}' ({self._host}) to take commands and files"
        wait_until_ready(doing, Attempts(self._attempt), deadline, AGAIN_SECONDS)

    def attach(self, command: Sequence[str]) -> int:
        """Run a command with this terminal as its own, over SSH; an empty one is a login shell."""
        line = None
        if command:
            # PowerShell with an encoded script: the same for whichever shell sshd starts.
            start = started(command)
            script = interactive_script(start.program.strip('"'), start.arguments)
            line = " ".join(encoded_command(script))
        return attach(self._connection, self._name, " ".join(command), line)

    def close(self) -> None:
        """Close the connections. Safe to repeat; the next use connects again."""
        self._pool.close()
        self._connection.close()

    def _files(self, doing: str, deadline: Deadline) -> AbstractContextManager[SftpFiles]:
        return sftp(self._connection, doing, deadline, become=False, hint=_SFTP)

    def _attempt(self, deadline: Deadline) -> str:
        """Why a command cannot be run, or SFTP not be used, now; empty if both can."""
        done = self.run(_NOTHING, deadline)
        if done.code:
            return f"WinRM: a command ended with {done.code}: {done.stderr.strip()}"
        try:
            with self._files(f"opening SFTP on '{self._name}'", deadline) as files:
                files.look()
        except (HostKeyError, KeyFileError):
            raise
        except BrokenError as error:
            return f"WinRM takes commands; SSH: {error.happened}"
        return ""

    def _execute(
        self,
        command: Sequence[str],
        deadline: Deadline,
        stdin: bytes,
        out: Callable[[bytes], object],
    ) -> tuple[int, str]:
        doing = f"running '{shortened(' '.join(command))}' on '{self._name}'"
        return self._winrm(doing, command, deadline, stdin, out)

    def _winrm(
        self,
        doing: str,
        command: Sequence[str],
        deadline: Deadline,
        stdin: bytes,
        out: Callable[[bytes], object],
    ) -> tuple[int, str]:
        err = bytearray()

        def hear(said: bytes, complained: bytes) -> None:
            out(said)
            err.extend(complained)

        start = started(command)
        self._pool.enter(doing, deadline)
        try:
            code = WinrmCommand(self._pool, doing, deadline, hear).run(start, stdin)
        finally:
            self._pool.leave()
        return code, readable(err.decode(errors="replace"))


class Attempts:
    """Attempts at a Windows machine that never lock its Administrator out.

    Parameters
    ----------
    attempt
        Says why it failed, or nothing; within a deadline of its own.

    """

    def __init__(self, attempt: Callable[[Deadline], str]) -> None:
        self._attempt = attempt
        self._refused = 0
        self._pause = Deadline(0)
        self._last = ""

    def __call__(self, deadline: Deadline) -> str:
        """Make one attempt, or repeat the last outcome soon after a refused password.

        Raises
        ------
        CertificateError, HostKeyError, KeyFileError
            At once.
        PasswordError
            After ``REFUSALS`` in a row.

        """
        if self._pause.left() > 0.0:
            return self._last
        try:
            self._last = self._attempt(deadline)
        except (CertificateError, HostKeyError, KeyFileError):
            raise
        except PasswordError as error:
            self._refused += 1
            if self._refused >= REFUSALS:
                raise
            self._pause = Deadline(REFUSED_SECONDS)
            self._last = f"WinRM: {error.happened}"
        except BrokenError as error:
            self._last = f"WinRM: {error.happened}"
        else:
            self._refused = 0
        return self._last
