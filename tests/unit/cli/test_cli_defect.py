"""An exception that nobody foresaw: exit code 70, one sentence, and a log with the traceback."""

import errno
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from processes import run_program

import lab
from lab.cli import defect, show
from lab.cli.main import main, report_beside
from lab.cli.test import RunPlugin
from lab.lifecycle.open_lab import OpenLab


def ended(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> object:
    """The exit code of a command that raises the error."""

    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(show.schema_command, "callback", fail)
    with pytest.raises(SystemExit) as raised:
        main(["schema"])
    return raised.value.code


def test_a_defect_has_a_code_of_its_own_one_sentence_and_a_private_log(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path / "state"))
    assert ended(KeyError("no such\nthing \x1b[2J"), monkeypatch) == 70
    told = capsys.readouterr()
    assert told.out == ""
    (log,) = (tmp_path / "state" / "defects").iterdir()
    assert told.err.count("\n") == 1
    assert told.err.startswith("this is a bug in lab itself: KeyError: ")
    assert told.err.endswith(f"; the traceback is in '{log}'\n")
    assert "Traceback" not in told.err
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert "Traceback (most recent call last)" in log.read_text()
    assert "KeyError" in log.read_text()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EMFILE, "Too many open files", "/a"), "may not open more files"),
        (OSError(errno.ENFILE, "Too many open files in system"), "as many open files as its"),
        (BlockingIOError(errno.EAGAIN, "no"), "no more processes or threads can be started"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "the memory is used up"),
        (MemoryError(), "the memory is used up"),
        (OSError(errno.ENOSPC, "No space left on device", "/a"), "'/a': the disk is full"),
        (OSError(errno.EFBIG, "File too large"), "the limit of the size of a file is reached"),
    ],
)
def test_a_resource_that_is_used_up_is_no_defect(tmp_path, monkeypatch, capsys, error, words):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "argv", ["lab", "schema", "a"])
    wrapped = ValueError("a plug-in")
    wrapped.__cause__ = error
    for raised in (error, wrapped):
        assert ended(raised, monkeypatch) == 4
        message = capsys.readouterr().err
        assert message.startswith("error: running 'lab schema': ")
        assert words in message
        assert "\n  try: " in message
    report_beside(cast("threading.ExceptHookArgs", SimpleNamespace(exc_value=error)))
    assert words in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("command", "opening"),
    [
        (["diff", "run.json", "run.json"], "lab.lifecycle.runs.read_regular"),
        (["validate", "run.json"], "os.fstat"),
        (["inventory", "show", "run.json"], "os.fstat"),
    ],
)
def test_a_limit_that_is_reached_is_no_fault_of_the_file_that_is_named(
    tmp_path, monkeypatch, capsys, command, opening
):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    Path("run.json").write_text("{}")

    def refuse(*_: object) -> object:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "run.json")

    with monkeypatch.context() as limited:
        limited.setattr(opening, refuse)
        with pytest.raises(SystemExit) as raised:
            main(command)
    assert raised.value.code == 4
    assert "this process may not open more files" in capsys.readouterr().err


def test_a_thread_that_cannot_be_started_is_no_defect(monkeypatch, capsys):
    usual = threading.stack_size(1 << 46)  # more than a process can have
    try:
        with pytest.raises(RuntimeError) as raised:
            threading.Thread(target=print).start()
    finally:
        threading.stack_size(usual)
    assert ended(raised.value, monkeypatch) == 4
    assert "no more processes or threads can be started" in capsys.readouterr().err


def test_a_defect_while_a_used_up_resource_was_handled_is_a_defect(tmp_path, monkeypatch):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path / "state"))
    error = KeyError("missing")
    error.__context__ = BlockingIOError(errno.EAGAIN, "locked")
    assert ended(error, monkeypatch) == 70


@pytest.mark.parametrize("state", ["relative", "/dev/null/state"])
def test_where_the_state_directory_takes_no_log_a_temporary_file_has_it(
    state, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("HYBRIDLAB_STATE", state)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert ended(ZeroDivisionError(), monkeypatch) == 70
    (log,) = tmp_path.iterdir()
    assert f"ZeroDivisionError; the traceback is in '{log}'" in capsys.readouterr().err
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_where_no_log_can_be_written_the_code_and_the_sentence_are_the_same(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("HYBRIDLAB_STATE", "relative")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert ended(RecursionError("too deep"), monkeypatch) == 70
    told = capsys.readouterr().err
    assert told == (
        "this is a bug in lab itself: RecursionError: too deep; "
        "its traceback could not be written\n"
    )


def test_only_the_last_logs_are_kept_when_the_clock_jumps(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path))
    monkeypatch.setattr(defect, "KEPT", 2)
    for moment in (3e9, 3e9, 2e9, 1e9):
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda now=moment: now)
            defect.report(ValueError("x"))
    logs = sorted((tmp_path / "defects").iterdir())
    assert len(logs) == 2
    assert capsys.readouterr().err.endswith(f"the traceback is in '{logs[-1]}'\n")


def test_an_interruption_is_no_defect(monkeypatch, capsys):
    assert ended(KeyboardInterrupt(), monkeypatch) == 130
    assert capsys.readouterr().err == "\ninterrupted\n"


def test_a_defect_that_pytest_meets_while_cells_are_tested_is_not_printed_by_it(pytester, capsys):
    pytester.makeconftest("def pytest_runtestloop():\n    raise LookupError('ours')\n")
    pytester.makepyfile("def test_nothing(): pass")
    keeper = RunPlugin(cast("OpenLab", None))
    with pytest.raises(LookupError, match="ours"):
        pytest.main(["-p", "hybridlab", "-p", "no:cacheprovider"], plugins=[keeper])
    told = capsys.readouterr()
    assert "LookupError" not in told.out + told.err


def test_a_thread_that_fails_leaves_a_log_and_no_traceback(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(threading, "excepthook", report_beside)
    failing = threading.Thread(target=lambda: int("missing"))
    failing.start()
    failing.join()
    (log,) = (tmp_path / "state" / "defects").iterdir()
    assert "missing" in log.read_text()
    assert "Traceback" not in capsys.readouterr().err


def run_lab(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """The command ``lab schema`` in a process of its own, where that code has been run before."""
    (tmp_path / "sitecustomize.py").write_text(code)
    return run_program(
        [sys.executable, "-m", "lab", "schema"],
        env={
            **os.environ,
            "PYTHONPATH": f"{tmp_path}:{Path(lab.__file__).parents[1]}",
            "HYBRIDLAB_STATE": str(tmp_path / "state"),
        },
        check=False,
    )


THREAD = """
import click, threading
def work(*words, **more):
    failing = threading.Thread(target=lambda: {}["missing"])
    failing.start()
    failing.join()
click.echo = work
"""
AT_EXIT = "import atexit\natexit.register(lambda: {}['missing'])\n"
DELETED = """
import click
class Failing:
    def __del__(self):
        {}["missing"]
click.echo = lambda *words, **more: Failing() and None
"""


@pytest.mark.parametrize(("code", "ends"), [(THREAD, 70), (AT_EXIT, 0), (DELETED, 70)])
def test_what_fails_beside_the_command_has_its_sentence_and_its_log(tmp_path, code, ends):
    done = run_lab(code, tmp_path)
    (log,) = (tmp_path / "state" / "defects").iterdir()
    assert done.stderr == (
        f"this is a bug in lab itself: KeyError: 'missing'; the traceback is in '{log}'\n"
    )
    assert "Traceback (most recent call last)" in log.read_text()
    assert done.returncode == ends


def test_what_cannot_be_imported_leaves_a_log(tmp_path):
    (tmp_path / "click.py").write_text("raise RuntimeError('half of it\\nis there \\x1b[2J')")
    done = run_lab("", tmp_path)
    (log,) = (tmp_path / "state" / "defects").iterdir()
    assert "Traceback (most recent call last)" in log.read_text()
    assert (done.returncode, done.stderr.count("\n")) == (70, 1)
    assert done.stderr.startswith("lab cannot start: RuntimeError: half of it is there \\x1b[2J; ")
    assert f"'{log}'" in done.stderr
