"""Streams: who sends to whom, one at a time, judged by what their receivers counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from shipped import bare_intent_of, intent_of, plan_of
from simulation import Network

from lab.matrix.cell import Cell
from lab.matrix.cells import product
from lab.matrix.judge import rate_words
from lab.matrix.run import run
from lab.matrix.verdict import CellResult
from lab.providers.provider import Outcome
from lab.scenario.families import usual_families

MBIT = 1_000_000


def streams(name: str = "overlay", floor: int | None = None) -> tuple[Cell, ...]:
    asked = replace(plan_of(name), families=(), min_throughput=floor)
    return tuple(product(asked, bare_intent_of(name), ["throughput"]).cells())


def judged(cells: tuple[Cell, ...], *rates: float | None) -> tuple[CellResult, ...]:
    """Results of these cells, whose receivers counted these rates in turn."""

    def counted(_cell: Cell, attempt: int, outcome: Outcome) -> Outcome:
        return replace(outcome, throughput=rates[min(attempt, len(rates)) - 1])

    network = Network(cells, (), counted)
    return run(cells, (), network.send, network.clock, lambda cell: cell.id)


def test_the_family_is_asked_only_where_somebody_names_it():
    plan, intent = plan_of("overlay"), bare_intent_of("overlay")
    assert "throughput" not in usual_families()
    assert "throughput" not in product(plan, intent).counts()
    assert product(plan, intent, ["throughput"]).counts()["throughput"] == 10
    named = replace(plan, families=("throughput",))
    assert product(named, intent).counts() == {"throughput": 10}


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
    cells = product(replace(plan, families=("throughput",)), intent).cells()
    assert {end.os for cell in cells for end in (cell.source, cell.target)} == {"linux"}


def test_streams_go_one_at_a_time_after_everything_else():
    plan, intent = plan_of("overlay"), bare_intent_of("overlay")
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
    (result,) = judged(streams(floor=floor)[:1], *rates)
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
    assert rate_words(bits) == words
