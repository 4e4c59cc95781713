"""Many machines at once: shares, progress, machines that do not answer, and evidence."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.machines.agents.control import NodeControl
from lab.machines.agents.fleet import Campaign, Fleet, divide_in_flight
from lab.plan.planner import make_plan
from lab.providers.provider import THROUGHPUT_PORT, Evidence, Outcome, Probe, ProbeSettings
from lab.scenario.loader import find, load
from lab.topology import registry

ENOUGH_SECONDS = 20.0


class Slow:
    """A machine that shows something once it may."""

    def __init__(self, name: str, may: threading.Event) -> None:
        self.name = name
        self.may = may

    def evidence(self, _deadline: Deadline) -> Iterator[Evidence]:
        assert self.may.wait(ENOUGH_SECONDS)
        yield Evidence(f"{self.name}.txt", b"")


def test_evidence_of_one_machine_does_not_wait_for_another():
    last, first = threading.Event(), threading.Event()
    first.set()
    machines = {"a": Slow("a", last), "b": Slow("b", first)}
    fleet = Fleet(cast("dict[str, NodeControl]", machines))
    pieces = fleet.evidence(Deadline(ENOUGH_SECONDS))
    assert next(pieces).path == "b.txt"
    last.set()
    assert [piece.path for piece in pieces] == ["a.txt"]


COUNTS = st.dictionaries(st.text(min_size=1), st.integers(1, 1000), min_size=1, max_size=20)


@given(st.integers(1, 300), COUNTS)
def test_shares_keep_the_bound_and_leave_nobody_out(in_flight, counts):
    shares = divide_in_flight(in_flight, counts)
    assert set(shares) == set(counts)
    assert min(shares.values()) >= 1
    assert sum(shares.values()) <= max(in_flight, len(counts))
    assert divide_in_flight(100, {"a": 10, "b": 30}) == {"a": 25, "b": 75}


def a_probe(key: int, source: str) -> Probe:
    return Probe(key, source, "tcp", "small", "10.0.0.1", 8080, 1500)


def passed(key: int) -> Outcome:
    return Outcome(key, "ok", "", "10.0.0.9", ("x",), None, 1.0)


class Crowd:
    """Probers that count how many may be under way at once, in all."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.under_way = self.most = 0

    def probe(
        self,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
        _: Deadline,
    ) -> Mapping[int, Outcome]:
        with self.lock:
            self.under_way += settings.in_flight
            self.most = max(self.most, self.under_way)
        for number in range(len(probes)):
            progress(number)
        with self.lock:
            self.under_way -= settings.in_flight
        return {probe.key: passed(probe.key) for probe in probes}


class Failing:
    """A prober that raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def probe(self, *_: object) -> Mapping[int, Outcome]:
        raise self.error


class Hanging:
    """A prober that never comes back, until the test lets it."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def probe(
        self,
        _: Sequence[Probe],
        __: ProbeSettings,
        progress: Callable[[int], None],
        ___: Deadline,
    ) -> Mapping[int, Outcome]:
        progress(1)
        self.gate.wait(30)
        return {}


@pytest.mark.parametrize("in_flight", [1, 2, 7, 64])
def test_the_bound_holds_over_the_fleet_and_progress_only_grows(in_flight):
    crowd, told = Crowd(), []
    names = [f"m{number}" for number in range(5)]
    probes = [a_probe(number, names[number % 5]) for number in range(43)]
    campaign = Campaign(
        dict.fromkeys(names, crowd), {name: name for name in names}, ProbeSettings(1.0, in_flight)
    )
    outcomes = campaign.run(probes, told.append)
    assert list(outcomes) == list(range(43))
    assert crowd.most <= in_flight
    assert told == sorted(told)
    assert told[-1] == 43


def test_a_failing_machine_loses_only_its_own_probes_and_reports_the_reason():
    probers = {"a": Crowd(), "b": Failing(BrokenError("reaching 'b'", "no banner"))}
    campaign = Campaign(probers, {"a": "a", "b": "b", "b-p1": "b"}, ProbeSettings(1.0, 8))
    probes = [a_probe(0, "a"), a_probe(1, "b"), a_probe(2, "b-p1"), a_probe(3, "c")]
    outcomes = campaign.run(probes, lambda _: None)
    assert [outcomes[key].status for key in range(4)] == ["ok", "error", "error", "error"]
    assert outcomes[1].detail == outcomes[2].detail == "cannot probe: reaching 'b': no banner"
    assert outcomes[3].detail == "cannot probe: no machine has 'c'"


def test_a_machine_that_falls_silent_is_given_up():
    hanging = Hanging()
    campaign = Campaign(
        {"a": Crowd(), "b": hanging}, {"a": "a", "b": "b"}, ProbeSettings(1.0, 8), silence=0.2
    )
    outcomes = campaign.run([a_probe(0, "a"), a_probe(1, "b")], lambda _: None)
    hanging.gate.set()
    assert outcomes[0].status == "ok"
    assert outcomes[1].detail == "cannot probe: no output from machine 'b' for 0.2 s"


def test_a_defect_is_not_taken_for_a_network_fault():
    campaign = Campaign({"a": Failing(KeyError("x"))}, {"a": "a"}, ProbeSettings(1.0, 8))
    assert campaign.run([], lambda _: None) == {}
    with pytest.raises(KeyError):
        campaign.run([a_probe(0, "a")], lambda _: None)


class Receiver:
    """A machine whose pods take streams until it is stopped."""

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.stopped = threading.Event()
        self.pods: list[str] = []
        self.ports: list[int] = []

    def receive(
        self, pods: Sequence[str], ready: Callable[[int], None], _deadline: Deadline
    ) -> None:
        if self.refuses:
            raise BrokenError("opening a port", self.refuses)
        self.pods += pods
        ready(4711)
        assert self.stopped.wait(ENOUGH_SECONDS)

    def stop(self, process: int, _deadline: Deadline) -> None:
        assert process == 4711
        self.stopped.set()

    def probe(self, probes: Sequence[Probe], *_: object) -> Mapping[int, Outcome]:
        assert self.pods or not self.stopped.is_set()
        self.ports += [probe.port for probe in probes]
        return {probe.key: passed(probe.key) for probe in probes}


def stream_between_nodes(machines: Mapping[str, Receiver]) -> Outcome:
    """Of the cluster of the scenario overlay, from the first worker to the second."""
    intent = registry.intent(make_plan(load(find("overlay"))))
    target = next(machine for machine in intent.machines if machine.name == "worker2").pods[0]
    probe = replace(
        a_probe(1, "worker1-p1"), address=target.address.partition("/")[0], dialect="throughput"
    )
    fleet = Fleet(cast("dict[str, NodeControl]", machines), cluster=True)
    return fleet.probe_all(intent, [probe], ProbeSettings(5.0, 1), lambda _: None)[1]


def test_a_stream_on_a_cluster_goes_to_a_receiver_in_the_targets_pod():
    machines = {"worker1": Receiver(), "worker2": Receiver()}
    assert stream_between_nodes(machines).status == "ok"
    assert machines["worker2"].pods == ["worker2-p1"]
    assert machines["worker2"].stopped.is_set()
    assert machines["worker1"].pods == []
    assert machines["worker1"].ports == [THROUGHPUT_PORT]


def test_a_stream_without_a_receiver_is_a_probe_error_with_the_reason():
    machines = {"worker1": Receiver(), "worker2": Receiver(refuses="the port is taken")}
    outcome = stream_between_nodes(machines)
    assert outcome.status == "error"
    assert "the port is taken" in outcome.detail
