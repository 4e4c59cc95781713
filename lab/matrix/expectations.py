"""What each cell is expected to do: the first limit that speaks of it, else it must work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from lab.matrix.cell import Cell, Expectation
from lab.matrix.family import families
from lab.scenario.scenario import Limit, Match


def expect(cell: Cell, limits: Sequence[Limit]) -> Expectation:
    """Take the first limit that speaks of the cell; without one, what Kubernetes promises."""
    for limit in limits:
        if speaks_of(limit.when, cell):
            return Expectation.of_limit(limit)
    family = families()[cell.family]
    return family.works if cell.refusal is None else family.promised[cell.refusal]


def speaks_of(match: Match, cell: Cell) -> bool:
    """Whether every facet that the match names holds of the cell.

    ``source`` is held against the source's name and its node's; ``target`` against the
    target's name, its node's, and the names of the backends behind it.
    """
    return (
        (match.families is None or cell.family in match.families)
        and (match.source_kind is None or match.source_kind == cell.source.kind)
        and (match.source_os is None or match.source_os == cell.source.os)
        and (match.target_kind is None or match.target_kind == cell.target.kind)
        and (match.target_os is None or match.target_os == cell.target.os)
        and (match.relation is None or match.relation == cell.relation)
        and (match.protocol is None or match.protocol == cell.protocol)
        and (match.size is None or match.size == cell.size)
        and (match.name_form is None or match.name_form == cell.name_form)
        and (match.refusal is None or match.refusal == cell.refusal)
        and (match.entry is None or match.entry == _entry(cell))
        and (match.entry_os is None or match.entry_os == cell.entry_os)
        and (match.entry_node is None or _named(match.entry_node, (cell.entry,)))
        and (match.source is None or _named(match.source, (cell.source.name, cell.source.node)))
        and (
            match.target is None
            or _named(match.target, (cell.target.name, cell.target.node, *cell.backends))
        )
    )


def _entry(cell: Cell) -> str | None:
    if cell.entry is None:
        return None
    return "own" if cell.entry == cell.source.node else "other"


def _named(pattern: str, names: Iterable[str | None]) -> bool:
    return any(name is not None and fnmatchcase(name, pattern) for name in names)
