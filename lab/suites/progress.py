"""How far a run is: a bar of rich's on a terminal, a line each ten seconds elsewhere.

Both implement the hook ``pytest_lab_progress``. No thread draws: what tests a lab forks.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TextIO

from lab._log import listened, say

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

EVERY = 0.1
"""Shortest interval between two drawings of the bar, in seconds."""
LINE_SECONDS = 10.0
"""Shortest interval between two lines, and between the start of a stage and its first line."""


class ProgressBar:
    """The current stage on a terminal: a bar, how much is done, seconds gone and left.

    The last drawing is erased when the stage ends. ``rich`` is imported for the first one.
    """

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._bar: tuple[Progress, TaskID] | None = None
        self._drawn_at = 0.0

    def pytest_lab_progress(self, stage: str, done: int, total: int) -> None:
        """See :class:`~lab.suites.plugin.Hooks`."""
        now = time.monotonic()
        with listened():
            if done >= total:
                self._erase()
            elif self._bar is None:
                self._begin(stage, total)
                self._drawn_at = now
            elif now - self._drawn_at >= EVERY:
                progress, task = self._bar
                progress.update(task, completed=done, refresh=True)
                self._drawn_at = now

    def _begin(self, stage: str, total: int) -> None:
        from rich import progress  # noqa: PLC0415  slow to import, and only for terminals
        from rich.console import Console  # noqa: PLC0415  the same

        counts = (progress.BarColumn(), progress.MofNCompleteColumn()) if total > 1 else ()
        times = (progress.TimeElapsedColumn(), progress.TextColumn("gone"))
        left = (progress.TimeRemainingColumn(), progress.TextColumn("left")) if total > 1 else ()
        bar = progress.Progress(
            *(progress.TextColumn("{task.description}"), *counts, *times, *left),
            console=Console(file=self._terminal),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
        )
        self._bar = bar, bar.add_task(stage, total=total)
        bar.start()
        bar.refresh()

    def _erase(self) -> None:
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None


class ProgressLines:
    """Lines about a stage that takes long, where there is no terminal."""

    def __init__(self) -> None:
        self._stage = ""
        self._began = self._said_at = 0.0

    def pytest_lab_progress(self, stage: str, done: int, total: int) -> None:
        """See :class:`~lab.suites.plugin.Hooks`."""
        now = time.monotonic()
        if done >= total:
            self._stage = ""
        elif stage != self._stage:
            self._stage, self._began, self._said_at = stage, now, now
        elif now - self._said_at >= LINE_SECONDS:
            self._said_at = now
            say(progress_line(stage, done, total, now - self._began))


def progress_line(stage: str, done: int, total: int, seconds: float) -> str:
    """``probing: 1,200 of 2,300; 12 s gone, about 11 s left``; ``seconds``: since it began."""
    left = f", about {seconds * (total - done) / done:.0f} s left" if done else ""
    return f"{stage}: {done:,} of {total:,}; {seconds:.0f} s gone{left}"
