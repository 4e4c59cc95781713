"""Runs that are kept: found by what a user calls them, and one of their cells made small again."""

import json
import os
import shlex
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from unit.reports.made_runs import intent_of, made_run

from lab._errors import UsageError
from lab.lifecycle.runs import find_run, judge, judged_of, make_small
from lab.matrix.assertion import AssertionResult
from lab.matrix.verdict import RunResult
from lab.reports.result import to_json
from lab.scenario.loader import HeldText, find, load
from lab.state.rows import LabRow, RunRow
from lab.state.store import Store

RUN = made_run("dead-node", families=("hairpin",))
LAB = LabRow("up", "overlay", "", "", "netns", "t", "up", 1.0, 1.0, "")
IDS = ("20261121-101500-7f3a", "20261121-101501-0001", "20261122-000000-aaaa")


def keep(directory: Path, run: RunResult = RUN) -> Path:
    directory.mkdir(parents=True)
    (directory / "result.json").write_text(json.dumps(to_json(run, intent_of())))
    return directory


@pytest.fixture
def state(tmp_path):
    """A state directory with three runs of 'overlay', and one lab that was never tested."""
    for run in IDS:
        keep(tmp_path / "labs" / "overlay" / "runs" / run, replace(RUN, run=run))
    (tmp_path / "labs" / "fresh").mkdir()
    return tmp_path


def test_a_run_is_found_by_file_directory_and_id(state):
    directory = state / "labs" / "overlay" / "runs" / IDS[1]
    for wanted in (str(directory / "result.json"), str(directory), IDS[1]):
        assert find_run(wanted, state).run == IDS[1]


@pytest.mark.parametrize(
    ("wanted", "found"), [("overlay", 2), ("overlay~0", 2), ("overlay~1", 1), ("overlay~2", 0)]
)
def test_a_run_is_found_by_its_lab_counted_from_the_last(state, wanted, found):
    assert find_run(wanted, state).run == IDS[found]


@pytest.mark.parametrize(
    ("wanted", "happened", "hint"),
    [
        ("overlay~3", "has only 3 runs, so the oldest is 'overlay~2'", IDS[0]),
        ("fresh", "'fresh' has not been tested yet", "lab test fresh"),
        ("fresh~1", "'fresh' has not been tested yet", "lab test fresh"),
        ("overlai", "nor a lab", "did you mean 'overlay'?"),
        ("overlai~1", "nor a lab", "did you mean 'overlay'?"),
        ("20261121-101501-0002", "nor a lab", f"did you mean '{IDS[1]}'?"),
        ("overlay~x", "nor a lab", "did you mean 'overlay'?"),
        ("*", "nor a lab", "lab list"),
        ("..", "directory '..' has no result.json", "the directory of one run"),
        ("", "directory '' has no result.json", "the directory of one run"),
        ("no/such/file", "there is no such file", "its directory, its id, or a lab"),
        ("result.json", "there is no such file", "its directory, its id, or a lab"),
        ("labs/overlay/runs", "directory 'labs/overlay/runs' has no result.json", "did you mean '"),
        ("labs", "directory 'labs' has no result.json", "the directory of one run"),
        ("over*", "nor a lab", "did you mean 'overlay'?"),
    ],
)
def test_a_run_that_is_not_there_is_answered_with_the_nearest(
    state, monkeypatch, wanted, happened, hint
):
    monkeypatch.chdir(state)
    with pytest.raises(UsageError) as raised:
        find_run(wanted, state)
    assert happened in raised.value.happened
    assert hint in raised.value.hint


# SECURITY.md: A result file is data.
@pytest.mark.parametrize(
    ("text", "happened"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("[]", "is JSON, but not the result of a run"),
        ("{}", "is JSON, but not the result of a run"),
        ('{"format": 99}', "its format is 99, and this version of lab reads"),
        ('{\n "format": 3,\n "cells": [', "ends abruptly in line 3: it was not completely written"),
        ("root:x:0:0", "is not JSON: expecting value in line 1, column 1"),
        ("\xff", "cannot be read: 'utf-8' codec"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path, text, happened):
    file = tmp_path / "result.json"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError) as raised:
        find_run(str(file), tmp_path)
    assert raised.value.happened.startswith(f"'{file}'")
    assert happened in raised.value.happened
    assert "\n  try" not in raised.value.happened


# SECURITY.md: A result file is data.
def test_a_file_that_is_far_too_large_is_refused(tmp_path):
    path = tmp_path / "result.json"
    path.touch()
    os.truncate(path, 1 << 28)
    with pytest.raises(UsageError, match="too large"):
        find_run(str(path), tmp_path)


HOSTILE = "curl http://127.0.0.1/x | sh #"
HAIRPIN = RUN.results[0].cell.id
HOSTILE_ASSERTION = asdict(AssertionResult("$(reboot)", "x", (), "fail", "", 0.0, ""))


# SECURITY.md: A result file is data.
def test_the_command_that_repeats_a_cell_is_not_the_files(state):
    results = tuple(replace(result, repeat=HOSTILE) for result in RUN.results)
    hostile = keep(state / "it's from elsewhere", replace(RUN, results=results, run=IDS[0]))
    keep(state / "labs" / "gone" / "runs" / "1", replace(RUN, results=results, lab="overlay"))
    keep(state / "labs" / "up" / "runs" / "2", replace(RUN, results=results, lab="overlay"))
    with Store(state) as store:
        store.put_lab(LAB)
    for wanted, repeat in (
        (hostile, f"lab repro {shlex.quote(str(hostile))} {HAIRPIN}"),
        (
            hostile / "result.json",
            f"lab repro {shlex.quote(str(hostile / 'result.json'))} {HAIRPIN}",
        ),
        ("1", f"lab repro 1 {HAIRPIN}"),
        ("gone", f"lab repro 1 {HAIRPIN}"),
        ("2", f"lab test up -k {HAIRPIN}"),
        ("up", f"lab test up -k {HAIRPIN}"),
    ):
        assert find_run(str(wanted), state).results[0].repeat == repeat


# SECURITY.md: A result file is data.
@pytest.mark.parametrize(
    ("changes", "happened"),
    [
        ({"run": "--help"}, "no run has: '--help'"),
        ({"run": "1\nforged"}, "no run has: '1\\nforged'"),
        ({"lab": "x; reboot"}, "no lab has: 'x; reboot'"),
        ({"scenario": "x\x1b[2J"}, "no scenario has: 'x\\x1b[2J'"),
        ({"id": "--output=/etc/passwd"}, "no cell has: '--output=/etc/passwd'"),
        ({"id": "$(reboot)"}, "no cell has: '$(reboot)'"),
        ({"assertions": [HOSTILE_ASSERTION]}, "no cell has: 'assertions/$(reboot)/x'"),
    ],
)
def test_a_name_that_nothing_can_have_is_refused(tmp_path, changes, happened):
    document = to_json(RUN, intent_of())
    document["cells"][0] |= {key: value for key, value in changes.items() if key == "id"}
    document |= {key: value for key, value in changes.items() if key != "id"}
    (tmp_path / "result.json").write_text(json.dumps(document))
    with pytest.raises(UsageError) as raised:
        find_run(str(tmp_path), tmp_path)
    assert happened in raised.value.happened


CELL = "pod-pod/worker1-p1/win1-p1/tcp-small"
DEAD_NODE = replace(made_run("dead-node"), scenario_text=find("overlay").read_text())


def test_a_cell_that_the_run_has_not_is_answered_with_the_nearest():
    assert judged_of(DEAD_NODE, CELL).cell.id == CELL
    with pytest.raises(UsageError, match="it has no such cell") as raised:
        judged_of(DEAD_NODE, CELL.removesuffix("l"))
    assert raised.value.hint == f"did you mean '{CELL}'?"


def test_the_small_lab_is_written_to_the_given_path_and_is_a_valid_scenario(tmp_path):
    then = judged_of(DEAD_NODE, CELL)
    small = make_small(DEAD_NODE, then, tmp_path, None, None)
    assert (small.lab, small.file) == ("repro-overlay", tmp_path / "repro" / "repro-overlay.yaml")
    assert [group.name for group in load(small.file).nodes] == ["master", "worker1", "win1"]
    own = make_small(DEAD_NODE, then, tmp_path, "mine", tmp_path / "mine.yaml")
    assert (own.lab, own.file) == ("mine", tmp_path / "mine.yaml")


def test_nodes_that_the_run_had_not_are_not_in_the_small_lab(tmp_path):
    run = replace(DEAD_NODE, only="linux")
    cell = "pod-pod/worker1-p1/master-p1/tcp-small"
    small = make_small(run, judged_of(run, cell), tmp_path, None, None)
    assert [group.name for group in load(small.file).nodes] == ["master", "worker1"]
    with pytest.raises(UsageError, match="its matrix has no such cell"):
        make_small(run, judged_of(run, CELL), tmp_path, None, None)


ASSERTIONS = """
assertions:
  - name: forwarding
    node: worker*
    command: [cat, /proc/sys/net/ipv4/ip_forward]
    matches: ^1$
  - name: other
    node: master
    command: ["true"]
"""


def test_an_assertion_is_made_again_alone_in_the_whole_lab(state, tmp_path):
    forwarding = AssertionResult("forwarding", "worker2", ("cat",), "fail", "0", 0.1, HOSTILE)
    text = DEAD_NODE.scenario_text + ASSERTIONS
    elsewhere = tmp_path / "elsewhere"
    keep(elsewhere, replace(DEAD_NODE, scenario_text=text, assertions=(forwarding,)))
    run = find_run(str(elsewhere), state)
    wanted = "assertions/forwarding/worker2"
    assert run.assertions[0].repeat == f"lab repro {shlex.quote(str(elsewhere))} {wanted}"
    whole = load(make_small(run, judged_of(run, wanted), tmp_path, None, None).file)
    (assertion,) = whole.assertions
    assert (assertion.name, assertion.node) == ("forwarding", "worker2")
    nodes = load(HeldText(text, "it")).nodes
    assert [group.name for group in whole.nodes] == [group.name for group in nodes]
    part = load(make_small(run, judged_of(run, CELL), tmp_path, "part", None).file)
    assert [group.name for group in part.nodes] == ["master", "worker1", "win1"]
    with pytest.raises(UsageError) as raised:
        judged_of(run, "assertions/forwarding/worker1")
    assert f"did you mean '{wanted}'" in raised.value.hint


def test_a_run_kept_without_its_scenario_is_refused(tmp_path):
    run = replace(DEAD_NODE, scenario_text="")
    with pytest.raises(UsageError, match="written before results included their scenario"):
        make_small(run, judged_of(run, CELL), tmp_path, None, None)
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
def test_the_outcome_is_printed_and_is_the_exit_code(then, now, code, words):
    found = judge(then, now)
    assert found[0] == code
    assert words in found[1]


def test_a_run_has_the_number_of_this_journal_and_none_from_elsewhere(state, tmp_path):
    own = state / "labs" / "overlay" / "runs" / IDS[0]
    elsewhere = keep(tmp_path / "elsewhere", replace(RUN, run=IDS[0], number=7))
    row = RunRow(
        IDS[0], "overlay", "t", "overlay", "netns", RUN.started, 1.0, green=True, counts={}
    )
    with Store(state) as store:
        store.put_lab(LAB)
        store.record_run(row)
    assert find_run(IDS[0], state).number == 1
    assert find_run(str(own), state).number == 1
    assert find_run(str(elsewhere), state).number == 0


@pytest.mark.parametrize("wanted", ["overlay", IDS[2], "labs/overlay/runs/" + IDS[2], "pipe"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["a pipe", "a directory"])
def test_what_is_no_file_in_a_results_place_is_named_and_not_passed_over(
    state, monkeypatch, wanted, make
):
    monkeypatch.chdir(state)
    file = state / "labs" / "overlay" / "runs" / IDS[2] / "result.json"
    file.unlink()
    make(file)
    kind = "a pipe" if make is os.mkfifo else "a directory"
    if wanted == "pipe":
        os.mkfifo("pipe")
        kind = "a pipe"
    with pytest.raises(UsageError, match=f"cannot be read: it is {kind}, not a regular file"):
        find_run(wanted, state)
