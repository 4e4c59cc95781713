"""One line on a terminal that says how far the probing is."""

from __future__ import annotations

import time
from typing import TextIO

EVERY = 0.1
"""Seconds between two drawings of the line; the eye asks for no more."""


class ProgressLine:
    """Draws over itself while probes end, and leaves nothing behind."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._drawn_at = 0.0
        self._begun = False

    def pytest_lab_progress(self, done: int, total: int) -> None:
        """Draw the line, not too often; wipe it when a pass is over."""
        now = time.monotonic()
        if done >= total:
            self._wipe()
        elif now - self._drawn_at >= EVERY:
            self._drawn_at = now
            self._begun = True
            self._terminal.write(f"\rprobing: {done:,} of {total:,} ")
            self._terminal.flush()

    def _wipe(self) -> None:
        if self._begun:
            self._begun = False
            self._terminal.write("\r\x1b[K")
            self._terminal.flush()
