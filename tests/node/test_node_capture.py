"""A probe captured on several computers, each by its own agent."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from node_lab import SECONDS, NodeLab

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.explain.capture.conclusion import Conclusion, conclude
from lab.explain.capture.packets import match
from lab.explain.capture.probe import choose_capture_points
from lab.explain.capture.trace import trace
from lab.explain.kernel import TABLE, read_kernel_reports, trace_table
from lab.machines.agents.control import NodeControl
from lab.machines.agents.fleet import Fleet
from lab.matrix.run import make_probe
from lab.providers.capture import Frame, Taken, Tap
from lab.providers.provider import ProbeSettings
from lab.topology.intent import Intent


def captured(lab: NodeLab, cell_id: str) -> tuple[Conclusion, tuple[Taken, ...]]:
    cell = next(cell for cell in lab.cells() if cell.id == cell_id)
    where = choose_capture_points(lab.intent, cell)
    outcomes = []

    def ask() -> None:
        settings = ProbeSettings(0.5, 1)
        probes = [make_probe(0, cell)]
        outcomes.append(lab.fleet.probe_all(lab.intent, probes, settings, lambda _: None)[0])

    taps = [tap for tap, _ in where.taps]
    taken = lab.fleet.capture(lab.intent, taps, 1 << 20, ask, Deadline(SECONDS))
    well = outcomes[0].status == "ok"
    seen = trace(where.ways, match(taken, where.request), well=well)
    return conclude(seen, well=well, owners=where.owners), taken


def test_agents_take_a_probe_down_wherever_it_passes(new_lab):
    lab = new_lab("overlay")
    lab.up()
    cell = "pod-pod/master-p1/worker1-p1/tcp-large"
    conclusion, taken = captured(lab, cell)
    assert conclusion.kind == "answered"
    assert not [
        capture for capture in taken if capture.trouble or capture.missed or not capture.frames
    ]
    lab.guest("worker1").shell("ip link set cni0 down")
    conclusion, _ = captured(lab, cell)
    points = [point and point.tap for point in (conclusion.last, conclusion.missing)]
    assert points == [Tap("worker1", "flannel.4096"), Tap("worker1", "cni0")]
    lab.guest("worker1").reachable = False
    _, taken = captured(lab, cell)
    troubles = {capture.tap.place for capture in taken if capture.trouble}
    assert troubles == {"worker1", "worker1-p1"}
    assert [capture for capture in taken if capture.frames]


class EnoughError(Exception):
    """Enough packets were seen."""


def test_an_agent_passes_packets_on_as_they_come(new_lab):
    lab = new_lab("overlay")
    lab.up()
    cell = next(cell for cell in lab.cells() if cell.id == "pod-pod/master-p1/worker1-p1/tcp-small")
    parts: list[Taken] = []

    def hear(taken: Taken) -> None:
        parts.append(taken)
        if len(parts) == 1:  # the tap is open
            settings = ProbeSettings(5.0, 1)
            lab.fleet.probe_all(lab.intent, [make_probe(0, cell)], settings, lambda _: None)
        if sum(len(part.frames) for part in parts) >= 6:
            raise EnoughError

    for tap in (Tap("worker1", "eth0"), Tap("worker1-p1", "eth0")):
        parts.clear()
        with pytest.raises(EnoughError):
            lab.fleet.stream_packets(lab.intent, tap, hear, Deadline(SECONDS))
        assert {part.tap for part in parts} == {tap}
        assert not parts[0].frames


def test_agents_trace_a_probe_in_the_kernel_and_leave_no_table_even_if_they_are_killed(new_lab):
    lab = new_lab("overlay")
    lab.up()
    guest = lab.guest("worker1")
    guest.shell("nft 'table inet mine { chain c { type filter hook forward priority 5; drop; }; }'")
    cell = next(cell for cell in lab.cells() if cell.id == "pod-pod/master-p1/worker1-p1/tcp-small")
    table, places = trace_table("tcp", [cell.target.address]), {"worker1": (), "worker1-p1": ()}

    def ask() -> None:
        settings = ProbeSettings(0.5, 1)
        lab.fleet.probe_all(lab.intent, [make_probe(0, cell)], settings, lambda _: None)

    def tables() -> str:
        return str(guest.shell("nft list tables"))

    reports = lab.fleet.trace(lab.intent, places, table, ask, Deadline(SECONDS))
    assert [(one.place, one.trouble) for one in reports] == [(place, "") for place in places]
    assert [
        word
        for word in read_kernel_reports(reports)
        if "table inet mine chain c dropped" in word.sentence
    ]
    assert TABLE not in tables()

    def kill() -> None:
        assert TABLE in tables()
        guest.shell("pkill -KILL -f 'node-.* trace$'")

    assert lab.fleet.trace(lab.intent, places, table, kill, Deadline(SECONDS)) == ()
    Deadline(5).wait("for the table to go", tables, until=lambda there: TABLE not in there)


class Told:
    """Listens in memory."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.stopped = fails, 0
        self._end: Callable[[], None] = lambda: None

    def listen(
        self, taps: Sequence[Tap], limit: int, ready: Callable[[int], None], deadline: Deadline
    ) -> tuple[Taken, ...]:
        if self.fails:
            raise BrokenError("reaching machine 'b'", "connection refused")
        ready(limit)
        deadline.wait("waiting to be stopped", lambda: self.stopped)
        return tuple(Taken(tap, (Frame(1, "in", b"x", 1),)) for tap in taps)

    def stop(self, process: int, deadline: Deadline) -> None:
        del deadline
        self.stopped = process


def in_memory(
    taps: Sequence[Tap], during: Callable[[], None], **listeners: Told
) -> tuple[Taken, ...]:
    machines = {name: SimpleNamespace(name=name) for name in "ab"}
    places = {place: (machines[place[0]], None) for place in ("a", "a-p1", "b")}
    intent = cast("Intent", SimpleNamespace(places=lambda: places))
    fleet = Fleet(cast("dict[str, NodeControl]", listeners))
    return fleet.capture(intent, taps, 77, during, Deadline(20))


def test_a_machine_that_cannot_listen_is_trouble_at_its_own_taps_alone():
    taps = [Tap("b", "eth0"), Tap("a-p1", "eth0"), Tap("c", "eth0"), Tap("a", "eth0")]
    well = Told()
    capture = in_memory(taps, lambda: None, a=well, b=Told(fails=True))
    assert [one.tap for one in capture] == taps
    assert [len(one.frames) for one in capture] == [0, 1, 0, 1]
    assert ["refused" in one.trouble for one in capture] == [True, False, False, False]
    assert "no agent" in capture[2].trouble
    assert well.stopped == 77


def test_those_who_listen_are_stopped_also_where_the_probe_fails():
    def fail() -> None:
        raise ValueError("the probe's own")

    well = Told()
    with pytest.raises(ValueError, match="the probe's own"):
        in_memory([Tap("a", "eth0")], fail, a=well)
    assert well.stopped == 77
