"""Messages on standard error: plain sentences, one per line, nothing on standard output."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from lab._errors import LabError

_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff]"
    r"|\r(?!\n)"
)
"""Characters that move a terminal's cursor, or colour, hide or reverse text, and those not allowed
in XML. Messages of servers and file names may have them."""


def clean(text: str) -> str:
    """The text with control characters escaped; tabs and line ends are kept."""
    return _CONTROL.sub(_as_number, text)


def one_line(text: str) -> str:
    """The text with control characters and line ends escaped, for quoting untrusted text."""
    return clean(text).replace("\r", "\\x0d").replace("\n", "\\x0a")


def _as_number(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number <= 0xFF else f"\\u{number:04x}"  # noqa: PLR2004


def say(sentence: str) -> None:
    """Print one message. If standard error is closed, the work continues without it."""
    with listened():
        print(clean(sentence), file=sys.stderr)


CAUSE = "HYBRIDLAB_CAUSE"
"""Variable set by a command that runs another: the file for the cause of a failure, in one line."""


def leave_cause(line: str) -> None:
    """Write why this command failed to the file in ``$HYBRIDLAB_CAUSE``, if set."""
    path = os.environ.get(CAUSE)
    if path:
        with suppress(OSError):
            Path(path).write_text(f"{clean(line)}\n", encoding="utf-8", errors="replace")


def complain(error: LabError) -> None:
    """Print an error, and leave its cause as that of the command's failure."""
    say(error.shown)
    leave_cause(error.cause)


@contextmanager
def listened() -> Iterator[None]:
    """Write to standard error in the block; if that fails, discard it and all later output.

    Output left in Python's buffer would end the process with exit code 120.
    """
    try:
        yield
        sys.stderr.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


class StatusLine:
    """A line on a terminal that shows what is being done, and is erased at the end."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._shown = False

    def show(self, text: str) -> None:
        """Show this text instead of the last one."""
        self._shown = True
        self._write(f"\r\x1b[K{clean(text)}")

    def erase(self) -> None:
        """Leave nothing of it on the terminal."""
        if self._shown:
            self._shown = False
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with listened():
            self._terminal.write(text)
            self._terminal.flush()


def quantity(number: int, noun: str) -> str:
    """``1 node``, ``5 nodes``: the number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


_LISTED = 12


def listed(names: Sequence[str]) -> str:
    """The first twelve names, and the number of the others: ``a, b``, ``a, b and 5 more``."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def table_lines(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Lines of a table with columns of minimal width; columns in ``right`` are right-aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def heading(text: str) -> str:
    """The first line of ``text``, without the words that introduce the next line."""
    first, _, more = text.partition("\n")
    return first.rpartition(";")[0] or first.rstrip(": ") if more else first


_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def ago(moment: float) -> str:
    """``3 minutes ago``; ``moment`` is seconds since 1970."""
    seconds = int(time.time() - moment)
    for size, unit in _UNITS:
        if seconds >= size:
            number = seconds // size
            return f"{number} {unit}{'' if number == 1 else 's'} ago"
    return "just now"
