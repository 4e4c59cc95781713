"""Programs and their arguments as one Windows command line. Pure.

Windows gives a program one string. How it splits it is the program's own affair; nearly all use
the Microsoft C runtime's rules, which :func:`subprocess.list2cmdline` writes for.

WinRM runs a command by ``cmd /c`` unless it is told ``WINRS_SKIP_CMD_SHELL``; it always is here,
so nothing is interpreted on the way. It then wants the program's full path (inferred from
other clients, not tried on Windows: no Windows was at hand). So a program with a path
is started as it is, PowerShell and cmd are known by their paths, and any other bare name is looked
up by a cmd.exe of ours, for which every character that it might interpret is escaped.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from lab._errors import UsageError

SYSTEM = "C:\\Windows\\System32"
CMD = f"{SYSTEM}\\cmd.exe"
POWERSHELL = f"{SYSTEM}\\WindowsPowerShell\\v1.0\\powershell.exe"
KNOWN = {"cmd": CMD, "cmd.exe": CMD, "powershell": POWERSHELL, "powershell.exe": POWERSHELL}
LONGEST = 32_766
"""Characters of a command line that Windows takes (CreateProcess)."""
CMD_LONGEST = 8_191
"""The same of cmd.exe."""
_META = frozenset('()%!^"<>&|')
_RAW = "/c"
"""After this cmd.exe takes the rest of its line as it is; see :func:`started`."""


@dataclass(frozen=True, slots=True)
class Started:
    """What WinRM is asked to start."""

    program: str
    """Full path, quoted if it must be."""
    arguments: str
    """All of them as one string; perhaps empty."""

    @property
    def line(self) -> str:
        """The whole command line."""
        return f"{self.program} {self.arguments}" if self.arguments else self.program


def started(command: Sequence[str]) -> Started:
    r"""The command as WinRM is to start it.

    ``cmd.exe /c`` is followed by text that only cmd.exe reads: words after it are joined by
    spaces and not quoted, as one types them.

    Raises
    ------
    UsageError
        When it is empty, too long, or holds what no command line can.

    """
    _check(command)
    program, *arguments = command
    path = KNOWN.get(program.lower()) or (program if "\\" in program else None)
    if path is None:
        line = "".join(f"^{one}" if one in _META else one for one in _joined(command))
        return _fitting(Started(CMD, f"/d /s /c {line}"), CMD_LONGEST)
    if path == CMD:
        return _fitting(Started(path, _for_cmd(arguments)), CMD_LONGEST)
    return _fitting(Started(_joined([path]), _joined(arguments)), LONGEST)


def _for_cmd(arguments: Sequence[str]) -> str:
    at = next((i for i, word in enumerate(arguments) if word.lower() == _RAW), len(arguments))
    return " ".join((*(_joined([word]) for word in arguments[: at + 1]), *arguments[at + 1 :]))


def _joined(words: Sequence[str]) -> str:
    return subprocess.list2cmdline(words)


def _check(command: Sequence[str]) -> None:
    doing = "writing a Windows command line"
    if not command or not command[0]:
        raise UsageError(doing, "there is no program to run")
    if any(one in word for word in command for one in "\0\r\n"):
        words = f"an argument of '{command[0]}' holds a line break or NUL"
        raise UsageError(doing, words, "send it as input, or in a file")


def _fitting(made: Started, longest: int) -> Started:
    if len(made.line) > longest:
        raise UsageError(
            f"running '{made.line[:60]}...' on Windows",
            f"the command line has {len(made.line):,} characters and {longest:,} are the most",
            "send what is long in a file",
        )
    return made
