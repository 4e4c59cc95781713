"""Whether this machine can hold a matrix of which every cell is asked."""

from __future__ import annotations

from lab._errors import PreflightError
from lab.matrix.sampling import Strategy
from lab.state.memory import available

_BYTES_A_CELL = 8_000
"""Cell, pytest item, outcome, JUnit and reports; measured: 7.4 KB a cell with 40,000 of them."""
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
