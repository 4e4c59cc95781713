"""Labs with slow and lossy links: how probes are paced, and what is said of red cells."""

from __future__ import annotations

from dataclasses import replace

import pytest
from shipped import bare_intent_of, cells_of, plan_of

from lab.matrix.cell import Cell
from lab.matrix.cells import make_matrix
from lab.matrix.judge import expect
from lab.matrix.links import LossyLinks, follow_links
from lab.matrix.run import PACE
from lab.matrix.verdict import CellResult
from lab.scenario.terms import Impairment
from lab.topology.intent import Intent


def lab(name: str = "worker1", **links: Impairment) -> Intent:
    intent = bare_intent_of("overlay")
    return replace(
        intent,
        machines=tuple(
            replace(machine, **links) if machine.name == name else machine
            for machine in intent.machines
        ),
    )


def test_a_lab_without_such_links_keeps_its_pace():
    assert follow_links(PACE, lab()) is PACE


def test_probes_wait_for_the_round_trips_of_a_late_link():
    late = follow_links(PACE, lab(sends=Impairment(delay=50), receives=Impairment(delay=100)))
    assert late.first.timeout == pytest.approx(PACE.first.timeout + 3.0)
    assert late.first.in_flight == PACE.first.in_flight
    assert late.settle == pytest.approx(PACE.settle + 3.0)


def test_no_more_probes_are_in_flight_than_a_slow_link_carries_in_their_time():
    slow = follow_links(PACE, lab(sends=Impairment(rate=10_000_000)))
    assert PACE.first.timeout < slow.first.timeout < 2.0
    assert 1 < slow.first.in_flight < 10
    assert slow.streams.in_flight == PACE.streams.in_flight
    crawling = follow_links(PACE, lab(sends=Impairment(rate=100_000)))
    assert crawling.first.in_flight == 1


def test_a_first_packet_that_is_lost_is_waited_for():
    assert follow_links(PACE, lab(sends=Impairment(loss=1.0))).first.timeout > 1.0 + 2.0


def result(cell: Cell, verdict: str) -> CellResult:
    return CellResult(cell, expect(cell, ()), verdict, "no reply in 1 s", (), False, "")


def test_a_red_cell_says_that_a_link_on_its_way_loses_packets():
    lossy = LossyLinks(lab(receives=Impairment(loss=1.0)))
    clean = LossyLinks(lab(receives=Impairment(delay=10)))
    cells = [cell for cell in cells_of("overlay") if cell.family == "pod-pod"]
    crossing = [cell for cell in cells if "worker1" in {cell.source.node, cell.target.node}]
    assert crossing
    for cell in cells:
        between = cell.source.node != cell.target.node and cell in crossing
        remarked = lossy.add_remark(result(cell, "flaky")).detail
        assert remarked.endswith("the link of 'worker1' loses packets in this scenario") is between
        assert lossy.add_remark(result(cell, "pass")).detail == "no reply in 1 s"
        assert clean.add_remark(result(cell, "fail")).detail == "no reply in 1 s"


def floors(**links: Impairment) -> dict[tuple[str | None, str | None], int | None]:
    """The least rate of each stream by its nodes, where the scenario asks for 100 Mbit/s."""
    plan = plan_of("overlay")
    nodes = (replace(node, **links) if node.name == "worker1" else node for node in plan.nodes)
    plan = replace(plan, families=(), min_throughput=100_000_000, nodes=tuple(nodes))
    cells = make_matrix(plan, bare_intent_of("overlay"), ["throughput"]).cells()
    return {(cell.source.node, cell.target.node): cell.min_throughput for cell in cells}


def test_a_stream_need_not_carry_more_than_the_links_on_its_way():
    assert set(floors().values()) == {100_000_000}
    slow = floors(sends=Impairment(rate=40_000_000))
    assert {rate for (sender, _), rate in slow.items() if sender == "worker1"} == {30_000_000}
    assert {rate for (sender, _), rate in slow.items() if sender != "worker1"} == {100_000_000}
    fast = floors(sends=Impairment(rate=1_000_000_000))
    assert set(fast.values()) == {100_000_000}


def test_through_a_link_that_loses_packets_any_rate_will_do():
    lossy = floors(receives=Impairment(loss=1.0))
    assert {rate for (_, receiver), rate in lossy.items() if receiver == "worker1"} == {None}
    assert None not in {rate for (_, receiver), rate in lossy.items() if receiver != "worker1"}
