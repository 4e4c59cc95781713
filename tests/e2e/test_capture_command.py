"""``lab capture`` as a user types it: what it prints and writes, and that nothing is left of it."""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path

import pytest
from lab_command import AS_PLAIN_USER, ENOUGH_SECONDS, Lab, assert_nothing_is_left

from lab._deadline import Deadline
from lab.providers.netns.holders import list_holders

pytestmark = pytest.mark.slow

STOPS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}
CELL = ("master-p1", "worker1-p1", "--protocol", "udp", "--size", "small")


def captures(lab: Lab) -> list[Path]:
    return sorted((lab.state / "labs" / "overlay" / "runs").glob("*-capture*"))


def inside(lab: Lab) -> set[str]:
    """Processes of the lab's pid namespace: its holder, what answers, and who is at work."""
    holder = next(holder for holder in list_holders() if holder.directory.is_relative_to(lab.state))
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
    stdout = lab.run("capture", "overlay", *CELL).stdout
    assert stdout.startswith("pod-pod: master-p1 to worker1-p1, UDP small: works\n")
    assert "\n  10  worker1-p1 eth0 " in stdout
    assert " in VXLAN 4096 " in stdout
    (directory,) = captures(lab)
    assert str(directory) in stdout
    assert directory.stat().st_mode & 0o777 == 0o700
    names = sorted(path.name for path in directory.iterdir())
    assert (names[0], names[-1], len(names)) == ("01-master-p1-eth0.pcapng", "path.pcapng", 11)

    lab.run("fault", "overlay", "tunnel-udp-dropped", "--node", "worker1")
    own = tmp_path / "mine"
    words = ("capture", "overlay", "pod-pod/master-p1/worker1-p1/udp-small", "--json")
    done = lab.run(*words, "--timeout", "0.5", "--output", str(own), code=1)
    document = json.loads(done.stdout)
    assert (document["last"], document["missing"]) == ("worker1 eth0", "worker1 flannel.4096")
    assert document["kind"] == "question-lost"
    assert [hop["file"] for hop in document["hops"]] == names[:-1]
    assert sorted(path.name for path in own.iterdir()) == names
    lab.run(*words, "--output", str(own), code=2)


STREAM = """
set -eu
$LAB up overlay --only linux >/dev/null 2>&1
asking='for number in $(seq 5000); do curl -s --max-time 3 http://10.244.2.4:8080/; done'
$LAB exec overlay worker1-p1 -- sh -c "$asking" >/dev/null 2>&1 &
trap 'kill $!; wait || :; $LAB down overlay >/dev/null 2>&1' EXIT
$LAB capture overlay worker1 $DEVICES -o - |
    tshark -l -n -i - -c 100 -T fields -e frame.interface_name -e ip.dst >packets
"""


@pytest.mark.parametrize("plain", [False, True], ids=["root", "plain user"])
@pytest.mark.parametrize("devices", ["eth0", ""], ids=["a device", "every device"])
def test_packets_are_streamed_to_tshark_as_they_come(plain, devices, tmp_path):
    lab = Lab(tmp_path / "state")
    command = ["bash", "-c", STREAM.replace("$LAB", shlex.join(lab.command()))]
    done = lab.call([*(AS_PLAIN_USER if plain else ()), *command], tmp_path, DEVICES=devices)
    assert done.returncode == 0, done.stderr
    packets = (tmp_path / "packets").read_text().splitlines()
    places = {line.split("\t")[0] for line in packets}
    assert {"worker1:eth0"} == places if devices else {"worker1:eth0", "worker1:cni0"} <= places
    assert_nothing_is_left(lab.state)


def test_a_stream_ends_with_its_reader_and_refuses_what_it_cannot_do(lab):
    lab.run("up", "overlay", "--only", "linux")
    before = inside(lab)
    line = shlex.join(lab.command("capture", "overlay", "worker1", "-o", "-"))
    done = lab.call(["bash", "-c", f"{line} | head -c 4 | od -An -tx4; echo ${{PIPESTATUS[0]}}"])
    assert done.stdout.split() == ["0a0d0d0a", "0"], done.stderr
    assert inside(lab) == before
    for words, sentence in (
        (("worker1", "eth7"), "there is no device 'eth7' in 'worker1'"),
        (("worker7",), "did you mean 'worker"),
        (("worker1", "eth0", "--times", "2"), "'-o -' probes nothing, so leave '--times' out"),
    ):
        done = lab.run("capture", "overlay", *words, "-o", "-", code=2)
        assert sentence in done.stderr
        assert done.stdout == ""
    assert not Path("-").exists()


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
