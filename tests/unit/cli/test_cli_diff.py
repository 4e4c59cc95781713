"""``lab diff`` and ``lab report`` as they are typed: exit codes, and where their words go."""

import json
from dataclasses import replace

import pytest
from unit.reports.made_runs import intent_of, made_run

from lab.cli.main import main
from lab.reports.result import to_json, to_text
from lab.state.rows import RunRow
from lab.state.store import Store

HEALTHY, DEAD = (
    made_run("healthy", families=("hairpin",)),
    made_run("dead-node", families=("hairpin",)),
)


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A state directory in which 'overlay' was healthy, and then was not."""
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for run in (replace(HEALTHY, run="20261121-1"), replace(DEAD, run="20261121-2")):
        directory = tmp_path / "labs" / "overlay" / "runs" / run.run
        directory.mkdir(parents=True)
        (directory / "result.json").write_text(json.dumps(to_json(run, intent_of())))
    return tmp_path


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("overlay~1", "overlay"), 1),
        (("overlay", "overlay~1"), 0),
        (("overlay", "overlay"), 0),
        (("20261121-1", "labs/overlay/runs/20261121-2"), 1),
        (("overlay", "nowhere"), 2),
        (("overlay",), 2),
    ],
)
def test_exit_code(words, code, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["diff", *words])
    assert ended.value.code == code
    told = capsys.readouterr()
    assert bool(told.out) == (code != 2)
    assert bool(told.err) == (code == 2)


@pytest.mark.usefixtures("state")
def test_json_is_one_document_with_every_change(capsys):
    with pytest.raises(SystemExit):
        main(["diff", "overlay~1", "overlay", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (document["before"]["run"], document["after"]["run"]) == ("20261121-1", "20261121-2")
    assert document["worse"] == len(document["failing"]) > 0


LONG = "a" * 5000


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize(
    "words",
    [
        ("diff", LONG, "overlay"),
        ("diff", "overlay~" + "9" * 5000, "overlay"),
        ("validate", f"{LONG}.yaml"),
        ("plan", f"{LONG}.yaml"),
        ("up", "--dry-run", f"{LONG}.yaml"),
        ("capture", "overlay", "a", "b", "--output", LONG),
    ],
    ids=lambda words: words[0],
)
def test_a_name_that_no_file_can_have_is_wrong_usage(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    err = capsys.readouterr().err  # Python 3.14 says that there is no such file
    assert "too long" in err or "..." in err
    assert len(err) < 600


@pytest.mark.parametrize("seconds", ["nan", "NaN", "-nan", "inf", "0"])
def test_a_time_out_is_a_number_of_seconds(seconds, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["capture", "overlay", "a", "b", f"--timeout={seconds}"])
    assert ended.value.code == 2
    assert "Invalid value for '--timeout'" in capsys.readouterr().err


PAINTING, FORGED = "\x1b[2J\x1b]0;owned\x07\x9b31m", "\nforged\r\nforged"


# SECURITY.md: Control characters do not reach the terminal.
def test_control_characters_of_a_result_do_not_reach_the_terminal(state, capsys):
    words = PAINTING + FORGED
    results = tuple(
        replace(result, detail=result.detail + words, repeat="curl x | sh")
        for result in DEAD.results
    )
    fields = ("provider", "version", "topology", "started", "banner", "summary")
    hostile = replace(DEAD, results=results, **dict.fromkeys(fields, words))
    file = state / "hostile.json"
    file.write_text(json.dumps(to_json(hostile, intent_of())))
    for runs in (("overlay~1", str(file)), (str(file), "overlay~1")):
        with pytest.raises(SystemExit):
            main(["diff", *runs])
        told = capsys.readouterr()
        assert "curl" not in told.out
        assert "\\x1b[2J\\x1b]0;owned\\x07\\x9b31m\\x0aforged" in told.out
        lines = (told.out + told.err).splitlines()
        assert not [line for line in lines if line.startswith("forged")]
        assert "".join(lines).isprintable()


BROKEN, WRONG_USAGE = 3, 2


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Runs 'first', of which nothing is left but the journal's word, and 'second'."""
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path))
    with Store(tmp_path) as store:
        for run in ("1-first", "2-second"):
            store.record_run(RunRow(run, "it", "t", "overlay", "netns", run, 1.0, True, {}))
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
    assert [cell["id"] for cell in told["cells"]] == [result.cell.id for result in run.results]


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_run_with_missing_files_is_reported(words, capsys):
    told = said(["1-first", *words], BROKEN, capsys)
    assert "report of run '1-first' of lab 'it': '" in told
    assert "cannot be read: no such file or directory" in told
    assert "try: lab test it, or another run" in told


@pytest.mark.usefixtures("runs")
def test_an_unknown_run_is_refused_with_the_known_ones(capsys):
    assert "it has no run '3'" in (told := said(["3"], WRONG_USAGE, capsys))
    assert "one of: 1-first, 2-second" in told
