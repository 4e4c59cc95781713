"""The holder: found by its marks, deaf to SIGTERM, and the end of everything when killed."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from netns_intents import cluster

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.providers.netns import holders, preflight
from lab.providers.netns.holders import LAB_HOLDER, list_holders, start_time
from lab.providers.netns.provider import NetnsProvider
from lab.providers.provider import LabHandle

PROJECT = Path(holders.__file__).parents[3]


@pytest.fixture
def lab(new_lab):
    lab = new_lab("held")
    yield lab
    NetnsProvider().destroy(lab)


def test_marks_contain_lab_token_directory_and_age(lab):
    entry = holders.start_holder(lab, sys.executable)
    (mark,) = [mark for mark in NetnsProvider().marks() if mark.token == lab.token]
    assert (mark.lab, mark.directory) == (lab.name, lab.directory)
    assert mark.object == f"process {entry.pid} (holder)"
    assert 0 <= mark.age_seconds < 60


def test_marks_hold_odd_names_and_directories(new_lab, tmp_path):
    made = new_lab("a b")
    odd = tmp_path / "a directory with 'quotes' and ünïcode"
    lab = LabHandle("a b", odd, made.token)
    holders.start_holder(lab, sys.executable)
    holder = holders.find_holder(lab)
    assert holder
    assert (holder.lab, holder.directory) == ("a b", odd)
    assert NetnsProvider().destroy(lab) == (f"process {holder.pid} (holder) with its namespaces",)
    assert NetnsProvider().destroy(lab) == ()


def test_it_ignores_sigterm_and_reaps_orphans(lab):
    entry = holders.start_holder(lab, sys.executable)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(entry.pid, number)
    entry.call("x", lambda _: subprocess.Popen(["sh", "-c", "sleep 0.01 & exit"]).pid, Deadline(5))
    Deadline(5).wait(
        "all but the holder to be reaped",
        lambda: [path.name for path in Path(f"/proc/{entry.pid}/root/proc").iterdir()],
        until=lambda names: [name for name in names if name.isdigit()] == ["1"],
    )
    assert start_time(entry.pid) == entry.started


def test_it_has_no_descriptor_but_null(lab):
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        entry = holders.start_holder(lab, sys.executable)
        lines = {str(path.readlink()) for path in Path(f"/proc/{entry.pid}/fd").iterdir()}
        # a newer libffi keeps its own file open
        assert {one for one in lines if "/libffi.so" not in one} == {"/dev/null"}
    finally:
        os.close(read)
        os.close(write)


def test_it_survives_its_caller_and_lets_go_of_its_output(lab):
    program = (
        "import sys; from pathlib import Path; from lab.providers.netns import holders; "
        "from lab.providers.provider import LabHandle; "
        "lab = LabHandle(sys.argv[1], Path(sys.argv[2]), sys.argv[3]); "
        "print(holders.start_holder(lab, sys.executable).pid)"
    )
    done = subprocess.run(  # would wait for ever if the holder kept the pipe open
        [sys.executable, "-c", program, lab.name, str(lab.directory), lab.token],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    holder = holders.find_holder(lab)
    assert holder
    assert holder.pid == int(done.stdout)


def test_killing_it_ends_every_process_inside(lab):
    entry = holders.start_holder(lab, sys.executable)
    inner = entry.call(
        "x",
        lambda _: subprocess.Popen(["sleep", "60"], start_new_session=True).pid,
        Deadline(5),
        answer=int,
    )
    assert Path(f"/proc/{entry.pid}/root/proc/{inner}").exists()
    sleepers = {pid: start_time(int(pid)) for pid in _pids() if _is_inside(pid, entry.pid)}
    assert len(sleepers) >= 2
    NetnsProvider().destroy(lab)
    assert not [pid for pid, since in sleepers.items() if since and since == start_time(int(pid))]


def _pids() -> list[str]:
    return [path.name for path in Path("/proc").glob("[0-9]*")]


def _is_inside(pid: str, holder: int) -> bool:
    try:
        return Path(f"/proc/{pid}/ns/pid").samefile(f"/proc/{holder}/ns/pid")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


_UNMOUNTED_OUTSIDE = """
import subprocess, sys
from pathlib import Path
from lab._deadline import Deadline
from lab.providers.netns import holders, isolation
from lab.machines.nspawn.holder import KIND
from lab.providers.provider import LabHandle

directory, disk = Path(sys.argv[2]), Path(sys.argv[3])
subprocess.run(["mount", "-t", "tmpfs", "of-the-host", disk], check=True)
kinds = {"lab": holders.LAB_HOLDER, "containers": KIND}
entry = holders.start_holder(
    LabHandle("unmounted", directory, "0123456789abcdef"), sys.executable, kinds[sys.argv[1]]
)

def start(_):
    isolation.unshare(isolation.CLONE_NEWNS)
    return subprocess.Popen(["sleep", "60"], start_new_session=True).pid

inner = entry.call("starting a daemon", start, Deadline(5), answer=int)
places = {
    "host": "/proc/self/mountinfo",
    "holder": f"/proc/{entry.pid}/mountinfo",
    "daemon": f"/proc/{entry.pid}/root/proc/{inner}/mountinfo",
}
def mounted():
    return sorted(name for name, path in places.items() if "of-the-host" in Path(path).read_text())
before = mounted()
subprocess.run(["umount", disk], check=True)
print(before, mounted())
"""


@pytest.mark.room
@pytest.mark.parametrize("kind", ["lab", "containers"])
def test_what_the_host_unmounts_disappears_in_the_lab(kind, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(  # a mount namespace with shared mounts, as systemd makes them
        [
            *("unshare", "--mount", "--propagation=shared", "--pid", "--fork", "--kill-child"),
            *("--mount-proc", *([] if os.geteuid() == 0 else ["--map-root-user"])),
            *(sys.executable, "-c", _UNMOUNTED_OUTSIDE, kind, str(tmp_path), str(disk)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    assert done.stdout == "['daemon', 'holder', 'host'] []\n", done.stderr


@pytest.mark.parametrize(
    ("refusal", "happened", "hint"),
    [
        ({"call": "unshare", "errno": 28}, "'unshare': No space", "user.max_user_namespaces"),
        ({"call": "", "errno": 11}, "'fork': Resource temporarily unavailable", "ulimit -u"),
    ],
)
def test_a_refusal_is_one_line_of_json_and_an_error_with_its_cure(
    lab, tmp_path, refusal, happened, hint
):
    liar = tmp_path / "refused.py"
    line = json.dumps({"ready": False, **refusal})
    liar.write_text(f"print({line!r})", encoding="utf-8")
    kind = replace(LAB_HOLDER, program=liar)
    with pytest.raises(PreflightError, match=f"the kernel refused {happened}") as raised:
        holders.start_holder(lab, sys.executable, kind)
    assert hint in raised.value.hint


def test_a_process_that_cannot_be_started_is_named_where_namespaces_are_compared(lab, monkeypatch):
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with pytest.raises(PreflightError, match="'fork': Resource temporarily unavailable") as raised:
        NetnsProvider().deviations(lab, cluster(linux=1, windows=0, pods=1), ["n1"], Deadline(9))
    assert "ulimit -u" in raised.value.hint
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked


def test_a_later_holder_of_the_same_lab_replaces_the_first(lab, new_lab):
    provider, intent = NetnsProvider(), cluster(linux=1, windows=0, pods=1)
    elsewhere = new_lab("held")  # the same name in another directory: another lab
    later = LabHandle(lab.name, lab.directory, new_lab("token").token)
    for one in (lab, elsewhere, later, later):
        provider.steps(one, intent)[0].run()
    tokens = [holder.token for holder in list_holders() if holder.lab == lab.name]
    assert tokens == [elsewhere.token, later.token]
    provider.destroy(elsewhere)
    provider.destroy(later)


def test_one_that_a_look_missed_as_it_handed_over_is_ended_too(lab):
    holders.start_holder(lab, sys.executable)
    looks = iter([(), tuple(holder for holder in list_holders() if holder.token == lab.token)])
    (holder,) = holders.end_all_holders(lambda: next(looks))
    assert holder.gone()


@pytest.mark.parametrize(
    "note",
    [
        "mkfifo",
        "ln -s /dev/zero",
        "sh -c 'echo 12345678901234567890 > $1' -",
        "sh -c 'echo -9999 > $1' -",
    ],
)
def test_a_need_that_no_lab_can_have_is_no_trap_for_others(lab, note, monkeypatch):
    entry = holders.start_holder(lab, sys.executable)
    own = [holder for holder in list_holders() if holder.token == lab.token]
    monkeypatch.setattr(preflight, "list_holders", lambda: own)
    command = ["sh", "-c", f"{note} {preflight.NEED_FILE}"]
    entry.call("x", lambda _: subprocess.run(command, check=True).returncode, Deadline(5))
    assert (
        Path(f"/proc/{entry.pid}/root{preflight.NEED_FILE}").parent.joinpath("neighbours").lstat()
    )
    room = preflight.machine_room()
    assert room.neighbours_used < room.neighbour_limit
