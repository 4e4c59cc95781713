"""Compare two runs, cell by cell, and group the changes into few sentences. Pure.

Cells are the same if they have the same id. DNS names are an exception: their namespace and domain
depend on the provider, so they are matched by their form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from lab._errors import UsageError
from lab._log import one_line, quantity
from lab.matrix.assertion import AssertionResult
from lab.matrix.cell import Cell
from lab.matrix.verdict import GREEN, CellResult, RunResult, Verdict
from lab.providers.workloads import WorkloadResult
from lab.reports.explanation import Cause, by_cause
from lab.reports.patterns import Group, Hosts, group_cells
from lab.reports.wording import closing_line, describe_sample, in_full

SHOWN = 10
"""Cells of one kind of change, outside any pattern, that the text lists; the rest are counted."""

Kind = Literal["failing", "passing", "changed", "gone", "new"]


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """One cell whose verdict has changed; None for a run that does not have the cell."""

    cell: str
    before: Verdict | None
    after: Verdict | None

    @property
    def move(self) -> str:
        """``pass, now fail``."""
        return f"{self.before or 'not there'}, now {self.after or 'not there'}"

    def words(self) -> str:
        """``pod-pod/a-p1/b-p1/tcp-small: pass, now fail``."""
        return f"{self.cell}: {self.move}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Changes of one kind that one sentence describes."""

    sentence: str
    """The cause with its number of cells; without a cause, what the cells have in common:
    ``everything to and from win1 (44 of 44 cells)``, out of all such cells."""
    where: tuple[str, ...]
    """What the cells of a cause have in common; empty if the sentence says it."""
    cells: tuple[str, ...]
    example: VerdictChange
    detail: str
    """Why the example has its verdict; empty for a plain pass."""
    cause: str
    """The first fault on the paths of all the cells; empty if none was found."""
    repeat: str
    """The command that repeats the example."""


TITLES: Mapping[Kind, str] = {
    "failing": "newly failing",
    "passing": "newly passing",
    "changed": "verdict changed",
    "gone": "gone",
    "new": "new",
}
"""Kinds of change, the worst first, and their titles. ``failing``: as expected before, but not now.
``passing``: the reverse. ``changed``: another verdict of the same colour, such as ``fail`` to
``flaky``. ``gone`` and ``new``: only one of the runs has the cell."""


@dataclass(frozen=True, slots=True)
class RunDifference:
    """Two runs and the change of every cell, in the order of the run that has it."""

    before: RunResult
    after: RunResult
    changes: Mapping[Kind, tuple[VerdictChange, ...]]
    """By kind, those that occur, the worst first."""
    unasked: tuple[VerdictChange, ...]
    """Probed in one run only: the other run has the cell, but not in its sample."""
    patterns: Mapping[Kind, tuple[Pattern, ...]]
    """Patterns in the changes of each kind; some changes are in none."""
    unchanged: int
    """Number of cells with the same verdict in both runs."""

    @property
    def worse(self) -> int:
        """Number of cells that were as expected and no longer are."""
        return len(self.changes.get("failing", ()))

    @property
    def exit_code(self) -> int:
        """1 if cells that were as expected no longer are, else 0."""
        return 1 if self.worse else 0

    @property
    def common(self) -> int:
        """Number of cells that both runs have."""
        moved = (len(self.changes.get(kind, ())) for kind in ("failing", "passing", "changed"))
        return self.unchanged + sum(moved)


_OTHERS: Mapping[Kind, str] = {
    "failing": "still pass",
    "passing": "passed before",
    "changed": "do not",
    "gone": "are in both",
    "new": "are in both",
}
"""Predicate for the other cells of a pattern."""
_PLAIN: Mapping[Kind, str] = {"failing": "pass, now fail", "passing": "fail, now pass"}
"""The usual move, which is not mentioned."""


def difference(before: RunResult, after: RunResult) -> RunDifference:
    """What changed from one run to a later one."""
    old, now = _cells(before), _cells(after)
    changes_of: dict[Kind, list[VerdictChange]] = {kind: [] for kind in TITLES}
    unasked: list[VerdictChange] = []
    was_left_out, is_left_out = _left_out_by(before, after), _left_out_by(after, before)
    unchanged = 0
    for key, result in now.items():
        earlier = old.get(key)
        change = VerdictChange(_id(result), earlier.verdict if earlier else None, result.verdict)
        if change.before == change.after:
            unchanged += 1
        elif earlier is None and was_left_out(result):
            unasked.append(change)
        else:
            changes_of[_kind(change)].append(change)
    for key, result in old.items():
        if key not in now:
            change = VerdictChange(_id(result), result.verdict, None)
            (unasked if is_left_out(result) else changes_of["gone"]).append(change)
    hosts = dict((*before.hosts, *after.hosts))
    occurring = {kind: tuple(changes) for kind, changes in changes_of.items() if changes}
    return RunDifference(
        before,
        after,
        occurring,
        tuple(unasked),
        patterns={
            kind: _patterns(kind, changes, _population(kind, before, after, old), hosts)
            for kind, changes in occurring.items()
        },
        unchanged=unchanged,
    )


_Result = CellResult | WorkloadResult | AssertionResult


def _left_out_by(run: RunResult, other: RunResult) -> Callable[[_Result], bool]:
    """Tells of a cell or check that only ``other`` has whether ``run`` did not choose it.

    Its scenario then has it: as far as is known, for a run of another scenario.
    """
    if run.coverage is None or run.coverage.cells.whole:
        return lambda _: False
    if run.scenario_text and (run.scenario_text, run.only) == (other.scenario_text, other.only):
        return lambda _: True
    known = {end for result in run.results for end in _ends(result.cell)}
    return lambda result: isinstance(result, CellResult) and known.issuperset(_ends(result.cell))


def _ends(cell: Cell) -> tuple[str, ...]:
    """The source, and the node and the Service of the target."""
    target = cell.target.name.partition(".")[0] if cell.name_form else cell.target.name
    return (cell.source.name, *target.split(":"))


def _cells(run: RunResult) -> dict[str, _Result]:
    """Everything that a run has judged: cells, workload checks and assertions."""
    judged: dict[str, _Result] = {_key(result.cell): result for result in run.results}
    checks: tuple[_Result, ...] = (*run.workloads, *run.assertions)
    return judged | {_id(check): check for check in checks}


def _id(judged: _Result) -> str:
    if isinstance(judged, CellResult):
        return judged.cell.id
    return f"workloads/{judged.id}" if isinstance(judged, WorkloadResult) else judged.item


def _key(cell: Cell) -> str:
    if cell.name_form is None:
        return cell.id
    service = cell.target.name.partition(".")[0]
    return f"dns/{cell.source.name}/{cell.name_form}:{service}/{cell.protocol}-{cell.size}"


def _kind(change: VerdictChange) -> Kind:
    if change.before is None:
        return "new"
    if (change.before in GREEN) == (change.after in GREEN):
        return "changed"
    return "passing" if change.after in GREEN else "failing"


def _population(
    kind: Kind, before: RunResult, after: RunResult, old: Mapping[str, _Result]
) -> list[CellResult]:
    """The cells in which patterns are searched.

    For newly failing cells: those that were as expected. For newly passing cells: those that are as
    expected now. Known limits that held both times are in neither.
    """
    if kind == "gone":
        return list(before.results)
    if kind == "new":
        return list(after.results)
    counts = _COUNTS[kind]
    keyed = ((old.get(_key(result.cell)), result) for result in after.results)
    return [
        result
        for earlier, result in keyed
        if earlier is not None and counts(earlier.verdict, result.verdict)
    ]


_COUNTS: Mapping[Kind, Callable[[Verdict, Verdict], bool]] = {
    "failing": lambda was, now: was in GREEN and {was, now} != {"known-limit"},
    "passing": lambda was, now: now in GREEN and {was, now} != {"known-limit"},
    "changed": lambda was, now: (was in GREEN) == (now in GREEN),
}


def _patterns(
    kind: Kind, changes: Sequence[VerdictChange], population: Sequence[CellResult], hosts: Hosts
) -> tuple[Pattern, ...]:
    by_id = {change.cell: change for change in changes}
    marked = [index for index, result in enumerate(population) if result.cell.id in by_id]
    causes = by_cause(
        population, marked, lambda cells, red: group_cells(cells, red, _OTHERS[kind], hosts=hosts)
    )
    patterns: list[Pattern] = []
    for cause in causes:
        sentences = [_sentence(kind, group, by_id) for group in cause.groups]
        if cause.line:
            patterns.append(_pattern(cause.sentence, tuple(sentences), cause, by_id, cause.line))
            continue
        for sentence, group in zip(sentences, cause.groups, strict=True):
            patterns.append(_pattern(sentence, (), group, by_id))
    return tuple(patterns)


def _pattern(
    sentence: str,
    where: tuple[str, ...],
    of: Cause | Group,
    changes: Mapping[str, VerdictChange],
    cause: str = "",
) -> Pattern:
    example = of.example
    cells = tuple(result.cell.id for result in of.cells)
    change = changes[example.cell.id]
    return Pattern(sentence, where, cells, change, example.detail, cause, example.repeat)


def _sentence(kind: Kind, group: Group, changes: Mapping[str, VerdictChange]) -> str:
    moved = [changes[result.cell.id] for result in group.cells]
    return f"{group.phrase} ({_numbers(kind, group, moved)})"


def _numbers(kind: Kind, group: Group, changes: Sequence[VerdictChange]) -> str:
    parts = [f"{len(changes):,} of {quantity(group.total, 'cell')}"]
    moves = Counter(change.move for change in changes)
    if kind not in {"gone", "new"} and set(moves) != {_PLAIN.get(kind)}:
        parts += [f"{count:,} {move}" for move, count in moves.most_common()]
    return "; ".join([*parts, group.note] if group.note else parts)


def to_json(changes: RunDifference) -> dict[str, Any]:
    """The difference as values that :mod:`json` can write."""
    kinds: dict[str, Any] = {
        kind: [asdict(change) for change in changes.changes.get(kind, ())] for kind in TITLES
    }
    patterns = {
        kind: [
            {
                "sentence": pattern.sentence,
                "where": list(pattern.where),
                "cause": pattern.cause,
                "cells": list(pattern.cells),
            }
            for pattern in patterns
        ]
        for kind, patterns in changes.patterns.items()
    }
    unasked = [asdict(change) for change in changes.unasked]
    return {**kinds, "unasked": unasked, "patterns": patterns, "unchanged": changes.unchanged}


def text_lines(run_difference: RunDifference) -> list[str]:
    """The difference as text: for each kind of change its patterns, then the other cells."""
    lines: list[str] = []
    for kind, changes in run_difference.changes.items():
        lines.append(f"{quantity(len(changes), 'cell')} {TITLES[kind]}")
        covered: set[str] = set()
        for pattern in run_difference.patterns.get(kind, ()):
            covered.update(pattern.cells)
            lines += [f"  * {pattern.sentence}", *_example(kind, pattern)]
        alone = [change for change in changes if change.cell not in covered]
        lines += [f"  * {change.words()}" for change in alone[:SHOWN]]
        if len(alone) > SHOWN:
            lines.append(f"  and {len(alone) - SHOWN:,} more")
    return lines


def _example(kind: Kind, pattern: Pattern) -> list[str]:
    if kind in {"gone", "new"}:
        return [f"    example: {pattern.example.cell}"]
    lines = [f"    where:   {where}" for where in pattern.where]
    lines.append(f"    example: {pattern.example.words()}")
    if pattern.detail:
        lines.append(f"    because: {pattern.detail}")
    return [*lines, f"    repeat:  {pattern.repeat}"]


FORMAT = 1
"""Version of the JSON; a change that an older reader would misread raises it."""


def compare(before: RunResult, after: RunResult) -> RunDifference:
    """Compare a run with a later one.

    Raises UsageError when they have no cell in common.
    """
    made = difference(before, after)
    if not made.common:
        raise UsageError(
            f"comparing run '{before.run}' with run '{after.run}'",
            f"they have no cell in common: one is of scenario '{before.scenario}' with "
            f"{quantity(len(before.results), 'cell')}, the other of '{after.scenario}' with "
            f"{quantity(len(after.results), 'cell')}",
            "take two runs of one scenario"
            + (" that probe the same sample of its cells" if made.unasked else ""),
        )
    return made


def notes(made: RunDifference) -> Iterator[str]:
    """Notes on how the runs differ apart from their cells, or that they are the same run."""
    numbered = made.before.number and made.after.number
    if made.before == replace(made.after, number=made.before.number):
        yield f"both are run {made.before.run}: '{made.after.lab}~1' is the one before it"
    elif made.before.lab == made.after.lab and numbered:
        if made.before.number > made.after.number:
            yield "the first run is the later one, so the changes are reversed"
    elif made.before.started > made.after.started:
        yield "by their clocks the first run is the later one, so the changes would be reversed"
    pairs = (
        ("scenarios", made.before.scenario, made.after.scenario),
        ("topologies", made.before.topology, made.after.topology),
        ("providers", made.before.provider, made.after.provider),
        ("versions of Kubernetes", made.before.version, made.after.version),
        ("choices of nodes", _describe_nodes(made.before), _describe_nodes(made.after)),
        ("samples", _sample(made.before), _sample(made.after)),
        ("Windows rules switched off", _rules(made.before), _rules(made.after)),
    )
    for noun, before, other in pairs:
        if before != other:
            yield f"different {noun}: {before} and {other}"
    for noun, before, other in changed_provenance(made):
        yield f"different {noun}: {before} and {other}"


def changed_provenance(made: RunDifference) -> Iterator[tuple[str, str, str]]:
    """What the runs were made with where it differs: what, that of the first, of the second."""
    first, second = made.before.provenance, made.after.provenance
    if first == second:
        return
    if first is None or second is None:
        unknown = "one that did not record it"
        told = [made_by.tool if made_by else unknown for made_by in (first, second)]
        yield "versions of the tool", told[0], told[1]
        return
    pairs = (
        ("versions of the tool", first.tool, second.tool),
        ("versions of Python", first.python, second.python),
        ("kernels", first.kernel, second.kernel),
        ("hosts", first.host, second.host),
    )
    yield from (pair for pair in pairs if pair[1] != pair[2])


def _describe_nodes(run: RunResult) -> str:
    return f"{run.only} alone" if run.only else "all"


def _sample(run: RunResult) -> str:
    if run.coverage is None or run.coverage.strategy == "full":
        return "none"
    return f"'{run.coverage.strategy}' with seed {run.coverage.seed}"


def _rules(run: RunResult) -> str:
    return ", ".join(run.windows_rules_off) or "none"


def plain_lines(made: RunDifference) -> list[str]:
    """The comparison as lines of text."""
    return [one_line(line) for line in _lines(made)]


def _lines(made: RunDifference) -> list[str]:
    lines = [*_render_heading("Before: ", made.before), *_render_heading("After:  ", made.after)]
    lines += [f"note: {note}" for note in notes(made)]
    changes = text_lines(made)
    end = list(_list_unasked(made))
    if not changes:
        return [*lines, "", f"No cell differs, of {made.common:,}.", *end]
    for line in changes:
        lines += [line] if line.startswith(" ") else ["", line]
    return [*lines, "", f"{quantity(made.unchanged, 'cell')} as before", *end]


def _list_unasked(made: RunDifference) -> Iterator[str]:
    """How many cells cannot be compared, because one of the runs did not sample them."""
    asked_now = sum(1 for change in made.unasked if change.before is None)
    for count, run in (
        (len(made.unasked) - asked_now, "first"),
        (asked_now, "second"),
    ):
        if count:
            yield f"{quantity(count, 'cell')} probed only in the {run} run: not compared"


def _render_heading(label: str, run: RunResult) -> Iterator[str]:
    yield f"{label}run {run.run} of lab '{run.lab}' on {run.provider}, {in_full(run.started)}"
    for line in filter(None, (run.disclaimer, closing_line(run), describe_sample(run))):
        yield f"{' ' * len(label)}{line}"


def comparison_json(made: RunDifference) -> dict[str, Any]:
    """The comparison as values that :mod:`json` can write."""
    return {
        "format": FORMAT,
        "before": _run_json(made.before),
        "after": _run_json(made.after),
        "notes": list(notes(made)),
        "common": made.common,
        "worse": made.worse,
        **to_json(made),
    }


def _run_json(run: RunResult) -> dict[str, Any]:
    return {
        "run": run.run,
        "lab": run.lab,
        "scenario": run.scenario,
        "provider": run.provider,
        "disclaimer": run.disclaimer,
        "started": run.started,
        "cells": len(run.results),
        "green": run.green(),
        "provenance": asdict(run.provenance) if run.provenance else None,
    }
