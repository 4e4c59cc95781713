"""``lab report``: the path of what is there, and why nothing is."""

from __future__ import annotations

import json

import pytest
from unit.reports.made_runs import intent_of, made_run

from lab.cli.main import main
from lab.reports.result import to_text
from lab.state.rows import RunRow
from lab.state.store import Store

BROKEN, WRONG_USAGE = 3, 2


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Runs 'first', of which nothing is left but the journal's word, and 'second'."""
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path))
    with Store(tmp_path) as store:
        for run in ("1-first", "2-second"):
            store.record_run(RunRow(run, "it", "t", "overlay", "netns", run, 1.0, True, {}), [])
    there = tmp_path / "labs" / "it" / "runs" / "2-second"
    there.mkdir(parents=True)
    (there / "report.html").write_text("<html>")
    (there / "result.json").write_text("{}")
    return there.parent


def said(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["report", "it", *words])
    assert ended.value.code == code
    told = capsys.readouterr()
    return told.out if code == 0 else told.err


def test_the_last_run_is_meant_where_none_is_named(runs, capsys):
    assert said([], 0, capsys) == f"{runs}/2-second/report.html\n"


def test_a_result_that_is_none_is_not_passed_on(runs, capsys):
    for text in ("{}", "[]", '{"format": 4, "cells": 7}', "[" * 100_000):
        (runs / "2-second" / "result.json").write_text(text)
        assert "result.json' cannot be read: " in said(["--json"], BROKEN, capsys)


def test_the_json_of_a_run_has_every_cell_whole(runs, capsys):
    run = made_run("mixed")
    (runs / "2-second" / "result.json").write_text(to_text(run, intent_of()))
    told = json.loads(said(["--json"], 0, capsys))
    assert [cell["id"] for cell in told["cells"]] == [one.cell.id for one in run.results]


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_run_whose_files_are_gone_is_told(words, capsys):
    told = said(["1-first", *words], BROKEN, capsys)
    assert "report of run '1-first' of lab 'it': '" in told
    assert "cannot be read: no such file or directory" in told
    assert "try: lab test it, or another run" in told


@pytest.mark.usefixtures("runs")
def test_a_run_that_never_was_is_told_with_those_that_were(capsys):
    assert "it has no run '3'" in (told := said(["3"], WRONG_USAGE, capsys))
    assert "one of: 1-first, 2-second" in told
