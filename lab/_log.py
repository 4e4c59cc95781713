"""The story on standard error: plain sentences, one a line, nothing on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_CONTROL = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in b"\t\n"
}
"""What moves a terminal's cursor or paints: words of servers and names of files may have it."""


def say(sentence: str) -> None:
    """Print one sentence of the story. Where nobody reads it (any more), the work goes on."""
    with listened():
        print(sentence.translate(_CONTROL), file=sys.stderr)


@contextmanager
def listened() -> Iterator[None]:
    """Write to standard error within; what it does not take is lost, and all that follows.

    Left in Python's buffer, it would end the process with exit code 120.
    """
    try:
        yield
        sys.stderr.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def quantity(number: int, noun: str) -> str:
    """``1 node``, ``5 nodes``: the number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


def heading(text: str) -> str:
    """Its first line, without what only leads over to the next."""
    first, _, more = text.partition("\n")
    return first.rpartition(";")[0] or first.rstrip(": ") if more else first
