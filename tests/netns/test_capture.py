"""Probes captured in labs of real namespaces: works, is lost at known places, is refused."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from functools import cache

import pytest
from netns_running import Running

from lab._deadline import Deadline
from lab.explain.capture.files import WHOLE, Captured, files
from lab.explain.capture.probe import capture_probe as once
from lab.explain.faults import registry
from lab.matrix.cells import Matrix, make_matrix
from lab.matrix.run import make_probe
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.providers.capture import Tap
from lab.providers.provider import ProbeSettings
from lab.scenario.loader import find, load
from lab.topology import registry as topologies

SECONDS = 0.5
"""For an answer. What is lost is lost for good, and what is answered is answered at once."""
SCENARIO = "overlay"
SO_RCVBUFFORCE = 33
FAULTS = registry.faults()


@cache
def plan() -> Plan:
    return make_plan(load(find(SCENARIO)))


@pytest.fixture(scope="module")
def running(bring_up):
    return bring_up(topologies.intent(plan()), name=SCENARIO)


@cache
def matrix(running: Running) -> Matrix:
    return make_matrix(plan(), running.intent)


def capture_cell(running: Running, cell_id: str, seconds: float = SECONDS) -> Captured:
    cell = matrix(running).find(cell_id)
    assert cell is not None, cell_id
    return once(running.provider, running.lab, running.intent, cell, (), timeout=seconds)


@pytest.mark.parametrize(
    ("cell", "first", "last"),
    [
        ("pod-pod/master-p1/win1-p1/tcp-small", "master-p1 eth0", "win1-p1 eth0"),
        ("pod-pod/worker1-p1/worker1-p2/udp-large", "worker1-p1 eth0", "worker1-p2 eth0"),
        ("pod-service/worker1-p1/to-master-p1/tcp-large", "worker1-p1 eth0", "master-p1 eth0"),
        ("hairpin/worker1-p1/to-worker1-p1/udp-small", "worker1-p1 eth0", "worker1-p1 eth0"),
        ("node-service/worker1/to-win1-p1/tcp-small", "worker1 flannel.4096", "win1-p1 eth0"),
        ("nodeport/client/worker1:to-worker2-p1/udp-small", "client eth0", "worker2-p1 eth0"),
        ("pod-node/worker1-p1/worker2/tcp-small", "worker1-p1 eth0", "worker2 eth0"),
        ("pod-external/worker1-p1/client/tcp-small", "worker1-p1 eth0", "client eth0"),
        ("dns/worker1-p1/to-master-p1.default/udp-small", "worker1-p1 eth0", "coredns eth0"),
    ],
)
def test_what_works_is_seen_all_the_way_there_and_back(running, cell, first, last):
    captured = capture_cell(running, cell, seconds=5.0)
    assert (captured.verdict, captured.conclusion.kind) == ("pass", "answered")
    assert not [capture for capture in captured.taken if capture.trouble or capture.missed]
    lines = [str(row.tap) for row in captured.trace.request if row.question.seen]
    back = [str(row.tap) for row in captured.trace.reply if row.answer.seen]
    assert (lines[0], lines[-1]) == (first, last)
    if cell.startswith("hairpin"):  # a packet goes up to the bridge until its neighbour is known
        lines, back = ([tap for tap in taps if tap != "worker1 cni0"] for taps in (lines, back))
    assert back == lines[::-1]


LOST = """
tunnel-udp-dropped worker1 - pod-pod/master-p1/worker1-p1/udp-small: eth0, flannel.4096
node-link-down worker1 - pod-pod/master-p1/worker1-p1/udp-small: master eth0, eth0
ip-forward-off worker1 - pod-service/master-p1/to-worker1-p1/udp-small: flannel.4096, cni0
pod-link-down worker1 worker1-p1 nodeport/client/worker1:to-worker1-p1/udp-small: cni0, veth1
route-missing master worker1 pod-pod/worker1-p1/master-p1/udp-small: master eth0, eth0
mtu-black-hole worker1 - pod-pod/master-p1/worker1-p1/tcp-large: flannel.4096, cni0
""".strip().splitlines()
"""Fault, node, peer and cell; where the probe is last seen, and where it is missing: on worker1."""


@pytest.mark.parametrize("case", LOST)
def test_what_is_lost_is_last_seen_where_the_fault_is(running, case):
    asked, _, points = case.rpartition(": ")
    fault, node, peer, cell = asked.split()
    change = FAULTS[fault].change(running.intent, node, peer.strip("-"))
    running.run(change.do)
    try:
        captured = capture_cell(running, cell)
    finally:
        running.run(change.undo)
    assert captured.verdict == "fail"
    seen = (captured.conclusion.last, captured.conclusion.missing)
    wanted = [word if " " in word else f"worker1 {word}" for word in points.split(", ")]
    assert [point and str(point.tap) for point in seen] == wanted, captured.conclusion
    assert capture_cell(running, cell, seconds=5.0).conclusion.kind == "answered"


def test_a_rejection_is_reported_with_its_sender(running):
    change = FAULTS["tunnel-udp-rejected"].change(running.intent, "worker1", "")
    running.run(change.do)
    try:
        captured = capture_cell(running, "pod-pod/master-p1/worker1-p1/udp-small")
    finally:
        running.run(change.undo)
    assert captured.conclusion.kind == "refused"
    address = running.intent.machine("worker1").interfaces[0].addresses[0].partition("/")[0]
    assert f"ICMP 'port unreachable' from {address}, first seen leaving worker1 eth0" in (
        captured.conclusion.sentence
    )


def test_a_device_that_is_not_there_is_a_gap_and_no_more(running):
    taps = [Tap("worker1", "eth0"), Tap("worker1", "eth77"), Tap("nobody", "eth0")]
    called: list[int] = []
    capture = running.provider.capture(
        running.lab, running.intent, taps, 1 << 20, lambda: called.append(1), Deadline(30)
    )
    assert called == [1]
    assert [one.tap for one in capture] == taps
    assert [bool(one.trouble) for one in capture] == [False, True, True]
    assert "no device 'eth77' in 'worker1'" in capture[1].trouble


def test_what_is_beyond_the_limit_is_counted_and_not_kept(running):
    """A large probe is 128 KiB; of 2 KiB the connection's first packets are kept."""
    cell = matrix(running).find("pod-pod/master-p1/worker1-p1/tcp-large")
    assert cell is not None

    def ask() -> None:
        settings = ProbeSettings(5.0, 1)
        running.provider.probe(
            running.lab, running.intent, [make_probe(0, cell)], settings, lambda _: None
        )

    taps = [Tap("worker1", "eth0")]
    (found,) = running.provider.capture(running.lab, running.intent, taps, 2048, ask, Deadline(30))
    assert found.missed > 0
    assert 0 < sum(len(frame.data) for frame in found.frames) <= 2048


def test_an_error_of_the_probe_ends_the_capture(running):
    def fail() -> None:
        raise ValueError("the probe's own")

    with pytest.raises(ValueError, match="the probe's own"):
        running.provider.capture(
            running.lab, running.intent, [Tap("worker1", "eth0")], 1 << 20, fail, Deadline(30)
        )


def test_tshark_finds_the_probe_in_every_file(running, tmp_path):
    tshark = shutil.which("tshark")
    assert tshark, "there is no tshark: 'make develop' installs it, as tools/setup has it"
    captured = capture_cell(running, "pod-service/worker1-p1/to-master-p1/udp-small", seconds=5.0)
    for name, content in files(captured):
        (tmp_path / name).write_bytes(content)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[:2] == ["01-worker1-p1-eth0.pcapng", "02-worker1-veth1.pcapng"]
    assert len(names) == len(captured.taken) + 1
    wanted = ("-e", "frame.interface_name", "-e", "frame.comment", "-e", "udp.dstport")
    done = subprocess.run(
        [tshark, "-nr", str(tmp_path / WHOLE), "-Y", "frame.comment", "-T", "json", *wanted],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    layers = [one["_source"]["layers"] for one in json.loads(done.stdout)]
    assert len(layers) == len(captured.matched.passed)
    asked = [layer for layer in layers if layer["frame.comment"] == ["the probe's question"]]
    seen_at = [one["frame.interface_name"][0] for one in asked]
    assert seen_at == [f"{row.tap.place}:{row.tap.device}" for row in captured.trace.request]
    assert asked[0]["udp.dstport"] == ["80"]
    in_tunnel = next(one for one in asked if one["frame.interface_name"] == ["master:eth0"])
    assert in_tunnel["udp.dstport"] == ["4789", "8080"]


def test_who_may_not_force_a_long_buffer_takes_what_is_allowed(running, monkeypatch):
    """SO_RCVBUFFORCE asks for rights over the whole machine, which no plain user has."""

    class Plain(socket.socket):
        def setsockopt(self, level: int, option: int, value: int) -> None:  # type: ignore[override]
            if option == SO_RCVBUFFORCE:
                raise PermissionError
            super().setsockopt(level, option, value)

    monkeypatch.setattr(socket, "socket", Plain)
    captured = capture_cell(running, "pod-pod/master-p1/worker1-p1/udp-small", seconds=5.0)
    assert captured.conclusion.kind == "answered"
    assert not [capture for capture in captured.taken if capture.trouble or capture.missed]
