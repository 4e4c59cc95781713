"""How much of a matrix a run has asked, in figures and in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab._log import quantity
from lab.matrix.cell import Cell
from lab.matrix.cells import Product
from lab.matrix.grid import Grid
from lab.matrix.sampling import Choice, Strategy


@dataclass(frozen=True, slots=True)
class Part:
    """So many of so many."""

    found: int
    of: int

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return self.found == self.of


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was asked, of all that could have been."""

    strategy: Strategy
    seed: int
    cells: Part
    node_pairs: Part
    """Ordered pairs of different nodes, the one that asks and the one that is asked."""
    systems: Part
    """Pairs of operating systems, in each family."""
    askers: Part
    """Pods that ask."""
    asked: Part
    """Pods that answer, for themselves or alone behind a Service."""

    @property
    def figures(self) -> str:
        """``57,123 of 36,134,400``, or ``2,300`` where that is all of them."""
        whole = f"{self.cells.of:,}"
        return whole if self.cells.whole else f"{self.cells.found:,} of {whole}"

    @property
    def share(self) -> str:
        """The figures with their noun."""
        return f"{self.figures} {'cell' if self.cells.of == 1 else 'cells'}"

    @property
    def sentence(self) -> str:
        """What the share reaches; empty where all cells were asked."""
        if self.cells.whole:
            return ""
        reached = ", ".join(self._clauses())
        return reached if self.strategy == "full" else f"{self.sampled}: {reached}"

    @property
    def sampled(self) -> str:
        """``sample 'node-pairs', seed 0``."""
        return f"sample '{self.strategy}', seed {self.seed}"

    def _clauses(self) -> Iterator[str]:
        if self.node_pairs.of:
            yield _clause(self.node_pairs, "every node pair both ways", "node pairs")
        yield _clause(
            self.systems,
            "every pair of operating systems in every family",
            "pairs of operating systems by family",
        )
        if self.askers.whole and self.asked.whole:
            yield "every pod asks and is asked"
            return
        yield f"{self.askers.found:,} of {quantity(self.askers.of, 'pod')} ask"
        yield f"{self.asked.found:,} of {self.asked.of:,} are asked"


def _clause(part: Part, whole: str, noun: str) -> str:
    return whole if part.whole else f"{part.found:,} of {part.of:,} {noun}"


def coverage(product: Product, choice: Choice, asked: Sequence[Cell]) -> Coverage:
    """What those cells cover of the product that they are from."""
    nodes = _nodes(product)
    pairs = {pair for grid in product.grids for pair in _node_pairs(grid, nodes)}
    systems = {one for grid in product.grids for one in _systems(grid)}
    askers = {one.name for grid in product.grids for one in grid.sources if one.kind == "pod"}
    return Coverage(
        strategy=choice.strategy_for(product),
        seed=choice.seed,
        cells=Part(len(asked), product.size),
        node_pairs=Part(len(pairs & {_pair(cell) for cell in asked}), len(pairs)),
        systems=Part(len(systems & {_system(cell) for cell in asked}), len(systems)),
        askers=Part(len(askers & {cell.source.name for cell in asked}), len(askers)),
        asked=Part(
            len({cell.backends[0] for cell in asked if len(cell.backends) == 1} & askers),
            len(askers),
        ),
    )


def _nodes(product: Product) -> frozenset[str]:
    asking = {one.node for grid in product.grids for one in grid.sources if one.node}
    asked = {one.group for grid in product.grids for one in grid.targets if one.on_node}
    return frozenset(asking | asked)


def _node_pairs(grid: Grid, nodes: frozenset[str]) -> Iterator[tuple[str, str]]:
    groups = {target.group for target in grid.targets if target.on_node}
    return ((a, b) for a in grid.askers if a in nodes for b in groups if a != b)


def _pair(cell: Cell) -> tuple[str | None, str | None]:
    return cell.source.node, cell.entry or cell.target.node


def _systems(grid: Grid) -> Iterator[tuple[str, str, str]]:
    """By the sources that differ in operating system, two of each: one may not ask itself."""
    kept: dict[str, list[int]] = {}
    for place, source in enumerate(grid.sources):
        kept.setdefault(source.os, []).append(place)
    for places in kept.values():
        for source in (grid.sources[place] for place in places[:2]):
            for target in grid.targets:
                if source.name not in target.never:
                    yield grid.family, source.os, target.path(source).target.os


def _system(cell: Cell) -> tuple[str, str, str]:
    return cell.family, cell.source.os, cell.target.os
