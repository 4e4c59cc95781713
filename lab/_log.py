"""The story on standard error: plain sentences, one a line, nothing on standard output."""

from __future__ import annotations

import sys
from contextlib import suppress


def say(sentence: str) -> None:
    """Print one sentence of the story. Where nobody reads it (any more), the work goes on."""
    with suppress(OSError):
        print(sentence, file=sys.stderr, flush=True)


def quantity(number: int, noun: str) -> str:
    """``1 node``, ``5 nodes``: the number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"
