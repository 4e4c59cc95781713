"""Commands sent to the double, and its answers: a table from the test.

Nothing is ever executed. A command that is not in the table ends with exit code 1, and is recorded.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event

_FILE = re.compile(r"(?i)-file\s+(?:\"([^\"]+)\"|(\S+))")
_ENCODED = re.compile(r"(?i)-e(?:nc(?:odedcommand)?)?\s+\"?([A-Za-z0-9+/=]+)\"?")


@dataclass(frozen=True)
class Asked:
    """One command."""

    line: str
    """The whole command line as received."""
    via: str = "winrm"
    """``winrm`` or ``ssh``."""
    stdin: bytes = b""
    skips_cmd: bool = False
    """WinRM: whether to run it without cmd.exe."""
    codepage: str = ""
    user: str = ""
    file: str = ""
    """Content of the script after ``-File``; empty if there is none."""

    @property
    def path(self) -> str:
        """The path after ``-File``; empty if there is none."""
        match = _FILE.search(self.line)
        return (match[1] or match[2]) if match else ""

    @property
    def script(self) -> str:
        """The decoded PowerShell after ``-EncodedCommand``; empty if there is none."""
        match = _ENCODED.search(self.line)
        return base64.b64decode(match[1], validate=True).decode("utf-16-le") if match else ""


@dataclass(frozen=True)
class Answer:
    """The exit code and the output of a command."""

    code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    pieces: Sequence[tuple[bytes, bytes]] = ()
    """Output before that, one pair of standard output and error for each Receive."""
    held: Event | None = None
    """The command does not end before this is set; ``pieces`` are sent at once."""


Responder = Callable[[Asked], "Answer | None"]
"""Returns None for an unknown command."""


@dataclass
class Script:
    """Commands and their answers; the first match in the order of addition applies."""

    rules: list[tuple[re.Pattern[str], Answer | Responder]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def on(self, pattern: str, answer: Answer | Responder | None = None, **parts: object) -> None:
        """Answer commands whose command line or decoded PowerShell matches the pattern."""
        given = answer or Answer(**parts)  # type: ignore[arg-type]
        self.rules.append((re.compile(pattern, re.DOTALL), given))

    def __call__(self, request: Asked) -> Answer | None:
        self.asked.append(request)
        for pattern, answer in self.rules:
            texts = (request.line, *filter(None, (request.script, request.file)))
            if any(map(pattern.search, texts)):
                found = answer(request) if callable(answer) else answer
                if found is not None:
                    return found
        return None


def answered(respond: Responder, request: Asked) -> Answer:
    """The responder's answer; exit code 1 if it does not know the command, or raises."""
    try:
        answer = respond(request)
    except Exception as error:  # noqa: BLE001  any error is reported to the client
        return Answer(1, b"", f"double: its responder broke: {error!r}\r\n".encode())
    unknown = f"double: unknown command, not run: {request.script or request.line}\r\n"
    return answer or Answer(1, b"", unknown.encode())
