"""A run that is kept, and one of its cells: found, made small, and compared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.reports.made_runs import made_run

from lab._errors import UsageError
from lab.lifecycle.runs import cell_of, judge, make_small
from lab.scenario.loader import find, load

CELL = "pod-pod/worker1-p1/win1-p1/tcp-small"
RUN = replace(made_run("dead-node"), scenario_text=find("overlay").read_text())


def test_a_cell_that_the_run_has_not_is_answered_with_the_nearest():
    assert cell_of(RUN, CELL).cell.id == CELL
    with pytest.raises(UsageError, match="it has no such cell") as raised:
        cell_of(RUN, CELL.removesuffix("l"))
    assert raised.value.hint == f"did you mean '{CELL}'?"


def test_the_small_lab_is_written_where_it_is_told_and_is_a_valid_scenario(tmp_path):
    then = cell_of(RUN, CELL)
    small = make_small(RUN, then, tmp_path, None, None)
    assert (small.lab, small.file) == ("repro-overlay", tmp_path / "repro" / "repro-overlay.yaml")
    assert [group.name for group in load(small.file).nodes] == ["master", "worker1", "win1"]
    own = make_small(RUN, then, tmp_path, "mine", tmp_path / "mine.yaml")
    assert (own.lab, own.file) == ("mine", tmp_path / "mine.yaml")


def test_nodes_that_the_run_had_not_are_not_in_the_small_lab(tmp_path):
    run = replace(RUN, only="linux")
    cell = "pod-pod/worker1-p1/master-p1/tcp-small"
    small = make_small(run, cell_of(run, cell), tmp_path, None, None)
    assert [group.name for group in load(small.file).nodes] == ["master", "worker1"]
    with pytest.raises(UsageError, match="its matrix has no such cell"):
        make_small(run, cell_of(run, CELL), tmp_path, None, None)


def test_a_run_kept_without_its_scenario_is_refused(tmp_path):
    run = replace(RUN, scenario_text="")
    with pytest.raises(UsageError, match="written before results included their scenario"):
        make_small(run, cell_of(run, CELL), tmp_path, None, None)
    assert not (tmp_path / "repro").exists()


@pytest.mark.parametrize(
    ("then", "now", "code", "words"),
    [
        ("fail", "fail", 1, "it reproduces: it is 'fail' here as it was then"),
        ("fail", "flaky", 1, "it reproduces, though differently"),
        ("fail", "pass", 0, "it does not reproduce: it was 'fail' then, and here it is 'pass'"),
        ("pass", "fail", 1, "it was 'pass' then, and here it is 'fail'"),
        ("pass", "pass", 0, "there was nothing to reproduce"),
        ("unexpected-pass", "known-limit", 0, "it does not reproduce"),
    ],
)
def test_what_came_of_it_is_said_and_is_the_exit_code(then, now, code, words):
    found = judge(then, now)
    assert found[0] == code
    assert words in found[1]
