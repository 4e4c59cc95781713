"""A run that is kept, and one of its cells: found, made small, and compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from unit.reports.made_runs import intent_of, made_run

from lab._errors import UsageError
from lab.lifecycle.repro import cell_of, find_run, judge, make_small
from lab.matrix.verdict import RunResult, Verdict
from lab.reports.result import to_json
from lab.scenario.loader import find, load

CELL = "pod-pod/worker1-p1/win1-p1/tcp-small"
RUN = replace(made_run("dead-node"), scenario_text=find("overlay").read_text())


def keep(directory: Path, run: RunResult = RUN) -> Path:
    directory.mkdir(parents=True)
    (directory / "result.json").write_text(json.dumps(to_json(run, intent_of())))
    return directory


def test_a_run_is_found_by_file_directory_and_id(tmp_path: Path) -> None:
    directory = keep(tmp_path / "labs" / "x" / "runs" / RUN.run)
    for wanted in (str(directory / "result.json"), str(directory), RUN.run):
        assert find_run(wanted, tmp_path) == RUN


@pytest.mark.parametrize("wanted", ["20261121-000000-0000", "no/such/file", "..", ""])
def test_a_run_that_is_not_there_is_refused(tmp_path: Path, wanted: str) -> None:
    with pytest.raises(UsageError, match="nor a directory with one, nor the id") as raised:
        find_run(wanted, tmp_path / "state")
    assert "lab report LAB" in raised.value.cure


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', "\xff"])
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "result.json"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match="is no result of a run"):
        find_run(str(file), tmp_path)


def test_a_cell_that_the_run_has_not_is_answered_with_the_nearest() -> None:
    assert cell_of(RUN, CELL).cell.id == CELL
    with pytest.raises(UsageError, match="it has no such cell") as raised:
        cell_of(RUN, CELL.removesuffix("l"))
    assert raised.value.cure == f"did you mean '{CELL}'?"


def test_the_small_lab_is_written_where_it_is_told_and_is_a_valid_scenario(tmp_path: Path) -> None:
    then = cell_of(RUN, CELL)
    small = make_small(RUN, then, tmp_path, None, None)
    assert (small.lab, small.file) == ("repro-overlay", tmp_path / "repro" / "repro-overlay.yaml")
    assert [group.name for group in load(small.file).nodes] == ["master", "worker1", "win1"]
    own = make_small(RUN, then, tmp_path, "mine", tmp_path / "mine.yaml")
    assert (own.lab, own.file) == ("mine", tmp_path / "mine.yaml")


def test_nodes_that_the_run_had_not_are_not_in_the_small_lab(tmp_path: Path) -> None:
    run = replace(RUN, only="linux")
    cell = "pod-pod/worker1-p1/master-p1/tcp-small"
    small = make_small(run, cell_of(run, cell), tmp_path, None, None)
    assert [group.name for group in load(small.file).nodes] == ["master", "worker1"]
    with pytest.raises(UsageError, match="its matrix has no such cell"):
        make_small(run, cell_of(run, CELL), tmp_path, None, None)


def test_a_run_kept_without_its_scenario_is_refused(tmp_path: Path) -> None:
    run = replace(RUN, scenario_text="")
    with pytest.raises(UsageError, match="kept before results held their scenario"):
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
def test_what_came_of_it_is_said_and_is_the_exit_code(
    then: Verdict, now: Verdict, code: int, words: str
) -> None:
    found = judge(then, now)
    assert found[0] == code
    assert words in found[1]
