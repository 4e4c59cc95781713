"""Words on the command line that are none, or more than anyone reads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import run_program

from lab._errors import UsageError
from lab.cli.main import main

WRONG_USAGE = 2
ROOT = Path(__file__).parents[3]
LONG = "x" * 10_000


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path))


def refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == WRONG_USAGE
    told = capsys.readouterr()
    assert told.out == ""
    return told.err


@pytest.mark.room
@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("fault", "overlay", ""), "[FAULT]"),
        (("fault", "overlay", "wrong-vni", "--node", ""), "--node"),
        (("fault", "overlay", "wrong-vni", "--peer="), "--peer"),
        (("capture", "overlay", "a", "b", "-o", ""), "--output"),
        (("nightly", "--output", ""), "--output"),
        (("gather", "overlay", "--output="), "--output"),
        (("down", ""), "[LAB]..."),
        (("bundle", "create", "--from", ""), "--from"),
    ],
    ids=" ".join,
)
def test_an_empty_word_is_not_taken_for_none(words, where, capsys):
    said = refused(words, capsys)
    assert f"{where}': the value is empty; write one" in said


def test_a_list_of_faults_is_of_all_of_them(capsys):
    for words in (("wrong-vni",), ("--node", "worker1"), ("--peer", "worker1")):
        said = refused(("fault", "--list", "overlay", *words), capsys)
        assert "'--list' takes a lab or nothing" in said


def test_words_that_are_passed_on_may_be_empty(capsys):
    assert "no lab named 'overlay'" in refused(("exec", "overlay", "a", "echo", ""), capsys)
    assert "no lab named 'overlay'" in refused(("test", "overlay", "-k", ""), capsys)


@pytest.mark.parametrize(
    "words",
    [
        (LONG,),
        ("fault", f"--{LONG}"),
        ("down", LONG),
        ("report", LONG),
        ("test", "overlay", "--sample", LONG),
        ("up", "overlay", "--provider", LONG),
        ("gc", "--older-than", LONG),
    ],
    ids=lambda words: words[0][:9],
)
def test_a_word_of_any_length_is_quoted_in_one_line(words, capsys):
    said = refused(words, capsys)
    assert "xxx...(10,00" in said
    assert len(said) < 500


def test_only_a_word_that_nobody_reads_is_cut():
    path = f"/{'directory/' * 30}file"
    error = UsageError(f"reading '{path}'", f"no '{LONG}': {LONG}", LONG)
    cut = f"{'x' * 60}...(10,000 characters)"
    quoted = f"'{'x' * 59}...(10,001 characters)"
    assert str(error) == f"reading '{path}': no {quoted}': {cut}\n  try: {cut}"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("nightly", "overlay", "--provider", "netns", "--deadline", "0s"), "in zero time"),
        (("test", "overlay", "--lab", "other"), "this command has named a lab"),
        (("test", "overlay", "-k", "dns", "--lab=other"), "this command has named a lab"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_option_that_makes_no_sense_is_refused(words, why, capsys):
    told = refused(words, capsys)
    assert why in told
    assert "try: " in told


def lab(*words: str, cwd: Path, umask: int = -1) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "lab", *words]
    return run_program(command, cwd=cwd, env=environment, umask=umask, check=False)


# SECURITY.md: The state directory is the caller's own.
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777], ids=oct)
def test_whatever_the_umask_the_user_and_nobody_else_may_write_the_state(umask, tmp_path):
    for _ in range(2):  # the first makes the directories that the second finds
        done = lab("list", cwd=tmp_path, umask=umask)
        assert done.returncode == 0, done.stderr
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o622 == 0o600, path


@pytest.mark.room
@pytest.mark.parametrize(
    "words", [("gc",), ("inventory", "show"), ("nightly", "overlay"), ("test", "overlay")]
)
def test_deleted_current_directory_is_wrong_usage(words, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    program = "import os, sys; os.rmdir(os.getcwd()); from lab.cli.main import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HYBRIDLAB_STATE": str(tmp_path / "s")}
    environment.pop("HYBRIDLAB_INVENTORY", None)
    command = [sys.executable, "-P", "-c", program, *words]
    done = run_program(command, cwd=gone, env=environment, check=False)
    assert done.returncode == WRONG_USAGE, done.stderr
    assert "the current directory: it has been deleted" in done.stderr
