"""The figures of a run: verdicts by family, latencies, the slowest cells. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from lab._log import quantity
from lab.matrix.judge import format_rate
from lab.matrix.verdict import RED, VERDICTS, CellResult, RunResult, Verdict
from lab.reports.patterns import list_concerned
from lab.reports.wording import latency_ms, percentile, throughput_of
from lab.scenario.families import family_terms
from lab.scenario.terms import Family


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """The cells of one family: their number, and the counts in the order of the table's columns."""

    family: Family
    cells: int
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FamilyTable:
    """Rows for families and columns for verdicts that occur; ``pass`` is always a column."""

    verdicts: tuple[Verdict, ...]
    rows: tuple[FamilyRow, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of some cells, ascending, and the slowest of these cells, slowest first."""

    values: tuple[float, ...]
    slowest: tuple[tuple[float, CellResult], ...]

    @property
    def median(self) -> float:
        """The median; at least one cell must be measured."""
        return percentile(self.values, 0.5)

    @property
    def p99(self) -> float:
        """The 99th percentile; at least one cell must be measured."""
        return percentile(self.values, 0.99)


def family_table(run: RunResult) -> FamilyTable:
    """Count the run's cells by family and verdict."""
    counts = Counter((result.cell.family, result.verdict) for result in run.results)
    present = {verdict for _, verdict in counts} | {"pass"}
    verdicts = tuple(verdict for verdict in VERDICTS if verdict in present)
    rows = []
    for family in family_terms():
        numbers = tuple(counts[family, verdict] for verdict in verdicts)
        if any(numbers):
            rows.append(FamilyRow(family, sum(numbers), numbers))
    return FamilyTable(verdicts, tuple(rows))


def latencies(run: RunResult, slowest: int = 3) -> Measured:
    """Milliseconds of every cell that was answered; a stream's are those of its connection."""
    measured = _collect_measures(run, latency_ms)
    return Measured(tuple(value for value, _ in measured), tuple(measured[: -slowest - 1 : -1]))


def throughputs(run: RunResult, slowest: int = 3) -> Measured:
    """Bits a second of every stream that was measured."""
    measured = _collect_measures(run, throughput_of)
    return Measured(tuple(value for value, _ in measured), tuple(measured[:slowest]))


def _collect_measures(
    run: RunResult, measure: Callable[[CellResult], float | None]
) -> list[tuple[float, CellResult]]:
    pairs = [(value, result) for result in run.results if (value := measure(result)) is not None]
    return sorted(pairs, key=lambda pair: pair[0])


def span_of(streams: Measured) -> str:
    """``from 940 Mbit/s to 5.3 Gbit/s, of 10 streams``; at least one must be measured."""
    least, most = format_rate(streams.values[0]), format_rate(streams.values[-1])
    span = least if least == most else f"from {least} to {most}"
    return f"{span}, of {quantity(len(streams.values), 'stream')}"


@dataclass(frozen=True, slots=True)
class Share:
    """How many of the cells that involve a machine or pod are red, without known limits."""

    red: int
    cells: int
    limits: int = 0
    """The number of cells with a known limit."""

    @property
    def probed(self) -> bool:
        """Whether any cell was probed."""
        return self.cells + self.limits > 0

    @property
    def level(self) -> int:
        """0: none red, 1: up to 10 %, 2: up to 50 %, 3: up to 90 %, 4: more."""
        if not self.red:
            return 0
        share = self.red / self.cells
        return 1 + sum(share > bound for bound in (0.1, 0.5, 0.9))

    @property
    def words(self) -> str:
        """``992 of 992 red``."""
        if not self.cells:
            return "only known limits" if self.limits else "not probed"
        return f"{self.red:,} of {self.cells:,} red" if self.red else "all as expected"


def shares(run: RunResult) -> dict[str, Share]:
    """The share of red cells of every machine and pod, by name."""
    red: Counter[str] = Counter()
    cells: Counter[str] = Counter()
    limits: Counter[str] = Counter()
    for result in run.results:
        names = list_concerned(result.cell)
        if result.verdict == "known-limit":
            limits.update(names)
            continue
        cells.update(names)
        if result.verdict in RED:
            red.update(names)
    return {name: Share(red[name], cells[name], limits[name]) for name in cells | limits}
