"""Two runs held against each other: text, JSON and exit code."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.reports.made_runs import REACHED, SAMPLED, made_run

from lab._errors import UsageError
from lab.reports.comparison import compare, comparison_json, notes, plain_lines

HEALTHY, DEAD = made_run("healthy"), made_run("dead-node")


def test_worse_cells_are_exit_code_one_and_nothing_else_is() -> None:
    assert compare(HEALTHY, DEAD).exit_code == 1
    assert compare(DEAD, HEALTHY).exit_code == 0
    assert compare(DEAD, DEAD).exit_code == 0


def test_two_runs_alike_are_one_line() -> None:
    lines = plain_lines(compare(HEALTHY, HEALTHY))
    assert lines[0].startswith("Before: run 20261121-101500-7f3a of lab 'overlay' on netns")
    assert lines[-1] == f"No cell differs, of {len(HEALTHY.results):,}."


def test_the_text_ends_with_how_many_are_as_before() -> None:
    made = compare(HEALTHY, DEAD)
    unchanged = len(HEALTHY.results) - len(made.found.failing)
    assert plain_lines(made)[-1] == f"{unchanged:,} cells as before"


def test_what_else_differs_is_noted() -> None:
    other = replace(HEALTHY, provider="libvirt", only="linux", windows_rules_off=("WIN-X",))
    assert list(notes(compare(HEALTHY, HEALTHY))) == []
    assert list(notes(compare(HEALTHY, other))) == [
        "different providers: netns and libvirt",
        "different choices of nodes: all and linux alone",
        "different Windows rules switched off: none and WIN-X",
    ]


def test_runs_that_have_no_cell_in_common_are_refused() -> None:
    elsewhere = tuple(
        replace(one, cell=replace(one.cell, id="x/" + one.cell.id)) for one in HEALTHY.results
    )
    with pytest.raises(UsageError, match="no cell in common"):
        compare(HEALTHY, replace(HEALTHY, results=elsewhere))


def test_json_says_of_which_runs_it_is() -> None:
    document = comparison_json(compare(HEALTHY, DEAD))
    assert document["before"]["run"] == HEALTHY.run
    assert document["before"]["green"] is True
    assert document["after"]["green"] is False
    assert document["worse"] == len(document["failing"])
    assert document["common"] == document["unchanged"] + document["worse"]


def test_samples_are_told_where_they_differ() -> None:
    made = compare(HEALTHY, replace(HEALTHY, coverage=SAMPLED))
    assert list(notes(made)) == ["different samples: none and 'node-pairs' with seed 7"]
    assert f"        {REACHED}" in plain_lines(made)[1]
