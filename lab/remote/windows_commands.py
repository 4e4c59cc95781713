"""Programs and their arguments as one Windows command line. Pure.

Windows gives a program one string. How it splits it is the program's own affair; nearly all use
the Microsoft C runtime's rules, which :func:`subprocess.list2cmdline` writes for.

WinRM runs a command by ``cmd /c`` unless ``WINRS_SKIP_CMD_SHELL`` is set; here it always is, so
nothing is interpreted on the way. It then wants the program's full path (inferred from
other clients, not tried on Windows: not yet seen from a real Windows). So a program with a path
is started as it is, PowerShell and cmd are known by their paths, and any other bare name is looked
up by a cmd.exe, for which every character that it might interpret is escaped.
"""

from __future__ import annotations

import base64
import re
import subprocess
import xml.etree.ElementTree as ET
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


BEGINNING = (
    "$ErrorActionPreference = 'Stop'\n"
    "$ProgressPreference = 'SilentlyContinue'\n"
    "$global:LASTEXITCODE = 0\n"
)
"""Errors end the script with code 1; progress is not shown; and the exit code of a script that
runs no program is known under strict mode too."""
ENDING = "\nexit $LASTEXITCODE\n"
"""Else a failed program's exit code is lost."""
SCRIPT_LONGEST = 3_000
"""Characters of a script that go on the command line: base64 of UTF-16 makes 8,000 of them, and
cmd.exe, which may stand between, takes 8,191."""
_PLAIN = ("-NoProfile", "-NonInteractive", "-ExecutionPolicy", "Bypass")


def wrap_script(script: str) -> str:
    """The script with what it needs around it. It may not begin with ``param``."""
    return f"{BEGINNING}{script}{ENDING}"


def fits_command_line(script: str) -> bool:
    """Whether a whole script goes on the command line."""
    return len(script.encode("utf-16-le")) <= 2 * SCRIPT_LONGEST


def encoded_command(script: str) -> tuple[str, ...]:
    """The command that runs a whole script from its own command line."""
    text = base64.b64encode(script.encode("utf-16-le")).decode("ascii")
    return (POWERSHELL, *_PLAIN, "-EncodedCommand", text)


def file_command(path: str, arguments: Sequence[str] = ()) -> tuple[str, ...]:
    """The command that runs a script from its file."""
    return (POWERSHELL, *_PLAIN, "-File", path, *arguments)


def script_file(script: str) -> bytes:
    """The script as Windows PowerShell reads files: what has no mark it takes for ANSI."""
    return script.replace("\r\n", "\n").replace("\n", "\r\n").encode("utf-8-sig")


def quote(text: str) -> str:
    """The text as a literal within a script; curly quotes end one too."""
    return (
        "'" + "".join(2 * one if one in "'\u2018\u2019\u201a\u201b" else one for one in text) + "'"
    )


def interactive_script(program: str, line: str) -> str:
    """A script that lends its console to a program, given its arguments as one exact line.

    For whatever shell OpenSSH starts there: encoded, it means the same to cmd and PowerShell.
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
"""As the console shows them."""
_SILENT = {"progress"}


def readable(text: str) -> str:
    r"""The text behind CLIXML; other text is returned as it is.

    Errors come as they are, warnings and the like with the prefix that the console gives them,
    progress not at all. Lines end with ``\n``.
    """
    if MARK not in text:
        return text
    return _DOCUMENT.sub(lambda found: _document(found[0]), _HEAD.sub("", text))


def _document(text: str) -> str:
    if "<!" in text:  # a document type is not PowerShell's, and may not be harmless
        return text
    try:
        root = ET.fromstring(text)  # noqa: S314  it has no document type, so no entities
    except ET.ParseError:
        return text
    return "".join(_record(one) for one in root)


def _record(element: ET.Element) -> str:
    stream = element.get("S", "").lower()
    if stream in _SILENT:
        return ""
    said = _unescaped(_words(element)).replace("\r\n", "\n")
    if not said:
        return ""
    prefix = _PREFIX.get(stream, "")
    ended = said if element.tag == f"{_SPACE}S" and not prefix else said.rstrip("\n") + "\n"
    return f"{prefix}{ended}"


def _words(element: ET.Element) -> str:
    """A string's own text; an object's as PowerShell would print it."""
    if element.tag != f"{_SPACE}Obj":
        return element.text or ""
    for found in (element.find(f"{_SPACE}ToString"), element.find(f".//{_SPACE}S")):
        if found is not None and found.text:
            return found.text
    return ""


def _unescaped(text: str) -> str:
    """``_x000D_`` and its like: UTF-16 code units, perhaps both halves of one character."""
    return _ESCAPES.sub(
        lambda found: (
            b"".join(
                int(unit, 16).to_bytes(2, "little") for unit in re.findall("x(.{4})", found[0])
            )
        ).decode("utf-16-le", "replace"),
        text,
    )
