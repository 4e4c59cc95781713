"""What is asked of the double, and what it answers: a table that the test gives.

Nothing is ever executed. What the table does not know ends with exit code 1, and is recorded.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

UNKNOWN_CODE = 1
_FILE = re.compile(r"(?i)-file\s+(?:\"([^\"]+)\"|(\S+))")
_ENCODED = re.compile(r"(?i)-e(?:nc(?:odedcommand)?)?\s+\"?([A-Za-z0-9+/=]+)\"?")


@dataclass(frozen=True)
class Asked:
    """One command."""

    line: str
    """Its whole command line, as it came."""
    via: str = "winrm"
    """Or ``ssh``."""
    stdin: bytes = b""
    skips_cmd: bool = False
    """WinRM: whether it is to run without cmd.exe."""
    codepage: str = ""
    user: str = ""
    file: str = ""
    """What the script behind ``-File`` holds; empty if there is none."""

    @property
    def path(self) -> str:
        """The path after ``-File``; empty if there is none."""
        found = _FILE.search(self.line)
        return (found[1] or found[2]) if found else ""

    @property
    def script(self) -> str:
        """The PowerShell behind ``-EncodedCommand``; empty if there is none."""
        found = _ENCODED.search(self.line)
        if found is None:
            return ""
        try:
            return base64.b64decode(found[1], validate=True).decode("utf-16-le")
        except (binascii.Error, UnicodeDecodeError):
            return ""


@dataclass(frozen=True)
class Answer:
    """How a command ends, and what it says until then."""

    code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    pieces: Sequence[tuple[bytes, bytes]] = ()
    """Output before that, one pair of standard output and error for each Receive."""
    held: threading.Event | None = None
    """It does not end before this is set; what ``pieces`` hold is said at once."""


Responder = Callable[[Asked], "Answer | None"]
"""None for a command that it does not know."""


@dataclass
class Script:
    """Commands and their answers, in the order in which they were added; the first that fits."""

    rules: list[tuple[re.Pattern[str], Answer | Responder]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    unknown: list[Asked] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on(self, pattern: str, answer: Answer | Responder | None = None, **parts: object) -> None:
        """Answer what the pattern is found in: the command line, or the PowerShell it brings."""
        given = answer or Answer(**parts)  # type: ignore[arg-type]
        self.rules.append((re.compile(pattern, re.DOTALL), given))

    def __call__(self, asked: Asked) -> Answer | None:
        with self._lock:
            self.asked.append(asked)
        for pattern, answer in self.rules:
            texts = (asked.line, *(text for text in (asked.script, asked.file) if text))
            if any(pattern.search(text) for text in texts):
                found = answer(asked) if callable(answer) else answer
                if found is not None:
                    return found
        self.unknown.append(asked)
        return None


def answered(respond: Responder, asked: Asked) -> Answer:
    """What the responder says; failing closed where it does not know, or breaks."""
    try:
        found = respond(asked)
    except Exception as error:  # noqa: BLE001  whatever it is, the asker must be told
        return Answer(UNKNOWN_CODE, b"", f"double: its responder broke: {error!r}\r\n".encode())
    if found is None:
        words = f"double: unknown command, not run: {asked.script or asked.line}\r\n"
        return Answer(UNKNOWN_CODE, b"", words.encode())
    return found
