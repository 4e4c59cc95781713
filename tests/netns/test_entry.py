"""Functions run inside a holder: results, errors, deadlines, and dying with the caller."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, UsageError
from lab.providers.netns import holders
from lab.providers.netns.child_calls import Tell
from lab.providers.netns.holders import HolderEntry, start_time
from lab.shells.shell import Completed

LONG = f"60.{os.getpid()}"
"""Seconds to sleep, as nothing else on this machine has them in its command line."""


@pytest.fixture(scope="module")
def entry(new_lab):
    lab = new_lab("entered")
    yield holders.start_holder(lab, sys.executable)
    holder = holders.find_holder(lab)
    assert holder
    holders.end_all_holders(lambda: (holder,))


def test_what_a_function_returns_comes_back(entry):
    made = ("a" * 300_000, Completed(3, "\udcff", ""))
    answer = tuple[str, Completed]
    assert entry.call("x", lambda _: made, Deadline(5), answer=answer) == made


def test_what_nobody_wants_does_not_come_back(entry):
    assert entry.call("x", lambda _: object(), Deadline(5)) is None


def test_what_it_raises_comes_back_as_itself(entry):
    def fail(_: object) -> NoReturn:
        raise UsageError("asking", "it is wrong", "ask again")

    with pytest.raises(UsageError) as raised:
        entry.call("x", fail, Deadline(5))
    assert raised.value.hint == "ask again"
    assert "in fail" in "".join(raised.value.__notes__)


def test_the_systems_errors_come_back_with_number_and_file(entry):
    with pytest.raises(FileNotFoundError) as raised:
        entry.call("x", lambda _: Path("/none/such").read_bytes(), Deadline(5))
    assert (raised.value.errno, raised.value.filename) == (errno.ENOENT, "/none/such")


def test_a_defect_comes_back_as_one_with_its_name_and_place(entry):
    def fail(_: object) -> NoReturn:
        raise KeyError("strange one")

    with pytest.raises(RuntimeError, match="KeyError: 'strange one'") as raised:
        entry.call("x", fail, Deadline(5))
    assert "in fail" in "".join(raised.value.__notes__)


def test_messages_of_a_child_arrive_in_order(entry):
    heard = []
    entry.call(
        "x",
        lambda tell: [tell(n) for n in range(5)],
        Deadline(5),
        told=int,
        heard=heard.append,
    )
    assert heard == [0, 1, 2, 3, 4]


def test_at_the_deadline_it_is_killed_and_the_last_word_reported(entry, monkeypatch):
    children, late = [], 0

    def slow(tell: Tell) -> None:
        tell(0)
        tell(os.getpid())
        signal.pause()

    def heard(word: object) -> None:
        nonlocal late
        children.append(word)
        late = 100 if len(children) > 1 else 0

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + late, sleep=time.sleep)
    monkeypatch.setattr("lab._deadline.time", clock)
    with pytest.raises(DeadlineError, match=r"sleeping: not done within 90 s; last reported: \d"):
        entry.call("sleeping", slow, Deadline(90), told=int, heard=heard)
    inside = children[1]
    assert start_time(inside, f"/proc/{entry.pid}/root/proc") is None


def test_a_child_that_is_killed_is_an_error(entry):
    with pytest.raises(BrokenError, match="was killed"):
        entry.call("x", lambda _: os.kill(os.getpid(), signal.SIGKILL), Deadline(5))


def test_apart_all_that_it_starts_ends_with_it(entry):
    def leave_one(_: object) -> int:
        subprocess.Popen(["sleep", LONG])
        return os.getpid()

    assert entry.call("x", leave_one, Deadline(5), answer=int, apart=True) == 1
    Deadline(5).wait("the sleeper to end", lambda: not _running(LONG))


def test_it_dies_with_its_caller(entry):
    caller = os.fork()
    if not caller:
        try:
            sleep = ["sleep", LONG]
            entry.call("x", lambda _: subprocess.run(sleep, check=False), Deadline(60), apart=True)
        finally:
            os._exit(0)
    Deadline(5).wait("the sleeper to start", lambda: _running(LONG))
    os.kill(caller, signal.SIGKILL)
    os.waitpid(caller, 0)
    Deadline(5).wait("the sleeper to end", lambda: not _running(LONG))


def test_a_holder_that_has_gone_or_is_another_is_refused(entry):
    with pytest.raises(BrokenError, match="no longer exists"):
        HolderEntry(entry.pid, entry.started + 1).call("x", lambda _: None, Deadline(5))
    with pytest.raises(BrokenError, match="no longer exists"):
        HolderEntry(1 << 22, 1).call("x", lambda _: None, Deadline(5))


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_child_stopped_while_it_is_forked_does_not_run_its_callers_code(number):
    program = f"""
import os, signal, sys
from lab._deadline import Deadline
from lab.lifecycle.interruption import terminable
from lab.providers.netns import child_calls
fork = os.fork
def forked():
    child = fork()
    if not child:
        os.kill(os.getpid(), signal.{number})
    return child
os.fork = forked
with terminable():
    try:
        child_calls.call_in_child("x", (), lambda _: None, Deadline(10), child_calls.Listener())
    except BaseException as error:
        print(type(error).__name__, os.getpid() == int(sys.argv[1]))
"""
    shell = f"exec {sys.executable} -c '{program}' $$"
    done = subprocess.run(
        ["sh", "-c", shell], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout == "BrokenError True\n"
    assert "Traceback" not in done.stderr


def _running(word: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes().split(b"\0") and start_time(
                int(path.parent.name)
            ):
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False


def test_a_signal_that_came_before_the_wait_ends_the_child():
    """Who has forked the next is told to end before it has begun to wait for it."""
    code = (
        "import os, signal\n"
        "from lab.providers.netns import child_calls\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    signal.alarm(60)\n"
        "    signal.pause()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "child_calls._reap(child)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=20, check=False).returncode == 0
