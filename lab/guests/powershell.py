"""PowerShell scripts as text to be sent: what goes before and after them, and how. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from lab.guests.command_line import POWERSHELL

BEGINNING = (
    "$ErrorActionPreference = 'Stop'\n"
    "$ProgressPreference = 'SilentlyContinue'\n"
    "$global:LASTEXITCODE = 0\n"
)
"""Errors end the script with code 1; nobody looks at progress; and the exit code of a script that
runs no program is known under strict mode too."""
ENDING = "\nexit $LASTEXITCODE\n"
"""Else a failed program's exit code is lost."""
LONGEST = 3_000
"""Characters of a script that go on the command line: base64 of UTF-16 makes 8,000 of them, and
cmd.exe, which may stand between, takes 8,191."""
_PLAIN = ("-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass")


def whole(script: str) -> str:
    """The script with what it needs around it. It may not begin with ``param``."""
    return f"{BEGINNING}{script}{ENDING}"


def fits(script: str) -> bool:
    """Whether a whole script goes on the command line."""
    return len(script.encode("utf-16-le")) <= 2 * LONGEST


def encoded(script: str) -> tuple[str, ...]:
    """The command that runs a whole script from its own command line."""
    text = base64.b64encode(script.encode("utf-16-le")).decode("ascii")
    return (POWERSHELL, *_PLAIN, "-EncodedCommand", text)


def filed(path: str, arguments: Sequence[str] = ()) -> tuple[str, ...]:
    """The command that runs a script from its file."""
    return (POWERSHELL, *_PLAIN, "-File", path, *arguments)


def as_file(script: str) -> bytes:
    """The script as Windows PowerShell reads files: what has no mark it takes for ANSI."""
    return script.replace("\r\n", "\n").replace("\n", "\r\n").encode("utf-8-sig")


def quoted(text: str) -> str:
    """The text as a literal within a script; curly quotes end one too."""
    return (
        "'" + "".join(2 * one if one in "'\u2018\u2019\u201a\u201b" else one for one in text) + "'"
    )


def interactive(program: str, line: str) -> str:
    """A script that lends its console to a program, given its arguments as one exact line.

    For whatever shell OpenSSH starts there: encoded, it means the same to cmd and PowerShell.
    """
    return (
        "$ErrorActionPreference = 'Stop'\n"
        "$start = New-Object System.Diagnostics.ProcessStartInfo\n"
        f"$start.FileName = {quoted(program)}\n"
        f"$start.Arguments = {quoted(line)}\n"
        "$start.UseShellExecute = $false\n"
        "$process = [System.Diagnostics.Process]::Start($start)\n"
        "$process.WaitForExit()\n"
        "exit $process.ExitCode\n"
    )
