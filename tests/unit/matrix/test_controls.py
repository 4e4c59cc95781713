from __future__ import annotations

from collections.abc import Callable

from simulation import Network, silent

from lab.matrix.cell import Cell
from lab.matrix.run import PACE, run
from lab.matrix.verdict import CellResult
from lab.providers.provider import Outcome
from lab.scenario.scenario import Limit

DOUBT = "not put to the test"


def judged(
    cells: tuple[Cell, ...], limits: tuple[Limit, ...], cut: Callable[[Cell], bool]
) -> dict[str, CellResult]:
    def fault(cell: Cell, _attempt: int, outcome: Outcome) -> Outcome:
        return silent(outcome) if cut(cell) and outcome.status == "ok" else outcome

    network = Network(cells, limits, fault)
    results = run(cells, limits, network.send, network.clock, lambda _: "", pace=PACE)
    return {result.cell.id: result for result in results}


def between(one: str, other: str) -> Callable[[Cell], bool]:
    return lambda cell: {cell.source.node, cell.target.node} == {one, other}


def test_limit_whose_path_lets_nothing_through_says_that_it_proves_nothing(
    overlay_cells: tuple[Cell, ...], limits: tuple[Limit, ...]
) -> None:
    found = judged(overlay_cells, limits, between("win1", "worker1"))
    hidden = found["node-pod/win1/worker1-p1/tcp-small"]
    assert hidden.verdict == "known-limit"
    assert hidden.detail == (
        f"{hidden.expectation.reason}; {DOUBT}: nothing that should have reached 'worker1' from "
        "'win1' did"
    )
    for result in found.values():
        assert (DOUBT in result.detail) == (
            result.verdict == "known-limit"
            and (result.cell.source.node, result.cell.target.node) == ("win1", "worker1")
        ), result.cell.id


def test_limit_of_a_whole_lab_is_not_doubted(
    overlay_cells: tuple[Cell, ...], limits: tuple[Limit, ...]
) -> None:
    found = judged(overlay_cells, limits, lambda _: False)
    assert not any(DOUBT in result.detail for result in found.values())


def test_limit_without_a_control_is_not_doubted(
    overlay_cells: tuple[Cell, ...], limits: tuple[Limit, ...]
) -> None:
    alone = tuple(c for c in overlay_cells if c.family == "node-pod" and c.source.os == "windows")
    found = judged(alone, limits, between("win1", "worker1"))
    assert not any(DOUBT in result.detail for result in found.values())


def test_other_way_through_a_third_node_is_no_control(
    overlay_cells: tuple[Cell, ...], limits: tuple[Limit, ...]
) -> None:
    cut = between("win1", "worker1")
    found = judged(
        overlay_cells,
        limits,
        lambda cell: cut(cell) and cell.entry in {None, "win1", "worker1"},
    )
    third = found["nodeport/win1-p1/master:to-worker1-p1/tcp-small"]
    assert third.verdict == "pass"
    assert DOUBT in found["node-pod/win1/worker1-p1/tcp-small"].detail


def test_missing_name_is_an_answer_and_never_doubted(
    overlay_cells: tuple[Cell, ...], limits: tuple[Limit, ...]
) -> None:
    found = judged(overlay_cells, limits, lambda cell: cell.name_form is None)
    partial = found["dns/win1-p1/to-master-p1.default/udp-small"]
    assert (partial.verdict, DOUBT in partial.detail) == ("known-limit", False)
