"""Runs of the matrix on a simulated network: passes, retries, doubts, and streams."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from shipped import bare_intent_of, cell_of, cells_of, intent_of, plan_of
from simulation import Fault, Network, silent

from lab.matrix.cell import Cell, Endpoint
from lab.matrix.cells import make_matrix
from lab.matrix.judge import expect, format_rate
from lab.matrix.run import (
    PACE,
    RunInterrupted,
    RunPace,
    choose_representatives,
    group_of,
    make_probe,
    order_retries,
    run,
)
from lab.matrix.verdict import CellResult, Verdict
from lab.providers.provider import Outcome, Probe, ProbeSettings, ProbesInterrupted
from lab.scenario.families import usual_families
from lab.scenario.scenario import Limit
from lab.topology import registry

CELLS, LIMITS = cells_of("overlay"), registry.limits(plan_of("overlay"))
AT_ONCE = replace(PACE, settle=0.0)


def judged(
    network: Network, pace: RunPace = AT_ONCE, limits: Sequence[Limit] | None = None
) -> dict[str, CellResult]:
    """Run the engine on a network, expecting the limits that the network has itself."""
    cells = network.cells
    expected = network.limits if limits is None else limits
    results = run(
        cells, expected, network.send, network.clock, lambda c: f"again {c.id}", pace=pace
    )
    assert [result.cell.id for result in results] == [cell.id for cell in cells]
    return {result.cell.id: result for result in results}


def verdicts(results: dict[str, CellResult], verdict: Verdict) -> set[str]:
    return {name for name, result in results.items() if result.verdict == verdict}


def silence(cut: Callable[[Cell], bool], until: int = 99) -> Fault:
    """No answers for some cells that would get one, for so many attempts."""

    def fault(cell: Cell, attempt: int, outcome: Outcome) -> Outcome:
        return (
            silent(outcome)
            if outcome.status == "ok" and attempt <= until and cut(cell)
            else outcome
        )

    return fault


def dead(node: str) -> Fault:
    return silence(lambda cell: node in {cell.source.node, cell.target.node, cell.entry})


BROKEN = "pod-pod/master-p1/win1-p1/tcp-large"


class Stopped(Network):
    """A network on which Ctrl-C ends one round after some of its probes are answered."""

    def __init__(self, cells: Sequence[Cell], fault: Fault, *, at: int, answered: int) -> None:
        super().__init__(cells, fault=fault)
        self.at, self.answered = at, answered

    def send(self, probes: Sequence[Probe], settings: ProbeSettings) -> Mapping[int, Outcome]:
        outcomes = super().send(probes, settings)
        if len(self.sent) <= self.at:
            return outcomes
        raise ProbesInterrupted(dict([*outcomes.items()][: self.answered])) from KeyboardInterrupt()


def interrupted(network: Network) -> tuple[CellResult, ...]:
    with pytest.raises(RunInterrupted) as stop:
        judged(network)
    return stop.value.results


def test_cells_that_were_answered_before_ctrl_c_are_judged():
    results = interrupted(Stopped(CELLS, silence(lambda _: False), at=1, answered=100))
    assert [result.cell.id for result in results] == [cell.id for cell in CELLS[:100]]
    assert {result.verdict for result in results} <= {"pass", "unexpected-pass"}


def test_failures_left_unretried_by_ctrl_c_are_marked():
    results = interrupted(Stopped(CELLS, dead("win1"), at=2, answered=1))
    assert len(results) == len(CELLS)
    failed = [result for result in results if result.verdict == "fail"]
    assert sum(result.retried for result in failed) == 1
    why = "not retried: the run was interrupted"
    assert all(why in result.detail for result in failed if not result.retried)


def test_faultless_lab_is_green():
    results = judged(Network(CELLS, LIMITS))
    assert {result.verdict for result in results.values()} == {"pass", "known-limit"}
    known = {result.expectation.rule for result in results.values() if not result.expectation.works}
    assert known == {limit.id for limit in LIMITS}
    assert all(result.repeat == f"again {result.cell.id}" for result in results.values())


def test_first_pass_sends_everything_at_once_and_a_failure_is_tried_once_more_with_patience():
    network = Network(CELLS, fault=silence(lambda cell: cell.id == BROKEN))
    result = judged(network)[BROKEN]
    _, (first, settings), (again, patient) = network.sent
    assert first == tuple(cell.id for cell in CELLS)
    assert (settings.timeout, settings.in_flight) == (1.0, 256)
    assert (again, patient) == ((BROKEN,), PACE.second)
    assert patient.timeout > settings.timeout
    assert patient.in_flight < settings.in_flight
    assert (result.verdict, result.retried, len(result.attempts)) == ("fail", True, 2)


def test_failure_that_passes_the_second_time_is_flaky():
    results = judged(Network(CELLS, fault=silence(lambda cell: cell.id == BROKEN, until=1)))
    assert verdicts(results, "flaky") == {BROKEN}
    assert verdicts(results, "pass") == results.keys() - {BROKEN}


def test_probe_error_is_not_tried_again():
    def fault(cell: Cell, _attempt: int, outcome: Outcome) -> Outcome:
        gone = cell.source.name == "win2-p2"
        return replace(outcome, status="error", detail="no such namespace") if gone else outcome

    network = Network(CELLS, fault=fault)
    results = judged(network)
    assert len(network.sent) == 2
    assert verdicts(results, "probe-error") == {c.id for c in CELLS if c.source.name == "win2-p2"}


def test_windows_rule_that_is_not_obeyed_is_an_unexpected_pass():
    obeyed = tuple(limit for limit in LIMITS if limit.id != "WIN-HOST-SERVICE")
    results = judged(Network(CELLS, obeyed), limits=LIMITS)
    off = {
        name for name, result in results.items() if result.expectation.rule == "WIN-HOST-SERVICE"
    }
    assert verdicts(results, "unexpected-pass") == off
    assert len(off) == 2 * 3 * 4


def test_retries_stop_when_the_budget_is_spent_and_report_it():
    network = Network(CELLS, fault=dead("win1"))
    results = judged(network, replace(AT_ONCE, budget=4.0))
    failed = [result for result in results.values() if result.verdict == "fail"]
    retried = [result for result in failed if result.retried]
    left = [result for result in failed if not result.retried]
    assert len(retried) == 4 / PACE.second.timeout * PACE.second.in_flight
    assert left
    for result in left:
        assert "not retried: the 4 s for retries were spent" in result.detail
        assert len(result.attempts) == 1
    assert not any("not retried" in result.detail for result in retried)


def test_budget_is_spent_on_three_cells_of_every_group_before_any_fourth():
    failed = [index for index, cell in enumerate(CELLS) if cell.source.node == "win1"]
    order = order_retries(failed, CELLS, 3)
    assert sorted(order) == failed
    groups = {group_of(CELLS[index]) for index in failed}
    head = [group_of(CELLS[index]) for index in order[: len(groups)]]
    assert set(head) == groups
    seen: dict[object, int] = {}
    ranks = []
    for index in order:
        key = group_of(CELLS[index])
        seen[key] = seen.get(key, 0) + 1
        ranks.append(min(seen[key], 4))
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("recovered", [False, True])
def test_after_three_of_every_group_the_others_go_at_once_if_none_recovered(recovered):
    victim = "pod-pod/master-p1/win1-p1/tcp-small"

    def fault(cell: Cell, attempt: int, outcome: Outcome) -> Outcome:
        if recovered and cell.id == victim and attempt > 1:
            return outcome
        return dead("win1")(cell, attempt, outcome)

    network = Network(CELLS, fault=fault)
    judged(network)
    retries = [settings for _, settings in network.sent if settings.timeout == 2.0]
    wide = replace(PACE.second, in_flight=PACE.first.in_flight)
    assert retries[0] == PACE.second
    assert retries[-1] == (PACE.second if recovered else wide)


def test_groups_are_of_source_node_target_node_and_family():
    assert group_of(cell_of("overlay", "pod-pod/win1-p1/master-p2/udp-large")) == (
        "win1",
        "master",
        "pod-pod",
    )
    assert group_of(cell_of("overlay", "nodeport/client/win1:to-master-p1/tcp-small")) == (
        "client",
        "win1",
        "nodeport",
    )
    assert group_of(cell_of("overlay", "pod-service/win1-p2/everyone/tcp-small")) == (
        "win1",
        "everyone",
        "pod-service",
    )


def test_dead_node_of_a_large_lab_costs_about_the_budget(large):
    network = Network(large, fault=dead("n50"))
    pace = replace(AT_ONCE, budget=20.0)
    results = judged(network, pace)
    failed = [result for result in results.values() if result.verdict == "fail"]
    assert len(failed) == 4 * 99 * 4 * 2 + 2 * 4
    first_pass = 2 * (len(failed) // 256 + 1) * PACE.first.timeout
    assert network.seconds <= first_pass + pace.budget + pace.second.timeout
    assert any(not result.retried for result in failed)


def test_same_network_gives_the_same_run():
    network, other = (Network(CELLS, LIMITS, dead("worker2")) for _ in range(2))
    assert judged(network) == judged(other)
    assert network.sent == other.sent


def test_lab_is_waited_for_until_every_service_and_node_has_answered():
    chosen = set(choose_representatives(CELLS, [expect(c, ()) for c in CELLS]).values())
    settled = {CELLS[index].id for index in chosen}
    network = Network(CELLS, fault=silence(lambda cell: cell.id in settled, until=2))
    results = judged(network, replace(PACE, settle=30.0))
    assert {result.verdict for result in results.values()} == {"pass"}
    assert [len(asked) for asked, _ in network.sent[:3]] == [len(settled)] * 3


def test_a_lab_that_does_not_settle_is_still_judged_and_cells_name_what_they_wait_for():
    results = judged(Network(CELLS, fault=dead("win1")))
    broken = results["pod-pod/master-p1/win1-p1/tcp-small"]
    assert broken.verdict == "fail"
    assert "node 'win1' had not settled when the run began" in broken.detail
    assert "node 'master'" not in broken.detail
    service = results["pod-service/master-p1/to-win1-p1/tcp-small"]
    assert "node 'win1' and Service 'to-win1-p1' had not settled" in service.detail
    assert results["pod-pod/master-p1/master-p2/tcp-small"].detail == ""


def test_nothing_is_waited_for_that_is_not_expected_to_answer():
    barred = [cell for cell in CELLS if not expect(cell, LIMITS).works]
    network = Network(barred, LIMITS)
    judged(network, replace(PACE, settle=30.0))
    assert len(network.sent) == 1


def test_each_subject_is_stood_for_by_a_small_probe_that_stays_near():
    chosen = choose_representatives(CELLS, [expect(cell, ()) for cell in CELLS])
    assert len(chosen) == 5 + 10 + 1 + 1
    for subject, index in chosen.items():
        cell = CELLS[index]
        assert cell.size == "small", subject
        assert cell.relation == "same-node" or subject == "Service 'everyone'", subject


def test_shared_service_is_tried_64_times_and_others_once():
    shared = make_probe(7, cell_of("overlay", "pod-service/win1-p1/everyone/tcp-small"))
    assert (shared.key, shared.tries) == (7, 64)
    single = make_probe(8, cell_of("overlay", "pod-service/win1-p1/to-win2-p1/tcp-small"))
    assert (single.tries, single.name) == (1, None)


def test_dns_probe_asks_for_the_name_as_written():
    asked = make_probe(1, cell_of("overlay", "dns/win1-p1/to-master-p1.default/udp-small"))
    assert (asked.name, asked.address, asked.port) == ("to-master-p1.default", "10.96.0.10", 53)


DOUBT = "not tested"


def doubted(cut: Callable[[Cell], bool], cells: Sequence[Cell] = CELLS) -> dict[str, CellResult]:
    """A run in which the cells that are cut get no answer."""
    return judged(Network(cells, LIMITS, silence(cut)), PACE)


def between(one: str, other: str) -> Callable[[Cell], bool]:
    return lambda cell: {cell.source.node, cell.target.node} == {one, other}


def test_a_limit_on_a_dead_path_is_marked_as_unproven():
    results = doubted(between("win1", "worker1"))
    hidden = results["node-pod/win1/worker1-p1/tcp-small"]
    assert hidden.verdict == "known-limit"
    assert hidden.detail == (
        f"{hidden.expectation.reason}; {DOUBT}: nothing that should have reached 'worker1' from "
        "'win1' did"
    )
    for result in results.values():
        assert (DOUBT in result.detail) == (
            result.verdict == "known-limit"
            and (result.cell.source.node, result.cell.target.node) == ("win1", "worker1")
        ), result.cell.id


def test_limit_of_a_whole_lab_or_without_a_control_is_not_doubted():
    alone = [c for c in CELLS if c.family == "node-pod" and c.source.os == "windows"]
    for results in (doubted(lambda _: False), doubted(between("win1", "worker1"), alone)):
        assert not any(DOUBT in result.detail for result in results.values())


def test_other_way_through_a_third_node_is_no_control():
    cut = between("win1", "worker1")
    results = doubted(
        lambda cell: cut(cell) and cell.entry in {None, "win1", "worker1"},
    )
    third = results["nodeport/win1-p1/master:to-worker1-p1/tcp-small"]
    assert third.verdict == "pass"
    assert DOUBT in results["node-pod/win1/worker1-p1/tcp-small"].detail


def test_missing_name_is_an_answer_and_never_doubted():
    results = doubted(lambda cell: cell.name_form is None)
    partial = results["dns/win1-p1/to-master-p1.default/udp-small"]
    assert (partial.verdict, DOUBT in partial.detail) == ("known-limit", False)


@pytest.fixture
def large():
    """Of a lab of 100 nodes with two pods each: pod to pod inside every node, and with one node."""
    pods = [
        Endpoint(f"n{node}-p{pod}", "pod", "linux", f"n{node}", f"10.1.{node}.{pod}", 8080)
        for node in range(100)
        for pod in (1, 2)
    ]
    return tuple(
        Cell(
            f"pod-pod/{source.name}/{target.name}/{protocol}-{size}",
            "pod-pod",
            source,
            target,
            protocol,
            size,
            "same-node" if source.node == target.node else "other-node",
            None,
            None,
            (target.name,),
            frozenset({source.address}),
            None,
            1450,
        )
        for source in pods
        for target in pods
        if source is not target
        if source.node == target.node or "n50" in {source.node, target.node}
        for protocol in ("tcp", "udp")
        for size in ("small", "large")
    )


MBIT = 1_000_000


def streams(name: str = "overlay", floor: int | None = None) -> tuple[Cell, ...]:
    plan = replace(plan_of(name), families=(), min_throughput=floor)
    return tuple(make_matrix(plan, bare_intent_of(name), ["throughput"]).cells())


def judged_streams(cells: tuple[Cell, ...], *rates: float | None) -> tuple[CellResult, ...]:
    """Results of these cells, whose receivers counted these rates in turn."""

    def counted(_cell: Cell, attempt: int, outcome: Outcome) -> Outcome:
        return replace(outcome, throughput=rates[min(attempt, len(rates)) - 1])

    network = Network(cells, (), counted)
    return run(cells, (), network.send, network.clock, lambda cell: cell.id)


def test_the_family_is_asked_only_where_somebody_names_it():
    plan, intent = plan_of("overlay"), bare_intent_of("overlay")
    assert "throughput" not in usual_families()
    assert "throughput" not in make_matrix(plan, intent).counts()
    assert make_matrix(plan, intent, ["throughput"]).counts()["throughput"] == 10
    named = replace(plan, families=("throughput",))
    assert make_matrix(named, intent).counts() == {"throughput": 10}


@pytest.mark.parametrize("name", ["overlay", "hard-way", "services"])
def test_every_node_with_a_pod_sends_to_another_and_is_sent_to(name):
    cells = streams(name)
    hosts = {cell.source.node for cell in cells}
    assert hosts == {cell.target.node for cell in cells}
    assert all(cell.source.node != cell.target.node for cell in cells)
    assert len({cell.id for cell in cells}) == len(cells) <= 2 * len(hosts)


def test_on_a_real_cluster_no_pod_of_a_windows_node_takes_part():
    plan, intent = plan_of("overlay"), intent_of("overlay")
    assert intent.kubernetes is not None
    cells = make_matrix(replace(plan, families=("throughput",)), intent).cells()
    assert {end.os for cell in cells for end in (cell.source, cell.target)} == {"linux"}


def test_streams_go_one_at_a_time_after_everything_else():
    plan, intent = plan_of("overlay"), bare_intent_of("overlay")
    asked = replace(plan, families=("pod-pod", "throughput"))
    cells = tuple(make_matrix(asked, intent).cells())
    network = Network(cells)
    run(cells, (), network.send, network.clock, lambda cell: cell.id)
    (*_, before, last) = network.sent
    assert {one.split("/")[0] for one in before[0]} == {"pod-pod"}
    assert {one.split("/")[0] for one in last[0]} == {"throughput"}
    assert last[1].in_flight == 1
    settling = network.sent[0][0]
    assert not any(one.startswith("throughput/") for one in settling)


@pytest.mark.parametrize(
    ("floor", "rates", "verdict"),
    [
        (100 * MBIT, [18.4 * MBIT], "fail"),
        (100 * MBIT, [18 * MBIT, 101 * MBIT], "flaky"),
        (100 * MBIT, [100 * MBIT], "pass"),
        (None, [100 * MBIT], "pass"),
        (1, [None], "fail"),
    ],
)
def test_a_stream_passes_that_reaches_the_floor_or_has_none(floor, rates, verdict):
    (result,) = judged_streams(streams(floor=floor)[:1], *rates)
    assert result.verdict == verdict
    if rates == [18.4 * MBIT]:
        assert result.detail == "the stream carried 18 Mbit/s, not 100 Mbit/s or more"
        assert result.retried


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0, "0.0 kbit/s"),
        (9_600, "9.6 kbit/s"),
        (18.4 * MBIT, "18 Mbit/s"),
        (940 * MBIT, "940 Mbit/s"),
        (2.34e9, "2.3 Gbit/s"),
        (123e9, "123 Gbit/s"),
    ],
)
def test_rates_have_two_digits_where_they_matter(bits, words):
    assert format_rate(bits) == words
