"""Whether this machine can hold a matrix: its memory, and the disk for what is found."""

from __future__ import annotations

from pathlib import Path

from lab._errors import PreflightError
from lab.matrix.sampling import Strategy
from lab.state.memory import available
from lab.state.room import check_room

_BYTES_A_CELL = 8_000
"""Cell, pytest item, outcome, JUnit and reports; measured: 7.4 KB a cell with 40,000 of them."""
_STORED_A_CELL = 3_000
"""result.json, JUnit twice while it is handed over, report.html and journal; measured: 2.6 KB."""
_GIB = 1 << 30


def require(cells: int, strategy: Strategy, lab: str) -> None:
    """Refuse what does not fit.

    Raises
    ------
    PreflightError
        With the figures, and what can be asked instead.

    """
    needed = cells * _BYTES_A_CELL
    free = available()
    if strategy == "full" and needed > free:
        raise PreflightError(
            f"asking every cell of lab '{lab}'",
            f"{cells:,} cells need about {needed / _GIB:,.1f} GiB of memory, and this machine "
            f"has {free / _GIB:,.1f} GiB free",
            "--sample node-pairs, or fewer families under 'matrix' in the scenario",
        )


def require_disk(cells: int, directory: Path) -> None:
    """Refuse to probe what could not be stored afterwards.

    Raises
    ------
    FullError
        With what is free and what is needed.

    """
    check_room(directory, cells * _STORED_A_CELL)
