"""Which failed cells are tried again, and in which order, so that a budget buys the most."""

from __future__ import annotations

from collections.abc import Sequence

from lab.matrix.cell import Cell
from lab.scenario.terms import Family

Group = tuple[str, str, Family]


def group(cell: Cell) -> Group:
    """Source node, target node and family: cells that usually fail for one reason.

    For a NodePort the target node is the one asked. Where an end stands on no node, its own
    name takes the place of the node's.
    """
    target = cell.entry or cell.target.node or cell.target.name
    return (cell.source.node or cell.source.name, target, cell.family)


def retry_order(failed: Sequence[int], cells: Sequence[Cell], each: int) -> tuple[int, ...]:
    """The failed cells' indexes, most telling first.

    First one cell of every group, then a second of every group, and so on up to ``each`` of
    them; then all the rest. Within a round the order of ``failed`` is kept.
    """
    rounds: list[list[int]] = [[] for _ in range(each + 1)]
    seen: dict[Group, int] = {}
    for index in failed:
        key = group(cells[index])
        rank = seen.get(key, 0)
        seen[key] = rank + 1
        rounds[min(rank, each)].append(index)
    return tuple(index for members in rounds for index in members)
