"""Whether this machine can hold a matrix: its memory, and the disk for what is found."""

from __future__ import annotations

from pathlib import Path

from lab._errors import PreflightError
from lab.matrix.sampling import LIMIT, Strategy
from lab.state.memory import available
from lab.state.room import check_room

_BYTES_A_CELL = 10_000
"""Cell, pytest item, outcome, JUnit and reports; measured: 9.5 KB a cell with 57,000 of them."""
_STORED_A_CELL = 2_500
"""result.json, JUnit twice while it is handed over, report.html and journal; measured: 1.5 KB,
and 2.3 KB where a third of the cells fail."""
_GIB = 1 << 30


def require(cells: int, strategy: Strategy, lab: str) -> None:
    """Refuse what does not fit.

    A sample by ``node-pairs`` has about :data:`LIMIT` cells; one by ``os-pairs`` always fits.

    Raises
    ------
    PreflightError
        With the figures, and what can be asked instead.

    """
    whole = strategy == "full"
    asked = cells if whole else min(cells, LIMIT)
    needed = asked * _BYTES_A_CELL
    free = available()
    if needed > free and strategy != "os-pairs":
        raise PreflightError(
            f"asking {'every cell' if whole else 'a sample'} of lab '{lab}'",
            f"{asked:,} cells need about {needed / _GIB:,.1f} GiB of memory, and this machine "
            f"has {free / _GIB:,.1f} GiB free",
            f"--sample {'node-pairs' if cells > LIMIT and whole else 'os-pairs'}, or fewer "
            "families under 'matrix' in the scenario",
        )


def require_disk(cells: int, directory: Path) -> None:
    """Refuse to probe what could not be stored afterwards.

    Raises
    ------
    FullError
        With what is free and what is needed.

    """
    check_room(directory, cells * _STORED_A_CELL)
