"""Which expected time-outs a run has not tested: their path let nothing through. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lab.matrix.cell import Cell, Expectation
from lab.matrix.verdict import Verdict

UNPROVEN = "not put to the test"
"""What the detail of such a cell says of it."""
Path = tuple[str, str]
"""The source's node and that of the machine that answers."""


def unproven(
    cells: Sequence[Cell], expectations: Sequence[Expectation], verdicts: Sequence[Verdict]
) -> frozenset[int]:
    """The indexes of cells that are to time out, and do, as they would on a broken path.

    Those are the ones for which the run has controls, cells of the same path that should work,
    of which none did. Without a control nothing is known, and nothing said.
    """
    tried: set[Path] = set()
    through: set[Path] = set()
    for cell, expectation, verdict in zip(cells, expectations, verdicts, strict=True):
        path = _path(cell)
        if path is not None and expectation.works and _is_direct(cell):
            tried.add(path)
            if verdict in {"pass", "flaky"}:
                through.add(path)
    broken = tried - through
    return frozenset(
        index
        for index, cell in enumerate(cells)
        if verdicts[index] in {"known-limit", "pass"}
        and expectations[index].refusal == "timeout"
        and _path(cell) in broken
    )


def _path(cell: Cell) -> Path | None:
    source, target = cell.source.node, cell.target.node
    return None if source is None or target is None else (source, target)


def _is_direct(cell: Cell) -> bool:
    """Whether no third node stands between the two."""
    return cell.entry in {None, cell.source.node, cell.target.node}
