"""Red cells by what broke them: every one belongs to a named cause, or to no cause found. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab._log import quantity
from lab.matrix.verdict import CellResult
from lab.reports.patterns import NOWHERE, Findings, Group, Hosts, red_groups
from lab.reports.wording import RED

MOST_WHERE = 5
"""Sentences of one cause; of the cells that none of them tells of there is the number."""
MOST_PLACED = 20
"""Causes, those with most cells first, that say what their cells have in common."""

Explain = Callable[[Sequence[CellResult], Sequence[int]], Findings]
"""Groups the marked cells of a population, given by their indexes."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Red cells that met the same thing first on their paths, or nothing that is wrong."""

    line: str
    """``on worker2, tunnel flannel.4096: VNI 4097; it should be: VNI 4096 (wrong-vni)``; empty
    where no cause was found."""
    cells: tuple[CellResult, ...]
    """In the run's order."""
    groups: tuple[Group, ...]
    """What the cells have in common, the widest first."""
    singles: tuple[CellResult, ...]
    """Those of the cells that are in no group."""

    @property
    def sentence(self) -> str:
        """The line, and how many cells are broken by it."""
        return f"{self.line}: {quantity(len(self.cells), 'cell')}"

    @property
    def example(self) -> CellResult:
        """One of the cells."""
        return self.groups[0].example if self.groups else self.cells[0]

    @property
    def where(self) -> tuple[str, ...]:
        """What the cells have in common, sentence by sentence; empty of a single cell."""
        shown = self.groups[:MOST_WHERE]
        told = [group.sentence for group in shown]
        placed = {result.cell.id for group in shown for result in group.cells}
        if shown and (rest := len(self.cells) - len(placed)):
            told.append(f"{quantity(rest, 'cell')} more")
        return tuple(told)


def red_causes(results: Sequence[CellResult], hosts: Hosts = NOWHERE) -> tuple[Cause, ...]:
    """The red cells of a run by their causes; ``hosts`` is what machines stand on."""
    red = [index for index, result in enumerate(results) if result.verdict in RED]
    return by_cause(results, red, lambda population, _: red_groups(population, hosts))


def in_common(results: Sequence[CellResult], hosts: Hosts = NOWHERE) -> str:
    """What all red cells of a run have in common, whatever broke each; empty where nothing is."""
    found = red_groups(results, hosts)
    return "" if found.singles or len(found.groups) != 1 else found.groups[0].sentence


def by_cause(
    population: Sequence[CellResult], marked: Sequence[int], explain: Explain
) -> tuple[Cause, ...]:
    """The marked cells of a population by their causes, most cells first, no cause found last.

    Marked cells of another cause say nothing about a cause: neither for nor against what its
    cells have in common.
    """
    lines = {index: _line(population[index]) for index in marked}
    counts = Counter(lines.values())
    order = sorted(counts, key=lambda line: (not line, -counts[line], line))
    return tuple(
        _cause(line, population, lines, explain if place < MOST_PLACED or not line else None)
        for place, line in enumerate(order)
    )


def _cause(
    line: str,
    population: Sequence[CellResult],
    lines: dict[int, str],
    explain: Explain | None,
) -> Cause:
    cells = tuple(population[index] for index, other in lines.items() if other == line)
    if explain is None:
        return Cause(line, cells, (), cells)
    kept = [index for index in range(len(population)) if lines.get(index, line) == line]
    marked = [place for place, index in enumerate(kept) if index in lines]
    found = explain([population[index] for index in kept], marked)
    return Cause(line, cells, found.groups, found.singles)


def _line(result: CellResult) -> str:
    return result.finding.line if result.finding else ""
