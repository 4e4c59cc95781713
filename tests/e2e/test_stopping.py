"""Stopped, unread, several at once: the exit code still tells the truth."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from lab_command import ENOUGH_SECONDS, Lab, processes_with

from lab._deadline import Deadline

pytestmark = pytest.mark.slow


def shell(lab: Lab, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a bash script in which ``$LAB`` is the command with those words."""
    command = f"LAB={shlex.quote(shlex.join(lab.command(*words)))}\n{script}"
    return lab.call(["bash", "-c", command])


def test_tests_of_one_lab_at_once_keep_a_junit_file_each(lab):
    lab.run("up", "overlay")
    with ThreadPoolExecutor(3) as pool:
        families = ("hairpin", "dns", "pod-external")
        list(pool.map(lambda family: lab.run("test", "overlay", "-m", family), families))
    runs = lab.state / "labs" / "overlay" / "runs"
    lines = [ET.parse(path).getroot().iter("testcase") for path in runs.glob("*/junit.xml")]
    assert sorted(len(list(cases)) for cases in lines) == [40, 40, 60]
    assert not list(runs.parent.glob("junit*"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_test_is_reported_and_exits_with_the_signals_code(lab, number, code):
    lab.run("up", "overlay")
    lab.run("exec", "overlay", "worker1", "--", "ip", "link", "set", "eth0", "down")
    process = lab.start("test", "overlay")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    Deadline(30).wait("waiting for the probing to begin", children.read_text)
    process.send_signal(number)
    _, story = process.communicate(timeout=ENOUGH_SECONDS)
    assert "interrupted" in story
    assert "Traceback" not in story
    assert process.returncode == code
    assert not list((lab.state / "labs" / "overlay").glob("junit*"))


def test_up_goes_on_where_nobody_reads_its_story(lab):
    done = shell(lab, "$LAB 2> >(exec true); echo $?", "up", "overlay")
    assert done.stdout.splitlines()[-1] == "0", done.stdout + done.stderr
    lab.run("status", "overlay")


def test_reader_that_stops_early_is_no_failure_and_hides_none(lab):
    script = "$LAB | true; echo ${PIPESTATUS[0]}"
    assert shell(lab, script, "schema").stdout == "0\n"
    lab.run("up", "overlay")
    assert shell(lab, script, "test", "overlay", "-m", "hairpin").stdout == "0\n"
    (first,) = (lab.state / "labs/overlay/runs").iterdir()
    lab.run("exec", "overlay", "worker1-p1", "--", "ip", "link", "set", "eth0", "down")
    for words in (("-m", "hairpin"), ("-m", "hairpin", "--verbose"), ("-m", "hairpin", "--json")):
        assert shell(lab, script, "test", "overlay", *words).stdout == "1\n"
    assert shell(lab, script, "diff", first.name, "overlay").stdout == "1\n"
    assert shell(lab, script, "explain", "overlay", "worker1-p1", "master-p1").stdout == "1\n"
    assert shell(lab, script, "events", "overlay", "--follow").stdout == "0\n"


@pytest.mark.parametrize("unbuffered", ["", "PYTHONUNBUFFERED=1"])
@pytest.mark.parametrize("word", ["schema", "--help"])
@pytest.mark.parametrize(
    ("script", "happened"),
    [
        ("$LAB > /dev/full", "no space left on device"),
        ("$LAB 1< /dev/null", "bad file descriptor"),
        ("ulimit -f 1; $LAB > $HYBRIDLAB_STATE.part", "file too large"),
    ],
)
def test_standard_output_that_cannot_be_written_is_an_error(
    lab, unbuffered, word, script, happened
):
    done = shell(lab, script.replace("$LAB", f"env {unbuffered} $LAB"), word)
    assert done.stderr == (
        f"error: writing the result to standard output: {happened}\n  try: redirect it elsewhere\n"
    )
    assert done.returncode == 4


def test_a_pipe_that_does_not_block_is_written_whole(lab):
    read, write = os.pipe()
    os.set_blocking(write, False)
    whole = lab.run("schema").stdout.encode()
    assert len(whole) > 2 * fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    command = lab.command("schema")
    with subprocess.Popen(command, env=lab.environment(), stdout=write) as process:
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            assert pipe.read() == whole
    assert process.returncode == 0


def test_a_reached_limit_is_reported_and_is_no_defect(lab):
    done = shell(lab, "ulimit -n 6; $LAB", "list")
    assert done.returncode == 4
    assert "this process may not open more files\n  try: raise the limit" in done.stderr
    assert not list(lab.state.glob("defects/*"))


def test_error_that_nobody_reads_keeps_its_exit_code(lab):
    assert shell(lab, "$LAB 2> /dev/full", "up", "overlai").returncode == 2
    assert shell(lab, "$LAB 2> /dev/full", "upp").returncode == 2


@pytest.mark.parametrize("wrong", [("--no-such-option",), ("-p", "no_such_plugin"), ("-k", "((")])
def test_option_that_pytest_does_not_know_is_wrong_usage(lab, wrong):
    lab.run("up", "overlay")
    assert wrong[-1] in lab.run("test", "overlay", *wrong, code=2).stderr


def test_test_finds_its_plugin_also_where_none_is_loaded_by_itself(lab, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    lab.run("up", "overlay")
    lab.run("test", "overlay", "-m", "hairpin")


STOPPED_WHILE_IMPORTING = """
import os, runpy, signal, sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Stop())
sys.argv[1:] = [sys.argv[1], "list"]
runpy.run_module("lab", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("module", ["lab.cli.main", "click", "lab._errors"])
def test_ctrl_c_while_the_command_is_still_being_loaded_is_no_traceback(lab, module):
    command = [sys.executable, "-c", STOPPED_WHILE_IMPORTING, module]
    done = lab.call(command, PYTHONPATH=str(Path(__file__).parents[2]))
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.fixture
def _not_under_nohup() -> Iterator[None]:
    """What a test starts is ended by SIGHUP, also where the tests themselves ignore it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_not_under_nohup")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("place", ["worker1", "worker1-p1"])
def test_exec_that_is_ended_ends_all_that_its_command_has_started(lab, number, place):
    lab.run("up", "overlay")
    marks = [f"60{digit}.{os.getpid()}" for digit in range(3)]
    script = f"setsid sleep {marks[0]} & (sleep {marks[1]} & exit) ; sleep {marks[2]}; true"
    with lab.start("exec", "overlay", place, "--", "sh", "-c", script) as process:
        Deadline(60).wait(
            "the command to start", lambda: all(processes_with(f"sleep {mark} ") for mark in marks)
        )
        process.send_signal(number)
        assert process.wait(ENOUGH_SECONDS) == -number
    Deadline(60).wait(
        "the command to end", lambda: not any(processes_with(f"sleep {mark} ") for mark in marks)
    )


def test_what_a_command_of_exec_leaves_behind_goes_on_when_it_ends(lab):
    lab.run("up", "overlay")
    mark = f"604.{os.getpid()}"
    script = f"sleep {mark} > /dev/null 2>&1 & exit 3"
    lab.run("exec", "overlay", "worker1-p1", "--", "sh", "-c", script, code=3)
    assert processes_with(f"sleep {mark} ")
    lab.run("down", "overlay")
    assert not processes_with(f"sleep {mark} ")


@pytest.mark.parametrize("file", ["result.json", "report.html"])
def test_a_pipe_in_the_place_of_a_result_is_refused_and_gathered_as_missing(lab, file):
    lab.run("up", "overlay")
    lab.run("test", "overlay", "-m", "hairpin")
    (directory,) = (lab.state / "labs" / "overlay" / "runs").iterdir()
    (directory / file).unlink()
    os.mkfifo(directory / file)
    option = ["--json"] if file == "result.json" else []
    done = lab.call(lab.command("report", "overlay", *option))
    assert done.returncode == 3
    assert f"{file}' cannot be read: it is a pipe, not a regular file" in done.stderr
    archive = lab.state.parent / "evidence.tar.gz"
    done = lab.call(lab.command("gather", "overlay", "-o", str(archive)))
    assert done.returncode == 0, done.stderr
    assert f"{file}: it is a pipe, not a regular file" in done.stderr
    with tarfile.open(archive) as opened:
        (missing,) = [name for name in opened.getnames() if name.endswith(f"{file}.missing")]
        piece = opened.extractfile(missing)
        assert piece is not None
        assert b"not a regular file" in piece.read()


def test_exec_leaves_the_options_of_its_command_alone(lab):
    lab.run("up", "overlay")
    assert "Filesystem" in lab.run("exec", "overlay", "worker1-p1", "df", "-h").stdout
    line = lab.run("exec", "overlay", "worker1-p1", "--print", "df", "-h").stdout
    assert "worker1-p1 df -h" in line
    assert lab.run("exec", "overlay", "worker1", "--", "echo", "--print").stdout == "--print\n"
    assert lab.run("exec", "overlay", "worker1", "-h").stdout.startswith("Usage: lab exec")
