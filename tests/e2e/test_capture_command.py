"""``lab capture`` as a user types it: what it prints and writes, and that nothing is left of it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from lab_command import ENOUGH_SECONDS, Lab

from lab._deadline import Deadline
from lab.providers.netns.holders import list_holders

pytestmark = pytest.mark.slow

STOPS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}
CELL = ("master-p1", "worker1-p1", "--protocol", "udp", "--size", "small")


def captures(lab: Lab) -> list[Path]:
    return sorted((lab.state / "labs" / "overlay" / "runs").glob("*-capture*"))


def inside(lab: Lab) -> set[str]:
    """Processes of the lab's pid namespace: its holder, what answers, and who is at work."""
    holder = next(one for one in list_holders() if one.directory.is_relative_to(lab.state))
    own = Path(f"/proc/{holder.pid}/ns/pid").readlink()
    return {
        path.parent.parent.name for path in Path("/proc").glob("[0-9]*/ns/pid") if at(path, own)
    }


def at(path: Path, namespace: Path) -> bool:
    try:
        return path.readlink() == namespace
    except OSError:  # it has ended meanwhile
        return False


def test_capture_shows_the_path_and_writes_its_files(lab, tmp_path):
    lab.run("up", "overlay")
    said = lab.run("capture", "overlay", *CELL).stdout
    assert said.startswith("pod-pod: master-p1 to worker1-p1, UDP small: works\n")
    assert "\n  10  worker1-p1 eth0 " in said
    assert " in VXLAN 4096 " in said
    (directory,) = captures(lab)
    assert str(directory) in said
    assert directory.stat().st_mode & 0o777 == 0o700
    names = sorted(path.name for path in directory.iterdir())
    assert (names[0], names[-1], len(names)) == ("01-master-p1-eth0.pcapng", "path.pcapng", 11)

    lab.run("fault", "overlay", "tunnel-udp-dropped", "--node", "worker1")
    own = tmp_path / "mine"
    words = ("capture", "overlay", "pod-pod/master-p1/worker1-p1/udp-small", "--json")
    done = lab.run(*words, "--timeout", "0.5", "--output", str(own), code=1)
    found = json.loads(done.stdout)
    assert (found["last"], found["missing"]) == ("worker1 eth0", "worker1 flannel.4096")
    assert found["kind"] == "question-lost"
    assert [one["file"] for one in found["hops"]] == names[:-1]
    assert sorted(path.name for path in own.iterdir()) == names
    lab.run(*words, "--output", str(own), code=2)


def test_nothing_is_left_of_a_capture_that_is_stopped(lab):
    lab.run("up", "overlay")
    lab.run("fault", "overlay", "tunnel-udp-dropped", "--node", "worker1")
    before = inside(lab)
    for number, code in STOPS.items():
        process = lab.start("capture", "overlay", *CELL, "--timeout", "30")
        Deadline(60).wait(
            "waiting for the one that listens and the one that asks",
            lambda: inside(lab) - before,
            until=lambda more: len(more) > 1,
        )
        process.send_signal(number)
        _, story = process.communicate(timeout=ENOUGH_SECONDS)
        assert process.returncode == code
        assert "Traceback" not in story
        Deadline(30).wait(
            "waiting for what it started inside the lab to end",
            lambda: inside(lab) - before,
            until=lambda more: not more,
        )
    assert captures(lab) == []
    lab.run("heal", "overlay")
    lab.run("capture", "overlay", *CELL)  # nobody holds the lab
