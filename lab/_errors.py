"""Every error that lab raises on purpose.

.. code-block:: text

    LabError                      exit code
    |-- UsageError                2  a wrong name, option or file
    |   `-- FileError             2  findings in a file the user wrote, all at once
    |       |-- ScenarioError     2  a scenario
    |       `-- InventoryError    2  an inventory
    |-- BrokenError               3  the lab is not in the state it should be in
    |   |-- DeadlineError         3  a wait ran out; carries the last value seen
    |   `-- MatrixError           3  a matrix with no cells to judge
    `-- PreflightError            4  this machine cannot do what is asked; nothing was created
        `-- StateError            4  the state directory cannot be used

Any other exception is a bug in lab itself: exit code 70, and a log with the traceback.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

PREFIX = "error: "
"""Begins every error that a command prints."""
_WORD = re.compile(r"""\S{400,}?(?=['"):;,.]*(?:\s|$))""")
"""A word too long to read: longer than any file name (255), and than most paths."""
_SHOWN = 60


class LabError(Exception):
    """Root of the tree.

    Parameters
    ----------
    doing
        What was being done, to which object: ``"bringing up lab 'overlay'"``. Line ends in it are
        escaped.
    happened
        What happened instead, a clause without a full stop.
    hint
        What to try next: a sentence or the exact command. Empty if there is no advice.

    """

    exit_code = 3

    def __init__(self, action: str, happened: str, hint: str = "") -> None:
        self.doing = action.replace("\r", "\\x0d").replace("\n", "\\x0a")
        self.happened = happened
        self.hint = hint
        super().__init__(action, happened, hint)

    @property
    def cause(self) -> str:
        """What happened, in one line."""
        return first_line(readable(f"{self.doing}: {self.happened}"))

    @property
    def shown(self) -> str:
        """The whole message, as commands print it."""
        return f"{PREFIX}{self}"

    def __str__(self) -> str:
        text = readable(f"{self.doing}: {self.happened}")
        return f"{text}\n  try: {readable(self.hint)}" if self.hint else text


class UsageError(LabError):
    """A wrong name, option or file."""

    exit_code = 2


class FileError(UsageError):
    """A file that the user wrote is invalid; ``lines`` has every finding, ready to print."""

    def __init__(self, action: str, lines: tuple[str, ...]) -> None:
        self.lines = lines
        count = f"{len(lines)} error" + ("" if len(lines) == 1 else "s")
        super().__init__(action, count)

    @property
    def cause(self) -> str:
        """The first finding, and the number of others."""
        more = len(self.lines) - 1
        return f"{self.lines[0]} (and {more} more)" if more else self.lines[0]

    @property
    def shown(self) -> str:
        """The findings, which editors read as FILE:LINE:COLUMN, then their number."""
        return "\n".join((*self.lines, f"{PREFIX}{self.doing}: {self.happened}"))

    def __str__(self) -> str:
        return "\n".join((*self.lines, f"{self.doing}: {self.happened}"))


class ScenarioError(FileError):
    """A scenario file is invalid."""


class InventoryError(FileError):
    """An inventory file is invalid."""


class BrokenError(LabError):
    """The lab, or a part of it, is not in the state it should be in."""

    exit_code = 3


class DeadlineError(BrokenError):
    """A wait timed out. The message names the condition and the last value seen."""


class MatrixError(BrokenError):
    """A matrix has no cells, or none in a family that the scenario asks for."""


class PreflightError(LabError):
    """The machine cannot do what is asked; nothing was created."""

    exit_code = 4


class StateError(PreflightError):
    """The state directory cannot be used: full, read-only, or from a newer version."""


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM; treated like Ctrl-C."""


INTERRUPTED = 130
"""128 plus the number of SIGINT, as in shells."""
TERMINATED = 143
"""128 plus the number of SIGTERM."""


def stop_code(stop: BaseException) -> int:
    """The exit code of a command that ``stop`` ended, by the first exception that caused it."""
    while stop.__cause__ is not None:
        stop = stop.__cause__
    return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


def first_line(text: str) -> str:
    """The first line of a message, joined with the next one if it ends in a colon."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


_NEAR = 3


def nearest_names(name: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """The known name that is nearest, or the first three of those that are equally near.

    Of equally similar names, those with the longest common beginning are nearest. ``cutoff``: the
    least similarity, 0 to 1, as of :func:`difflib.get_close_matches`.
    """
    from difflib import SequenceMatcher, get_close_matches  # noqa: PLC0415  only for a wrong name

    names = list(known)
    ranks = {
        near: (
            SequenceMatcher(None, near, name).ratio(),
            len(os.path.commonprefix((near, name))),  # noqa: RUF071  names, no paths
        )
        for near in get_close_matches(name, names, n=len(names) or 1, cutoff=cutoff)
    }
    nearest = sorted(near for near, rank in ranks.items() if rank == max(ranks.values()))
    return nearest[:_NEAR]


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """``did you mean 'overlay'?``, with the nearest known names; empty if none is near."""
    near = " or ".join(f"'{each}'" for each in nearest_names(name, known, cutoff))
    return f"did you mean {near}?" if near else ""


def os_words(error: OSError) -> str:
    """What the system says happened, as a clause."""
    return (error.strerror or str(error) or type(error).__name__).lower()


def os_failure(error: OSError) -> str:
    """The same after the file or call that the system names, if it names one."""
    named = f"'{error.filename}': " if error.filename else ""
    return f"{named}{os_words(error)}"


def readable(text: str) -> str:
    """The text with each overlong word replaced by its beginning and its length.

    User input that errors quote may be arbitrarily long.
    """
    return _WORD.sub(lambda word: f"{word[0][:_SHOWN]}...({len(word[0]):,} characters)", text)
