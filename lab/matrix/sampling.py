"""Choose a sample of cells if there are too many. Pure: the same for the same seed.

``os-pairs`` probes each kind of cell a few times; a kind is a family, the operating systems at both
ends, the relation, and the variant. In every family, every node is a source and a target, and every
kind of source (pods, nodes and the client, by operating system) is used. ``node-pairs`` adds, in
every family, each pair of nodes at least once, and each pod as a source and as a target. If the
matrix has more cells than the choice's limit, more cells of each pair of nodes are added up to that
limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Literal

from lab._log import quantity
from lab.matrix.cell import Cell, Grid
from lab.matrix.cells import Matrix
from lab.scenario.terms import Family

Strategy = Literal["full", "node-pairs", "os-pairs"]
STRATEGIES: tuple[Strategy, ...] = ("full", "node-pairs", "os-pairs")
LIMIT = 50_000
"""Above this number of cells, the default is ``node-pairs``: this many take half a minute."""
_EACH = 3
"""Cells of each kind: one failure may be an accident, three are not."""
_STRIDE = 1_000_003
"""A prime stride visits every position of a ring whose size is not a multiple of it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice of cells from a matrix."""

    strategy: Strategy | None = None
    """None for the default: all cells unless there are too many."""
    seed: int = 0
    named: tuple[str, ...] = ()
    """Ids of cells to add to any sample; unknown ids are ignored."""
    families: tuple[Family, ...] = ()
    """Families to add that are tested only on request."""
    limit: int = LIMIT
    """Cells that are not too many."""

    def strategy_for(self, matrix: Matrix) -> Strategy:
        """The requested strategy, or the default for this number of cells."""
        return self.strategy or ("full" if matrix.size <= self.limit else "node-pairs")


def sample(matrix: Matrix, choice: Choice) -> tuple[Cell, ...]:
    """The cells to probe, in the order of the product; those added by name come last."""
    strategy = choice.strategy_for(matrix)
    if strategy == "full":
        return tuple(matrix.cells())
    samplers = [_Sampler(grid, choice.seed) for grid in matrix.grids]
    for sampler in samplers:
        sampler.every_kind()
        if strategy == "node-pairs":
            sampler.every_pair()
            sampler.every_end()
        else:
            sampler.every_node()
        sampler.every_source()
    if strategy == "node-pairs" and matrix.size > choice.limit:
        _fill(samplers, choice.limit)
    sampled = [cell for sampler in samplers for cell in sampler.cells()]
    return (*sampled, *_find_named(matrix, sampled, choice.named))


def _fill(samplers: Sequence[_Sampler], limit: int) -> None:
    """Add another cell for each pair of nodes, as long as the total stays below the limit."""
    number = sum(len(sampler.indexes) for sampler in samplers)
    while number + sum(sampler.pairs for sampler in samplers) <= limit:
        for sampler in samplers:
            sampler.every_pair()
        before, number = number, sum(len(sampler.indexes) for sampler in samplers)
        if number == before:
            return


def _find_named(matrix: Matrix, sampled: Sequence[Cell], named: Sequence[str]) -> Iterator[Cell]:
    ids = {cell.id for cell in sampled} if named else set()
    for cell_id in named:
        if cell_id not in ids and (cell := matrix.find(cell_id)):
            ids.add(cell_id)
            yield cell


class _Sampler:
    """The cells chosen from one grid.

    ``indexes``: (source * targets + target) * variants + variant. A pair is a group of
    sources and a group of targets; its cells form a ring, from which they are taken in strides,
    starting at a position that depends on the seed.
    """

    def __init__(self, grid: Grid, seed: int) -> None:
        self.indexes: set[int] = set()
        self._grid = grid
        self._askers = list(grid.sources_by_node.values())
        self._asked = list(grid.targets_by_group.values())
        self._kinds = [
            len({grid.targets[index].kind for index in indexes}) for indexes in self._asked
        ]
        self._deep = max(len(grid.variants), len(grid.small))
        self._chance = Random(f"{grid.family}/{seed}").random  # noqa: S311  a sample, no secret
        self._starts = [self._chance() for _ in range(self.pairs)]
        self._rings: dict[int, Iterator[tuple[int, int, int]]] = {}

    @property
    def pairs(self) -> int:
        return len(self._askers) * len(self._asked)

    def every_kind(self) -> None:
        """Add ``_EACH`` cells of each kind."""
        grid = self._grid
        numbers: Counter[tuple[object, ...]] = Counter()
        for source, target in self._examples():
            path = grid.targets[target].path(grid.sources[source])
            kind = (path.source.os, path.target.os, path.relation, path.name_form)
            for number, variant in enumerate(grid.variants_of(grid.targets[target])):
                if numbers[kind, variant] < _EACH:
                    numbers[kind, variant] += 1
                    self._add(source, target, number)

    def _examples(self) -> Iterator[tuple[int, int]]:
        """For each pair, in random order, a source with a target of each kind."""
        for _, pair in sorted((self._chance(), pair) for pair in range(self.pairs)):
            kinds: set[str] = set()
            for source, target, _ in self._ring(pair):
                kind = self._grid.targets[target].kind
                if kind not in kinds:
                    kinds.add(kind)
                    yield source, target
                if len(kinds) == self._kinds[pair % len(self._asked)]:
                    break

    def every_pair(self) -> None:
        """Add one more cell of each pair, if it has any left."""
        for pair in range(self.pairs):
            before = len(self.indexes)
            for ends in self._rings.setdefault(pair, self._ring(pair)):
                self._add(*ends)
                if len(self.indexes) > before:
                    break

    def every_end(self) -> None:
        """Add one cell for each source and each target that has none yet."""
        self._use(range(len(self._grid.sources)), range(len(self._grid.targets)))

    def every_node(self) -> None:
        """Add one cell for a source and for a target of each node, if they have none yet."""
        self._use([first for first, *_ in self._askers], [first for first, *_ in self._asked])

    def every_source(self) -> None:
        """Use at least ``_EACH`` sources of each kind and operating system."""
        kinds: dict[tuple[str, str], list[int]] = {}
        for index, source in enumerate(self._grid.sources):
            kinds.setdefault((source.kind, source.os), []).append(index)
        asking = self._asking()
        for indexes in kinds.values():
            silent = [index for index in indexes if index not in asking]
            missing = _EACH - (len(indexes) - len(silent))
            for number in islice(self._turned(len(silent)), max(0, missing)):
                self._use((silent[number],), ())

    def _asking(self) -> set[int]:
        return {index // self._deep // len(self._grid.targets) for index in self.indexes}

    def _use(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        wide, high = len(self._grid.targets), len(self._grid.sources)
        asking = self._asking()
        for source in sources:
            if source not in asking:
                self._first((source, target) for target in self._turned(wide))
        used = {index // self._deep % wide for index in self.indexes}
        for target in targets:
            if target not in used:
                self._first((source, target) for source in self._turned(high))

    def _turned(self, number: int) -> Iterator[int]:
        """All numbers below ``number``, starting at a random one and wrapping around."""
        start = int(self._chance() * number)
        return (index % number for index in range(start, start + number))

    def _first(self, ends: Iterable[tuple[int, int]]) -> None:
        """Add a cell of the first valid pair of ``ends``."""
        for source, target in ends:
            if self._asks(source, target):
                variants = len(self._grid.variants_of(self._grid.targets[target]))
                self._add(source, target, int(self._chance() * variants))
                return

    def _asks(self, source: int, target: int) -> bool:
        return self._grid.sources[source].name not in self._grid.targets[target].excluded

    def _ring(self, pair: int) -> Iterator[tuple[int, int, int]]:
        sources = self._askers[pair // len(self._asked)]
        targets = self._asked[pair % len(self._asked)]
        around = len(sources) * len(targets) * self._deep
        start = int(self._starts[pair] * around)
        for step in range(around):
            ends, variant = divmod((start + step * _STRIDE) % around, self._deep)
            source, target = sources[ends // len(targets)], targets[ends % len(targets)]
            variants = len(self._grid.variants_of(self._grid.targets[target]))
            if variant < variants and self._asks(source, target):
                yield source, target, variant

    def _add(self, source: int, target: int, variant: int) -> None:
        self.indexes.add((source * len(self._grid.targets) + target) * self._deep + variant)

    def cells(self) -> Iterator[Cell]:
        grid, ends, path = self._grid, -1, None
        for index in sorted(self.indexes):
            target = grid.targets[index // self._deep % len(grid.targets)]
            if path is None or index // self._deep != ends:
                ends = index // self._deep
                path = target.path(grid.sources[ends // len(grid.targets)])
            yield grid.cell(path, grid.variants_of(target)[index % self._deep])


@dataclass(frozen=True, slots=True)
class Part:
    """A count out of a total."""

    found: int
    of: int

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return self.found == self.of


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the matrix was probed."""

    strategy: Strategy
    seed: int
    cells: Part
    node_pairs: Part
    """Ordered pairs of different nodes, source and target."""
    systems: Part
    """Pairs of operating systems, in each family."""
    askers: Part
    asked: Part
    """Pods that answer, directly or as the only backend of a Service."""

    @property
    def figures(self) -> str:
        """``57,123 of 36,134,400``, or ``2,300`` if that is all."""
        whole = f"{self.cells.of:,}"
        return whole if self.cells.whole else f"{self.cells.found:,} of {whole}"

    @property
    def share(self) -> str:
        """The figures with the noun."""
        return f"{self.figures} {'cell' if self.cells.of == 1 else 'cells'}"

    @property
    def sentence(self) -> str:
        """What the sample covers; empty if all cells were probed."""
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
            yield _describe_part(self.node_pairs, "every node pair both ways", "node pairs")
        yield _describe_part(
            self.systems,
            "every pair of operating systems in every family",
            "pairs of operating systems by family",
        )
        if self.askers.whole and self.asked.whole:
            yield "every pod is a source and a target"
            return
        yield f"{self.askers.found:,} of {quantity(self.askers.of, 'pod')} as sources"
        yield f"{self.asked.found:,} of {self.asked.of:,} as targets"


def _describe_part(part: Part, whole: str, noun: str) -> str:
    return whole if part.whole else f"{part.found:,} of {part.of:,} {noun}"


def coverage(matrix: Matrix, choice: Choice, cells: Sequence[Cell]) -> Coverage:
    """How much of the product the cells in ``cells`` cover."""
    nodes = _nodes(matrix)
    pairs = {pair for grid in matrix.grids for pair in _node_pairs(grid, nodes)}
    systems = {system for grid in matrix.grids for system in _systems(grid)}
    askers = {
        source.name for grid in matrix.grids for source in grid.sources if source.kind == "pod"
    }
    return Coverage(
        strategy=choice.strategy_for(matrix),
        seed=choice.seed,
        cells=Part(len(cells), matrix.size),
        node_pairs=Part(len(pairs & {_pair(cell) for cell in cells}), len(pairs)),
        systems=Part(len(systems & {_system(cell) for cell in cells}), len(systems)),
        askers=Part(len(askers & {cell.source.name for cell in cells}), len(askers)),
        asked=Part(
            len({cell.backends[0] for cell in cells if len(cell.backends) == 1} & askers),
            len(askers),
        ),
    )


def _nodes(matrix: Matrix) -> frozenset[str]:
    asking = {source.node for grid in matrix.grids for source in grid.sources if source.node}
    targets = {target.group for grid in matrix.grids for target in grid.targets if target.on_node}
    return frozenset(asking | targets)


def _node_pairs(grid: Grid, nodes: frozenset[str]) -> Iterator[tuple[str, str]]:
    groups = {target.group for target in grid.targets if target.on_node}
    return ((a, b) for a in grid.sources_by_node if a in nodes for b in groups if a != b)


def _pair(cell: Cell) -> tuple[str | None, str | None]:
    return cell.source.node, cell.entry or cell.target.node


def _systems(grid: Grid) -> Iterator[tuple[str, str, str]]:
    """Pairs of operating systems, from two sources of each: one may not probe itself."""
    by_system: dict[str, list[int]] = {}
    for index, source in enumerate(grid.sources):
        by_system.setdefault(source.os, []).append(index)
    for indexes in by_system.values():
        for source in (grid.sources[index] for index in indexes[:2]):
            for target in grid.targets:
                if source.name not in target.excluded:
                    yield grid.family, source.os, target.path(source).target.os


def _system(cell: Cell) -> tuple[str, str, str]:
    return cell.family, cell.source.os, cell.target.os
