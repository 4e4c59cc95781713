"""A lab's life as a plain user, and one cut short by SIGKILL between any two steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from netns_intents import cluster
from netns_running import PROGRAMS

from lab._deadline import Deadline
from lab.providers.netns import isolation
from lab.providers.netns.daemons import find_ailment
from lab.providers.netns.holders import list_holders
from lab.providers.netns.provider import NetnsProvider
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent

LIFE = [sys.executable, str(PROGRAMS / "life.py")]
PLAIN = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]
WHOLE = {
    "state": "running",
    "resolver": ["nameserver 10.96.0.10"],
    "answer": "worker2-p1",
    "by hand": True,
    "removed": 1,
    "left": False,
}
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give a user namespace another user's number"
)


def _life(lab: LabHandle, before: Sequence[str] = ()) -> dict[str, object]:
    done = subprocess.run(
        [*before, *LIFE, lab.token, str(lab.directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


def test_a_whole_life(new_lab):
    assert _life(new_lab("life")) == {"user": os.geteuid(), **WHOLE}


@needs_root
def test_a_whole_life_as_a_plain_user(new_lab):
    assert _life(new_lab("life"), PLAIN) == {"user": 1000, **WHOLE}


@needs_root
def test_no_user_namespaces_left_is_refused_with_the_command(new_lab):
    # Inside a user namespace of its own, which allows no further one, without capabilities.
    shut = 'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all "$@"'
    liveness = _life(
        new_lab("life"),
        ["unshare", "--user", "--map-root-user", "sh", "-c", shut, "sh"],
    )
    assert liveness["error"] == "PreflightError"
    assert "no namespaces" in str(liveness["text"])
    assert "No space left on device" in str(liveness["text"])
    assert liveness["hint"] == (
        "sudo sysctl -w user.max_user_namespaces=15000 user.max_net_namespaces=15000"
    )


@needs_root
def test_root_may_enter_and_end_a_plain_users_lab(new_lab):
    lab, intent, provider = new_lab("life"), cluster("overlay", pods=1), NetnsProvider()
    process = _stopped([*PLAIN, *LIFE], lab, "ready")
    try:
        assert provider.liveness(lab, intent).state == "running"
        done = provider.machine(lab, intent, "win1").run(["hostname"], _soon())
        assert done.stdout == "win1\n"
        assert len(provider.destroy(lab)) == 1
    finally:
        _kill(process)


def test_other_users_labs_are_not_seen(new_lab, monkeypatch):
    lab = new_lab("life")
    process = _stopped(LIFE, lab, "holder")
    try:
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
        assert NetnsProvider().marks() == ()
        assert NetnsProvider().destroy(lab) == ()
    finally:
        monkeypatch.undo()
        _kill(process)
        assert len(NetnsProvider().destroy(lab)) == 1


@pytest.mark.parametrize("step", ["holder", "network", "services", "responder", "ready"])
def test_killed_after_a_step_it_is_taken_away_by_its_marks(new_lab, step):
    lab = new_lab("life")
    _kill(_stopped(LIFE, lab, step))
    assert [holder for holder in list_holders() if holder.token == lab.token]
    assert len(NetnsProvider().destroy(lab)) == 1
    assert NetnsProvider().destroy(lab) == ()


def test_every_step_can_run_twice(bring_up):
    running = bring_up(cluster("overlay", pods=1))
    steps = running.provider.steps(running.lab, running.intent)
    for first in range(len(steps)):
        for step in steps[first:]:
            step.run()
        assert running.provider.liveness(running.lab, running.intent).state == "running"
        assert running.ask("worker1-p1", "10.244.1.2", 8080) == "worker2-p1 10.244.0.2"
        assert running.ask("worker1-p1", "10.96.0.21", 80) == "worker2-p1 10.244.0.2"


def test_digests_are_stable_and_reveal_changes(new_lab):
    lab, provider = new_lab("life"), NetnsProvider()

    def digests(intent: Intent, provider: NetnsProvider = provider) -> dict[str, str]:
        return {step.name: step.digest for step in provider.steps(lab, intent)}

    was = digests(cluster())
    assert digests(cluster()) == was
    freed = digests(cluster(), NetnsProvider(frozenset({"WIN-HOST-SERVICE"})))
    assert {name for name in was if was[name] != freed[name]} == {"services"}
    fewer = digests(cluster(pods=1))
    assert {name for name in was if was[name] != fewer[name]} == {
        "network",
        "services",
        "responder",
    }


@needs_root
def test_a_lab_hidden_by_another_user_namespace_is_not_reported_broken(bring_up):
    running = bring_up(cluster("overlay", pods=1))
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            isolation.unshare(isolation.CLONE_NEWUSER)
            os.write(writer, find_ailment(running.entry.pid, running.intent).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    assert f"process {running.entry.pid}, cannot be inspected from this user namespace" in said
    assert find_ailment(running.entry.pid, running.intent) == ""


def test_liveness_distinguishes_absent_running_and_broken(bring_up):
    running = bring_up(cluster("overlay", pods=1))
    provider, lab, intent = running.provider, running.lab, running.intent
    assert provider.liveness(lab, intent).state == "running"
    liveness = provider.liveness(lab, cluster("overlay", pods=2))
    assert (liveness.state, "'worker1-p2'" in liveness.detail) == ("broken", True)
    pid = running.entry.call("x", lambda _: _responder(), _soon(), answer=int)

    def see(how: signal.Signals, state: str) -> str:
        running.entry.call("x", lambda _: os.kill(pid, how), _soon())
        return (
            _soon()
            .wait(
                f"{how.name} of the responder to be seen",
                lambda: provider.liveness(lab, intent),
                until=lambda seen: seen.state == state,
            )
            .detail
        )

    assert "responder" in see(signal.SIGSTOP, "broken")
    assert "holder process" in see(signal.SIGCONT, "running")
    assert "responder" in see(signal.SIGKILL, "broken")
    provider.destroy(lab)
    assert provider.liveness(lab, intent).state == "absent"


def _responder() -> int:
    return int(json.loads(Path("/run/responder.json").read_text(encoding="ascii"))["pid"])


def _soon() -> Deadline:
    return Deadline(10)


def _stopped(command: list[str], lab: LabHandle, step: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [*command, lab.token, str(lab.directory), step], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "stopped\n"
    return process


def _kill(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()
