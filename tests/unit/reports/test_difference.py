"""What changed from night to night, cell by cell."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.reports.made_runs import made_run

from lab.matrix.verdict import VERDICTS, RunResult, Verdict
from lab.reports.difference import Change, difference, differences, text_lines, to_json

HEALTHY = made_run("healthy")
LISTED = ("failing", "passing", "changed", "gone", "new")


def with_verdicts(*verdicts: Verdict) -> RunResult:
    """A run of as many cells, the first ones of the healthy run."""
    cells = zip(HEALTHY.results, verdicts, strict=False)
    return replace(HEALTHY, results=tuple(replace(cell, verdict=one) for cell, one in cells))


def test_a_night_like_the_one_before_has_no_difference() -> None:
    run = made_run("mixed")
    found = difference(run, run)
    assert list(found.kinds()) == []
    assert text_lines({"overlay": found}) == []


KINDS = {
    ("pass", "fail"): "failing",
    ("pass", "unexpected-pass"): "failing",
    ("known-limit", "probe-error"): "failing",
    ("fail", "pass"): "passing",
    ("flaky", "known-limit"): "passing",
    ("pass", "known-limit"): "changed",
    ("fail", "flaky"): "changed",
    ("unexpected-pass", "fail"): "changed",
}


@pytest.mark.parametrize(("verdicts", "kind"), KINDS.items(), ids=str)
def test_a_change_is_told_by_what_it_means(verdicts: tuple[Verdict, Verdict], kind: str) -> None:
    found = difference(with_verdicts(verdicts[0]), with_verdicts(verdicts[1]))
    assert {name: len(getattr(found, name)) for name in LISTED if getattr(found, name)} == {kind: 1}
    cell = HEALTHY.results[0].cell.id
    assert getattr(found, kind) == (Change(cell, *verdicts),)


def test_every_cell_is_in_one_kind_at_most_and_only_if_it_changed() -> None:
    before, after = VERDICTS, tuple(reversed(VERDICTS))
    found = difference(with_verdicts(*before), with_verdicts(*after))
    cells = [change.cell for name in LISTED for change in getattr(found, name)]
    assert len(cells) == len(set(cells)) == len(VERDICTS)


def test_cells_that_came_and_went_are_neither_better_nor_worse() -> None:
    fewer, more = with_verdicts("pass"), with_verdicts("pass", "fail")
    second = HEALTHY.results[1].cell.id
    assert difference(fewer, more).new == (Change(second, None, "fail"),)
    assert difference(more, fewer).gone == (Change(second, "fail", None),)
    assert not difference(fewer, more).failing


def test_only_scenarios_of_both_nights_are_compared() -> None:
    found = differences({"a": HEALTHY, "b": HEALTHY}, {"b": made_run("dead-node"), "c": HEALTHY})
    assert list(found) == ["b"]
    assert to_json(found)["b"]["failing"][0]["after"] == "fail"
    lines = text_lines(found)
    assert lines[0].startswith("b: ")
    assert lines[0].endswith("cells newly failing")
    assert lines[-1].startswith("  and ")
