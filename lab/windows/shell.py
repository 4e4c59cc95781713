r"""A shell on a Windows machine: commands over WinRM, files over SSH.

- ``run(("C:\\x\\y.exe", "a b"))`` starts that program with those arguments; no shell interprets
  them.
- ``powershell(script)`` runs a script; the exit code is that of the script or of the last program
  that it ran, or 1 if an error ended it.
- Standard error is text, even if PowerShell wrote CLIXML.
- Output is UTF-8 with Windows line endings.

Files have no modes: on Windows the directory's access control list determines who can read them.

Windows passes a program its arguments as one string. Nearly all programs split it by the Microsoft
C runtime's rules, which :func:`subprocess.list2cmdline` follows. WinRM runs a command with ``cmd
/c`` unless ``WINRS_SKIP_CMD_SHELL`` is set, as it always is here. It then requires the program's
full path (inferred from other clients, not yet seen on a real Windows). So a program with a path is
started directly, PowerShell and cmd are known by their paths, and cmd.exe looks up any other bare
name, with every character escaped that it might interpret.
"""

from __future__ import annotations

import base64
import re
import secrets
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from lab._deadline import Deadline
from lab._errors import BrokenError, UsageError
from lab.machines.ssh.connection import Connection
from lab.machines.ssh.shell import AGAIN_SECONDS, SftpFiles, attach, sftp, wait_until_ready
from lab.machines.ssh.transport import servers_to
from lab.shells.shell import (
    Completed,
    FatalError,
    Input,
    Shell,
    WindowsReach,
    command_words,
    shorten,
)
from lab.windows.winrm import PasswordError, WinrmCommand, WinrmPool

SYSTEM = "C:\\Windows\\System32"
CMD = f"{SYSTEM}\\cmd.exe"
POWERSHELL = f"{SYSTEM}\\WindowsPowerShell\\v1.0\\powershell.exe"
KNOWN = {"cmd": CMD, "cmd.exe": CMD, "powershell": POWERSHELL, "powershell.exe": POWERSHELL}
LONGEST = 32_766
"""Longest command line on Windows, in characters (CreateProcess)."""
CMD_LONGEST = 8_191
"""Longest command line of cmd.exe, in characters."""
_META = frozenset('()%!^"<>&|')
_RAW = "/c"
"""cmd.exe interprets everything after this itself; see :func:`command_line`."""


@dataclass(frozen=True, slots=True)
class WindowsCommand:
    """A command for WinRM."""

    program: str
    """Full path, quoted if necessary."""
    arguments: str
    """All arguments as one string; may be empty."""

    @property
    def line(self) -> str:
        """The whole command line."""
        return f"{self.program} {self.arguments}" if self.arguments else self.program


def command_line(command: Sequence[str]) -> WindowsCommand:
    r"""Convert a command for WinRM.

    Only cmd.exe interprets the text after ``cmd.exe /c``: those words are joined by spaces without
    quotes, as typed at a prompt.

    Raises UsageError when it is empty, too long, or contains a line break or NUL.
    """
    _check(command)
    program, *arguments = command
    path = KNOWN.get(program.lower()) or (program if "\\" in program else None)
    if path is None:
        line = "".join(
            f"^{character}" if character in _META else character
            for character in _join_words(command)
        )
        return _fit_command(WindowsCommand(CMD, f"/d /s /c {line}"), CMD_LONGEST)
    if path == CMD:
        return _fit_command(WindowsCommand(path, _for_cmd(arguments)), CMD_LONGEST)
    return _fit_command(WindowsCommand(_join_words([path]), _join_words(arguments)), LONGEST)


def _for_cmd(arguments: Sequence[str]) -> str:
    at = next((i for i, word in enumerate(arguments) if word.lower() == _RAW), len(arguments))
    return " ".join((*(_join_words([word]) for word in arguments[: at + 1]), *arguments[at + 1 :]))


def _join_words(words: Sequence[str]) -> str:
    return subprocess.list2cmdline(words)


def _check(command: Sequence[str]) -> None:
    action = "writing a Windows command line"
    if not command or not command[0]:
        raise UsageError(action, "there is no program to run")
    if any(character in word for word in command for character in "\0\r\n"):
        words = f"an argument of '{command[0]}' contains a line break or NUL"
        raise UsageError(action, words, "send it as input, or in a file")


def _fit_command(made: WindowsCommand, longest: int) -> WindowsCommand:
    if len(made.line) > longest:
        raise UsageError(
            f"running '{made.line[:60]}...' on Windows",
            f"the command line has {len(made.line):,} characters; the limit is {longest:,}",
            "send long values in a file",
        )
    return made


BEGINNING = (
    "$ErrorActionPreference = 'Stop'\n"
    "$ProgressPreference = 'SilentlyContinue'\n"
    "$global:LASTEXITCODE = 0\n"
)
"""Errors end the script with code 1; progress is not shown; ``$LASTEXITCODE`` is defined, even in
strict mode, if the script runs no program."""
ENDING = "\nexit $LASTEXITCODE\n"
"""Otherwise a failed program's exit code is lost."""
SCRIPT_LONGEST = 3_000
"""Most characters of a script on the command line: as base64 of UTF-16 they become 8,000, and
cmd.exe, which may be involved, allows 8,191."""
_PLAIN = ("-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass")


def wrap_script(script: str) -> str:
    """Add the beginning and ending to a script, which may not begin with ``param``."""
    return f"{BEGINNING}{script}{ENDING}"


def fits_command_line(script: str) -> bool:
    """True if the script fits on the command line."""
    return len(script.encode("utf-16-le")) <= 2 * SCRIPT_LONGEST


def encoded_command(script: str) -> tuple[str, ...]:
    """The command that runs a script given on its command line."""
    text = base64.b64encode(script.encode("utf-16-le")).decode("ascii")
    return (POWERSHELL, *_PLAIN, "-EncodedCommand", text)


def file_command(path: str, arguments: Sequence[str] = ()) -> tuple[str, ...]:
    """The command that runs a script file."""
    return (POWERSHELL, *_PLAIN, "-File", path, *arguments)


def script_file(script: str) -> bytes:
    """The contents of a script file; Windows PowerShell reads files without a BOM as ANSI."""
    return script.replace("\r\n", "\n").replace("\n", "\r\n").encode("utf-8-sig")


def quote(text: str) -> str:
    """The text as a PowerShell string literal; curly quotes must be doubled too."""
    return (
        "'"
        + "".join(
            2 * character if character in "'\u2018\u2019\u201a\u201b" else character
            for character in text
        )
        + "'"
    )


def interactive_script(program: str, line: str) -> str:
    """A script that runs a program on its console, with this exact argument string.

    It works with whichever shell OpenSSH starts: encoded, cmd and PowerShell treat it the same.
    """
    return (
        "$ErrorActionPreference = 'Stop'\n"
        "$start = New-Object System.Diagnostics.ProcessStartInfo\n"
        f"$start.FileName = {quote(program)}\n"
        f"$start.Arguments = {quote(line)}\n"
        "$start.UseShellExecute = $false\n"
        "$process = [System.Diagnostics.Process]::Start($start)\n"
        "$process.WaitForExit()\n"
        "exit $process.ExitCode\n"
    )


MARK = "#< CLIXML"
_SPACE = "{http://schemas.microsoft.com/powershell/2004/04}"
_DOCUMENT = re.compile(r"<Objs\b.*?</Objs>|<Objs\b[^>]*/>", re.DOTALL)
_HEAD = re.compile(re.escape(MARK) + r"\r?\n?")
_ESCAPES = re.compile(r"(?:_x[0-9A-Fa-f]{4}_)+")
_PREFIX = {"warning": "WARNING: ", "verbose": "VERBOSE: ", "debug": "DEBUG: "}
"""Prefixes as on the console."""
_SILENT = {"progress"}


def decode_clixml(text: str) -> str:
    r"""Decode CLIXML; other text is returned unchanged.

    Errors are unchanged, warnings and the like get the console's prefix, and progress is dropped.
    Lines end with ``\n``.
    """
    if MARK not in text:
        return text
    return _DOCUMENT.sub(lambda match: _document(match[0]), _HEAD.sub("", text))


def _document(text: str) -> str:
    if "<!" in text:  # PowerShell writes no document type; it may be malicious
        return text
    try:
        root = ET.fromstring(text)  # noqa: S314  it has no document type, so no entities
    except ET.ParseError:
        return text
    return "".join(_record(element) for element in root)


def _record(element: ET.Element) -> str:
    stream = element.get("S", "").lower()
    if stream in _SILENT:
        return ""
    text = _unescape(_words(element)).replace("\r\n", "\n")
    if not text:
        return ""
    prefix = _PREFIX.get(stream, "")
    ended = text if element.tag == f"{_SPACE}S" and not prefix else text.rstrip("\n") + "\n"
    return f"{prefix}{ended}"


def _words(element: ET.Element) -> str:
    """A string's text, or an object's text as PowerShell would print it."""
    if element.tag != f"{_SPACE}Obj":
        return element.text or ""
    for part in (element.find(f"{_SPACE}ToString"), element.find(f".//{_SPACE}S")):
        if part is not None and part.text:
            return part.text
    return ""


def _unescape(text: str) -> str:
    """Decode escapes such as ``_x000D_``: UTF-16 code units, possibly surrogate pairs."""
    return _ESCAPES.sub(
        lambda match: (
            b"".join(
                int(unit, 16).to_bytes(2, "little") for unit in re.findall("x(.{4})", match[0])
            )
        ).decode("utf-16-le", "replace"),
        text,
    )


DIRECTORY = "C:\\hybridlab"
"""Directory of the lab's files; the machine's first script creates it."""
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_NEVER = re.compile(r'[<>"|?*\x00-\x1f]|:')


def sftp_path(path: str) -> str:
    """The path for SFTP.

    Raises UsageError when it does not begin with a drive, or contains an invalid character.
    """
    if not _DRIVE.match(path):
        raise UsageError(
            f"naming the file '{path}' on Windows",
            "it does not begin with a drive",
            "write it as C:\\directory\\file",
        )
    match = _NEVER.search(path[2:])
    if match:
        raise UsageError(
            f"naming the file '{path}' on Windows", f"a name there cannot contain {match[0]!r}"
        )
    return "/" + path.replace("\\", "/")


REFUSALS = 3
"""Consecutive password refusals that end a wait; a starting machine may refuse one temporarily.
Windows locks Administrator after 10 within 10 minutes (Microsoft KB5020282)."""
REFUSED_SECONDS = 15.0
"""Interval after a refusal."""
_TEMPORARY = f"{DIRECTORY}\\run"
_CLEAN_SECONDS = 10.0
_NOTHING = ("cmd.exe", "/d", "/c", "exit 0")
_SFTP = "check that sshd_config there has 'Subsystem sftp sftp-server.exe'"


class WindowsShell(Shell):
    """A :class:`~lab.shells.shell.Shell` on Windows, as its Administrator.

    Connections are opened on first use, kept, and replaced if they have died; a command that may
    have started is never repeated. Thread-safe.

    ``reach``: the machine.

    Raises UsageError when the certificate's digest is malformed.
    """

    def __init__(self, reach: WindowsReach) -> None:
        servers = self._servers = servers_to(reach.ssh)
        self._host = reach.ssh.address
        self._name = reach.ssh.name
        self._connection = Connection(servers)
        self._pool = WinrmPool(reach, servers[0] if len(servers) > 1 else None)

    @property
    def name(self) -> str:
        """The machine's name, for messages."""
        return self._name

    def powershell(self, script: str, deadline: Deadline) -> Completed:
        """Run a PowerShell script; errors end it, and the exit code is reliable.

        A long script is sent as a file over SSH and removed afterwards. A script may not begin with
        ``param``.

        Raises as :meth:`run`.
        """
        first = next((line.strip() for line in script.splitlines() if line.strip()), "")
        action = f"running the script '{shorten(first)}' on '{self._name}'"
        script = wrap_script(script)
        out = bytearray()
        if fits_command_line(script):
            command = encoded_command(script)
            code, err = self._winrm(action, command, deadline, out.extend)
        else:
            path = f"{_TEMPORARY}-{secrets.token_hex(4)}.ps1"
            self.put(script_file(script), path, 0o600, deadline)
            try:
                code, err = self._winrm(action, file_command(path), deadline, out.extend)
            finally:
                self.remove(path)
        return Completed(code, out.decode(errors="replace"), err)

    def put(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:  # noqa: ARG002  part of the Shell protocol
        r"""Write a file, ``C:\directory\name``, atomically; ``mode`` is ignored."""
        place = sftp_path(path)
        with self._files(f"writing '{path}' on '{self._name}'", deadline) as files:
            files.put(content, place, None)

    def get(self, path: str, deadline: Deadline) -> bytes:
        """Read a file."""
        place = sftp_path(path)
        with self._files(f"reading '{path}' of '{self._name}'", deadline) as files:
            return files.get(place)

    def remove(self, path: str) -> None:
        """Remove one of the lab's files, if that is possible now."""
        action, deadline = f"removing '{path}' of '{self._name}'", Deadline(_CLEAN_SECONDS)
        # Errors are ignored: the machine may be restarting, and only the lab reads that directory.
        with suppress(BrokenError), self._files(action, deadline) as files:
            files.remove(sftp_path(path))

    def wait(self, deadline: Deadline) -> None:
        """Wait until the machine runs a command over WinRM and serves files over SFTP.

        Raises DeadlineError with the outcome of the last attempt. Raises CertificateError,
        HostKeyError or KeyFileError at once, and PasswordError after :data:`REFUSALS` in a row.
        """
        action = f"waiting for '{self._name}' ({self._host}) to accept commands and files"
        wait_until_ready(action, LimitedAttempts(self._attempt), deadline, AGAIN_SECONDS)

    def attach(self, command: Sequence[str]) -> int:
        """Run a command, or a login shell if it is empty, on this terminal over SSH."""
        line = None
        if command:
            # PowerShell with an encoded script works with whichever shell sshd starts.
            start = command_line(command)
            script = interactive_script(start.program.strip('"'), start.arguments)
            line = " ".join(encoded_command(script))
        return attach(self._connection, self._servers, " ".join(command), line)

    def close(self) -> None:
        """Close the connections. Safe to repeat; the next use connects again."""
        self._pool.close()
        self._connection.close()

    def _files(self, action: str, deadline: Deadline) -> AbstractContextManager[SftpFiles]:
        return sftp(self._connection, action, deadline, become=False, hint=_SFTP)

    def _attempt(self, deadline: Deadline) -> str:
        """Why commands or SFTP do not work now; empty if both do."""
        done = self.run(_NOTHING, deadline)
        if done.code:
            return f"WinRM: a command ended with {done.code}: {done.stderr.strip()}"
        try:
            with self._files(f"opening SFTP on '{self._name}'", deadline) as files:
                files.look()
        except FatalError:
            raise
        except BrokenError as error:
            return f"WinRM works; SSH: {error.happened}"
        return ""

    def _execute(
        self,
        command: Sequence[str],
        deadline: Deadline,
        stdin: Input,
        out: Callable[[bytes], object],
    ) -> tuple[int, str]:
        action = f"running {command_words(command)} on '{self._name}'"
        if stdin:
            raise UsageError(action, "a command on Windows cannot have input", "send it in a file")
        return self._winrm(action, command, deadline, out)

    def _winrm(
        self,
        action: str,
        command: Sequence[str],
        deadline: Deadline,
        out: Callable[[bytes], object],
    ) -> tuple[int, str]:
        start = command_line(command)
        with self._pool.slot(action, deadline):
            running = WinrmCommand(self._pool, action, deadline, out)
            code = running.run(start.program, start.arguments)
        return code, decode_clixml(running.err.decode(errors="replace"))


class LimitedAttempts:
    """Attempts to reach a Windows machine that never lock its Administrator out.

    ``attempt``: makes one attempt within the given deadline; returns why it failed, or an empty
    string.
    """

    def __init__(self, attempt: Callable[[Deadline], str]) -> None:
        self._attempt = attempt
        self._refused = 0
        self._pause = Deadline(0)
        self._last = ""

    def __call__(self, deadline: Deadline) -> str:
        """Make one attempt; shortly after a refused password, return the last outcome instead.

        Raises CertificateError, HostKeyError or KeyFileError at once, and PasswordError after
        ``REFUSALS`` in a row.
        """
        if self._pause.left() > 0.0:
            return self._last
        try:
            self._last = self._attempt(deadline)
        except FatalError:
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
