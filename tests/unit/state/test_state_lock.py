import fcntl
import os
import signal
import subprocess
import sys
import threading

import pytest

from lab.state.lock import HeldError, Holder, holder, lab_lock

HOLD = """
import sys, time
from pathlib import Path
from lab.state.lock import lab_lock
with lab_lock(Path(sys.argv[1]), "lab up overlay"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def other(tmp_path):
    """Another process that holds the lab until it is ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "labs" / "overlay")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "labs" / "overlay"


def test_a_refused_lock_names_its_holder(directory, other):
    with (
        pytest.raises(HeldError, match=rf"'lab up overlay' \(process {other.pid}\) still holds"),
        lab_lock(directory, "lab down overlay", wait=0),
    ):
        pass


def test_a_waiting_command_names_the_holder_and_then_gets_the_lock(directory, other):
    said: list[str] = []
    ending = threading.Timer(0.1, other.kill)
    ending.start()
    with lab_lock(directory, "lab down overlay", wait=20, say=said.append):
        assert holder(directory) == Holder("lab down overlay", os.getpid())
    ending.join()
    assert said == [f"waiting for 'lab up overlay' (process {other.pid})"]


def test_waiting_ends_with_the_name_and_the_seconds(directory, other):
    with (
        pytest.raises(HeldError, match=r"'lab up overlay' .* after 0.3 s"),
        lab_lock(directory, "lab down overlay", wait=0.3),
    ):
        pass
    assert other.poll() is None


def test_a_killed_holder_lets_go(directory, other):
    other.send_signal(signal.SIGKILL)
    other.wait()
    said: list[str] = []
    with lab_lock(directory, "lab down overlay", wait=0, say=said.append):
        pass
    assert said == []


def test_tests_share_a_lab_and_keep_others_off(directory):
    with lab_lock(directory, "lab test a", shared=True):
        with lab_lock(directory, "lab test b", shared=True, wait=0):
            pass
        with pytest.raises(HeldError), lab_lock(directory, "lab down a", wait=0):
            pass
    with lab_lock(directory, "lab down a", wait=0):
        pass


def test_of_those_that_share_a_lab_one_that_still_runs_is_named(directory):
    shared = HOLD.replace('overlay")', 'overlay", shared=True)')
    arguments = [sys.executable, "-c", shared, str(directory)]
    with lab_lock(directory, "lab capture overlay", shared=True):
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as test:
            assert test.stdout is not None
            assert test.stdout.readline() == "held\n"
            test.kill()
        with (
            pytest.raises(HeldError, match=rf"'lab capture overlay' \(process {os.getpid()}\)"),
            lab_lock(directory, "lab down overlay", wait=0),
        ):
            pass


def test_a_directory_stays_for_its_lab_or_reports_alone(directory):
    with lab_lock(directory, "lab up overlay"):
        assert (directory / "lock").exists()
    assert not directory.exists()
    with lab_lock(directory, "lab down overlay"):
        (directory / "runs").mkdir()
    assert [path.name for path in directory.iterdir()] == ["runs"]
    with lab_lock(directory, "lab up overlay"):
        (directory / "scenario.yaml").write_text("")
    assert (directory / "lock").exists()
    assert holder(directory) is None


def test_a_file_that_its_holder_removed_meanwhile_is_not_the_lock(directory, monkeypatch):
    """Removing a locked file must not let two in: one by the old file, one by the new."""
    flock = fcntl.flock
    calls: list[int] = []

    def removed_just_before(descriptor, operation):
        calls.append(descriptor)
        if len(calls) == 1:
            (directory / "lock").unlink()
            directory.rmdir()
        flock(descriptor, operation)

    monkeypatch.setattr("lab.state.lock.fcntl.flock", removed_just_before)
    with lab_lock(directory, "lab up overlay", wait=20):
        monkeypatch.undo()
        with pytest.raises(HeldError), lab_lock(directory, "lab down overlay", wait=0):
            pass


@pytest.mark.parametrize("words", ["not ours", '[Infinity, ""]', "[" * 4000])
def test_a_lock_file_with_other_words_is_still_a_lock(directory, words):
    with lab_lock(directory, "lab up overlay"):
        (directory / "lock").write_text(words)
        assert holder(directory) == Holder("another lab command", 0)
