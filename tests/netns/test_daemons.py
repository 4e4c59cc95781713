"""Real daemons inside the namespaces of a lab: started, waited for, missed, and gone with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from daemon_worlds import VIRTUAL, having, world
from netns_running import PROGRAMS, Running

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError
from lab.providers.netns import holders
from lab.providers.netns.provider import NetnsProvider
from lab.providers.provider import Liveness
from lab.topology.daemon import Daemon, File, Ready

SLEEPER = Daemon("sleeper", "coreutils", ("sleep", "1000000"), Ready("", ("true",)))


@pytest.fixture(scope="module")
def running(bring_up):
    return bring_up(world())


def _record(running: Running) -> dict[str, int]:
    """Every daemon's process as the holder numbers it, in the order of their start."""
    holder = holders.enter_holder(running.lab).pid
    text = Path(f"/proc/{holder}/root/run/daemons.jsonl").read_text(encoding="utf-8")
    return {one["name"]: one["pid"] for one in map(json.loads, text.splitlines())}


def _kill(running: Running, daemon: str, how: signal.Signals = signal.SIGKILL) -> None:
    pid = _record(running)[daemon]
    running.entry.call(f"signalling {daemon}", lambda _: os.kill(pid, how), Deadline(10))


def test_daemons_of_every_kind_do_their_work_each_on_its_machine(running):
    assert "198.51.100.2" in running.shell("worker1", "ip route show proto bird")
    assert "198.51.100.1" in running.shell("worker2", "ip route show proto bird")
    Deadline(5).wait(
        "electing", lambda: VIRTUAL in running.shell("worker1", "ip -4 address show eth0")
    )
    assert VIRTUAL not in running.shell("worker2", "ip -4 address show eth0")
    assert running.ask("worker2", "10.9.176.254", 6443).startswith("worker1 10.9.176.254")
    ask = "import socket; s = socket.socket(2, 2); s.connect(('10.9.176.254', 53)); s.send("
    ask += r"b'\x07\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x04test\x00\x00\x01\x00\x01'"
    ask += "); print(s.recv(512)[-4:].hex())"
    done = running.provider.machine(running.lab, running.intent, "client").run(
        [sys.executable, "-c", ask], Deadline(10)
    )
    assert done.stdout == "c000024d\n", done


def test_a_machine_with_daemons_has_a_run_directory_of_its_own(running):
    assert running.shell("worker1", "ls /run") == "bird\nkeepalived\n"
    assert running.shell("router", "ls /run") == "dnsmasq\nhaproxy\n"
    assert "BIRD 2" in running.shell("worker2", "birdc show status")
    by_hand = running.provider.machine(running.lab, running.intent, "worker2").command_line(
        ["birdc", "show", "status"]
    )
    shown = subprocess.run(by_hand, shell=True, capture_output=True, text=True, check=True)
    assert "Router ID is 10.9.176.2" in shown.stdout


def test_their_files_are_in_the_evidence(running):
    found = {
        piece.path: piece.content.decode()
        for piece in running.provider.evidence(running.lab, running.intent)
    }
    assert "router id 10.9.176.1;" in found["worker1/bird/bird.conf"]
    assert "Entering MASTER STATE" in found["worker1/keepalived/log"]
    assert "started, version" in found["router/dnsmasq/log"]


def test_the_step_can_run_twice_and_leaves_each_daemon_once(running):
    for step in running.provider.steps(running.lab, running.intent)[-2:]:
        step.run()
    assert running.provider.liveness(running.lab, running.intent).state == "running"
    processes = running.shell("router", "cat /proc/[0-9]*/comm")
    assert "bird" not in processes, "a command has a process namespace of its own"
    holder = holders.enter_holder(running.lab).pid
    listed = subprocess.run(
        ["nsenter", f"--target={holder}", "--pid", "--mount", "ps", "-C", "bird", "-o", "pid="],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(listed.stdout.split()) == 2


def test_one_that_dies_breaks_the_lab_and_shows_its_last_words(bring_up):
    talker = Daemon(
        "talker",
        "dash",
        ("sh", "-c", 'echo one; echo "cannot go on"; exec sleep 1000000'),
        Ready("cannot go on"),
    )
    running = bring_up(having(worker1=(talker,), worker2=(SLEEPER,)))
    _kill(running, "sleeper")

    def detail() -> str:
        return running.provider.liveness(running.lab, running.intent).detail

    Deadline(5).wait("seeing it", detail, until=lambda seen: seen.startswith("'sleeper' on"))
    assert detail() == "'sleeper' on 'worker2' has ended; the end of its log: it wrote nothing"
    assert running.provider.liveness(running.lab, running.intent).state == "broken"
    _kill(running, "talker")
    Deadline(5).wait("seeing both", detail, until=lambda seen: seen.startswith("2 of"))
    assert detail() == (
        "2 of its 2 daemons have ended, the first is 'talker' on 'worker1'; "
        "the end of its log:\n    one\n    cannot go on"
    )


def test_one_that_is_stopped_breaks_the_lab_and_the_step_starts_it_again(bring_up):
    running = bring_up(having(worker2=(SLEEPER,)))
    _kill(running, "sleeper", signal.SIGSTOP)

    def look() -> Liveness:
        return running.provider.liveness(running.lab, running.intent)

    liveness = Deadline(5).wait("seeing it", look, until=lambda seen: seen.state == "broken")
    assert liveness.detail == "'sleeper' on 'worker2' is stopped by a signal or a debugger"
    for step in running.provider.steps(running.lab, running.intent)[-2:]:
        step.run()
    assert look().state == "running"


def _shell(name: str, command: str, ready: Ready) -> Daemon:
    return Daemon(name, "dash", ("sh", "-c", command), ready)


NONSENSE = ("bird", "-f", "-c", "bird.conf", "-s", "bird.ctl")
THINKING = Ready("^done$", ("sh", "-c", "echo still thinking"), seconds=0.5)
NO_SPACE = (("sh", "-c", "echo no space; exit 7"),)


@pytest.mark.parametrize(
    ("daemon", "error", "says"),
    [
        (
            _shell("dying", "echo no such port; exit 3", Ready("ready")),
            BrokenError,
            r"'dying' on 'worker2'.*exit code 3: no such port",
        ),
        (
            _shell("slow", "sleep 1000000", THINKING),
            DeadlineError,
            r"within 0\.5 s; last seen: .*still thinking",
        ),
        (
            Daemon("bird", "bird2", NONSENSE, Ready("x"), (File("bird.conf", "protocol non;"),)),
            BrokenError,
            r"(exit code 1: |has ended).*bird\.conf:1:\d+ syntax error",
        ),
        (
            replace(_shell("db", "sleep 1", Ready("x")), before=NO_SPACE),
            BrokenError,
            "for 'db' on 'worker2': exit code 7: no space",
        ),
    ],
    ids=["ends", "never ready", "wrong configuration", "command fails"],
)
def test_a_daemon_that_never_gets_ready_fails_the_step_with_the_reason(
    new_lab, daemon, error, says
):
    lab, intent, provider = new_lab("failing"), having(worker2=(daemon,)), NetnsProvider()
    try:
        provider.preflight(lab, intent)
        with pytest.raises(error, match=says):
            Running(lab, intent, provider).up()
    finally:
        provider.destroy(lab)


def test_commands_come_before_and_after_and_stages_wait_for_each_other(bring_up):
    first = Daemon(
        "first",
        "dash",
        ("sh", "-c", "cat made; echo ready; exec sleep 1000000"),
        Ready("^ready"),
        files=(File("deep/file", "deep\n", 0o600),),
        environment=(("SAID", "made"),),
        before=(("sh", "-c", "echo $SAID in $(hostname) > made"), ("cat", "deep/file")),
        after=(("sh", "-c", "cp made /run/first/after"),),
        stage=1,
    )
    late = Daemon("late", "dash", ("sleep", "1000000"), Ready("", ("true",)), stage=2)
    early = Daemon("early", "dash", ("sh", "-c", "date +%s%N; exec sleep 1e6"), Ready("."))
    running = bring_up(having(worker1=(late, first), worker2=(early,)))
    assert running.shell("worker1", "cat /run/first/after /run/first/log") == (
        "made in worker1\nmade in worker1\nready\n"
    )
    assert running.shell("worker1", "stat -c %a /run/first/deep/file") == "600\n"
    assert list(_record(running)) == ["early", "first", "late"]


def test_a_log_that_is_full_is_cut_off_and_its_daemon_runs_on(bring_up):
    writes = "head -c 70000000 /dev/zero; touch written; exec sleep 1000000"
    writer = Daemon("writer", "dash", ("sh", "-c", writes), Ready("", ("test", "-e", "written")))
    running = bring_up(having(worker1=(writer,)))
    assert running.shell("worker1", "stat -c %s /run/writer/log") == f"{64 << 20}\n"
    assert running.provider.liveness(running.lab, running.intent).state == "running"


def test_missing_programs_are_refused_before_anything_is_made(new_lab):
    lab = new_lab("missing")
    absent = Daemon(
        "router", "nobodys-package", ("no-such-daemon",), Ready("x", ("no-such-client", "show"))
    )
    with pytest.raises(PreflightError) as raised:
        NetnsProvider().preflight(lab, having(worker2=(absent, SLEEPER)))
    assert raised.value.happened == (
        "no program 'no-such-daemon' (package nobodys-package), needed for 'router' on 'worker2'; "
        "no program 'no-such-client' (package nobodys-package), needed for 'router' on 'worker2'"
    )
    assert raised.value.hint == "sudo apt-get install --no-install-recommends nobodys-package"
    assert holders.find_holder(lab) is None


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([], id="this user"),
        pytest.param(
            ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"],
            id="a plain user",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user"),
        ),
    ],
)
def test_a_whole_life_with_daemons(new_lab, before):
    lab = new_lab("life")
    done = subprocess.run(
        [
            *before,
            sys.executable,
            str(PROGRAMS / "daemon_life.py"),
            lab.token,
            str(lab.directory),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == {
        "state": "running",
        "established": True,
        "elected": True,
        "removed": 1,
        "user": 1000 if before else os.geteuid(),
    }
