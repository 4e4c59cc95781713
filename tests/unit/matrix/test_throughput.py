"""Streams: who sends to whom, one at a time, judged by what their receivers counted."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from simulation import Network

from lab.matrix.cell import Cell, Expectation
from lab.matrix.cells import product
from lab.matrix.judge import rate_words
from lab.matrix.run import run
from lab.matrix.verdict import CellResult
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.providers.provider import Outcome
from lab.scenario.families import usual_families
from lab.scenario.loader import find, load
from lab.topology import registry
from lab.topology.intent import Intent

MBIT = 1_000_000


@cache
def real(name: str) -> tuple[Plan, Intent]:
    plan = make_plan(load(find(name)))
    return plan, registry.intent(plan)


def namespaces(name: str) -> tuple[Plan, Intent]:
    """A lab as compiled for a provider whose pods are network namespaces."""
    plan, intent = real(name)
    return plan, replace(intent, kubernetes=None)


def streams(name: str = "overlay", floor: int | None = None) -> tuple[Cell, ...]:
    plan, intent = namespaces(name)
    asked = replace(plan, families=(), min_throughput=floor)
    return tuple(product(asked, intent, ["throughput"]).cells())


def judged(cells: tuple[Cell, ...], *rates: float | None) -> tuple[CellResult, ...]:
    """Results of these cells, whose receivers counted these rates in turn."""

    def counted(_cell: Cell, attempt: int, outcome: Outcome) -> Outcome:
        return replace(outcome, throughput=rates[min(attempt, len(rates)) - 1])

    network = Network(cells, (), counted)
    return run(cells, (), network.send, network.clock, lambda cell: cell.id)


def test_the_family_is_asked_only_where_somebody_names_it() -> None:
    plan, intent = namespaces("overlay")
    assert "throughput" not in usual_families()
    assert "throughput" not in product(plan, intent).counts()
    assert product(plan, intent, ["throughput"]).counts()["throughput"] == 10
    named = replace(plan, families=("throughput",))
    assert product(named, intent).counts() == {"throughput": 10}


@pytest.mark.parametrize("name", ["overlay", "hard-way", "services"])
def test_every_node_with_a_pod_sends_to_another_and_is_sent_to(name: str) -> None:
    cells = streams(name)
    hosts = {cell.source.node for cell in cells}
    assert hosts == {cell.target.node for cell in cells}
    assert all(cell.source.node != cell.target.node for cell in cells)
    assert len({cell.id for cell in cells}) == len(cells) <= 2 * len(hosts)


def test_on_a_real_cluster_no_pod_of_a_windows_node_takes_part() -> None:
    plan, intent = real("overlay")
    assert intent.kubernetes is not None
    cells = product(replace(plan, families=("throughput",)), intent).cells()
    assert {end.os for cell in cells for end in (cell.source, cell.target)} == {"linux"}


def test_streams_go_one_at_a_time_after_everything_else() -> None:
    plan, intent = namespaces("overlay")
    asked = replace(plan, families=("pod-pod", "throughput"))
    cells = tuple(product(asked, intent).cells())
    network = Network(cells)
    run(cells, (), network.send, network.clock, lambda cell: cell.id)
    (*_, before, last) = network.sent
    assert {one.split("/")[0] for one in before[0]} == {"pod-pod"}
    assert {one.split("/")[0] for one in last[0]} == {"throughput"}
    assert last[1].in_flight == 1
    settling = network.sent[0][0]
    assert not any(one.startswith("throughput/") for one in settling)


def test_a_stream_below_the_floor_fails_with_the_figure() -> None:
    (result,) = judged(streams(floor=100 * MBIT)[:1], 18.4 * MBIT)
    assert result.verdict == "fail"
    assert result.detail == "the stream carried 18 Mbit/s, not 100 Mbit/s or more"
    assert result.retried


def test_a_stream_that_reaches_the_floor_the_second_time_is_flaky() -> None:
    (result,) = judged(streams(floor=100 * MBIT)[:1], 18 * MBIT, 101 * MBIT)
    assert result.verdict == "flaky"


@pytest.mark.parametrize("floor", [None, 100 * MBIT])
def test_a_stream_passes_that_reaches_the_floor_or_has_none(floor: int | None) -> None:
    (result,) = judged(streams(floor=floor)[:1], 100 * MBIT)
    assert result.verdict == "pass"


def test_a_receiver_that_counted_nothing_does_not_reach_a_floor() -> None:
    (result,) = judged(streams(floor=1)[:1], None)
    assert result.verdict == "fail"


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
def test_rates_have_two_digits_where_they_matter(bits: float, words: str) -> None:
    assert rate_words(bits) == words


def test_the_rule_says_where_the_floor_stands() -> None:
    (result,) = judged(streams()[:1], 1.0)
    expectation: Expectation = result.expectation
    assert "min_throughput" in expectation.source
