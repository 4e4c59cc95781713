"""Two runs held against each other, as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lab._errors import UsageError
from lab._log import one_line, quantity
from lab.matrix.verdict import RunResult
from lab.reports.difference import RunDifference, difference, text_lines, to_json
from lab.reports.moment import in_full
from lab.reports.wording import closing_line, sampled

FORMAT = 1
"""Version of the JSON; a change that an older reader would misread raises it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, and what differs."""

    before: RunResult
    after: RunResult
    found: RunDifference

    @property
    def exit_code(self) -> int:
        """1 where cells that were as expected are not any more, else 0."""
        return 1 if self.found.failing else 0

    @property
    def common(self) -> int:
        """Cells that both runs have."""
        found = self.found
        same_cells = (found.failing, found.passing, found.changed)
        return found.unchanged + sum(len(changes) for changes in same_cells)


def compare(before: RunResult, after: RunResult) -> Comparison:
    """Hold one run against a later one.

    Raises
    ------
    UsageError
        When they have no cell in common.

    """
    made = Comparison(before, after, difference(before, after))
    if not made.common:
        raise UsageError(
            f"comparing run '{before.run}' with run '{after.run}'",
            f"they have no cell in common: one is of scenario '{before.scenario}' with "
            f"{quantity(len(before.results), 'cell')}, the other of '{after.scenario}' with "
            f"{quantity(len(after.results), 'cell')}",
            "take two runs of one scenario"
            + (" that ask the same sample of its cells" if made.found.unasked else ""),
        )
    return made


def notes(made: Comparison) -> Iterator[str]:
    """In what the two runs are not alike, beside their cells; or that they are one."""
    if made.before == made.after:
        yield f"both are run {made.before.run}: '{made.after.lab}~1' is the one before it"
    elif made.before.started > made.after.started:
        yield "the first run is the later one: what is told is the way back"
    pairs = (
        ("scenarios", made.before.scenario, made.after.scenario),
        ("topologies", made.before.topology, made.after.topology),
        ("providers", made.before.provider, made.after.provider),
        ("versions of Kubernetes", made.before.version, made.after.version),
        ("choices of nodes", _only(made.before), _only(made.after)),
        ("samples", _sample(made.before), _sample(made.after)),
        ("Windows rules switched off", _rules(made.before), _rules(made.after)),
    )
    for what, one, other in pairs:
        if one != other:
            yield f"different {what}: {one} and {other}"


def _only(run: RunResult) -> str:
    return f"{run.only} alone" if run.only else "all"


def _sample(run: RunResult) -> str:
    if run.coverage is None or run.coverage.strategy == "full":
        return "none"
    return f"'{run.coverage.strategy}' with seed {run.coverage.seed}"


def _rules(run: RunResult) -> str:
    return ", ".join(run.windows_rules_off) or "none"


def plain_lines(made: Comparison) -> list[str]:
    """The comparison as lines of text."""
    return [one_line(line) for line in _lines(made)]


def _lines(made: Comparison) -> list[str]:
    lines = [*_heading("Before: ", made.before), *_heading("After:  ", made.after)]
    lines += [f"note: {note}" for note in notes(made)]
    changes = text_lines(made.found)
    end = list(_unasked(made))
    if not changes:
        return [*lines, "", f"No cell differs, of {made.common:,}.", *end]
    for line in changes:
        lines += [line] if line.startswith(" ") else ["", line]
    return [*lines, "", f"{quantity(made.found.unchanged, 'cell')} as before", *end]


def _unasked(made: Comparison) -> Iterator[str]:
    """How many cells cannot be compared, because one of the runs left them out."""
    asked_now = sum(1 for change in made.found.unasked if change.before is None)
    for count, run in (
        (len(made.found.unasked) - asked_now, "first"),
        (asked_now, "second"),
    ):
        if count:
            yield f"{quantity(count, 'cell')} asked in the {run} run alone: not compared"


def _heading(label: str, run: RunResult) -> Iterator[str]:
    yield f"{label}run {run.run} of lab '{run.lab}' on {run.provider}, {in_full(run.started)}"
    for line in filter(None, (closing_line(run), sampled(run))):
        yield f"{' ' * len(label)}{line}"


def comparison_json(made: Comparison) -> dict[str, Any]:
    """The comparison as values that :mod:`json` can write."""
    return {
        "format": FORMAT,
        "before": _run_json(made.before),
        "after": _run_json(made.after),
        "notes": list(notes(made)),
        "common": made.common,
        "worse": len(made.found.failing),
        **to_json(made.found),
    }


def _run_json(run: RunResult) -> dict[str, Any]:
    return {
        "run": run.run,
        "lab": run.lab,
        "scenario": run.scenario,
        "provider": run.provider,
        "started": run.started,
        "cells": len(run.results),
        "green": run.green(),
    }
