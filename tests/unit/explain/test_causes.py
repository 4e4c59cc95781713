"""The failures of a run get their causes from one look at the machines they have in common."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from threading import Event
from types import SimpleNamespace
from typing import cast

import pytest
from made_differences import of_state
from seen_machines import lab, whole, with_items

from lab._errors import BrokenError, LabError
from lab.explain.bracket import Bracket
from lab.explain.capture.trace import Point
from lab.explain.causes import with_causes, with_marginal, with_places
from lab.explain.paths import flow_of
from lab.facts.difference import Difference
from lab.facts.items import VNI, make_attribute
from lab.facts.node import NodeFacts
from lab.matrix.cell import Cell
from lab.matrix.judge import expect
from lab.matrix.run import group_of
from lab.matrix.verdict import CellResult, Verdict
from lab.providers.capture import Tap
from lab.providers.provider import Outcome
from lab.suites import cause_search
from lab.suites.running_lab import BoundLab
from lab.topology.subject import TableSubject
from lab.topology.walk import walk

OUTCOME = Outcome(0, "timeout", "no reply", None, (), None, 0.0)


INTENT, MATRIX = lab("overlay")[1:]


def results(verdict: Verdict = "fail") -> list[CellResult]:
    """Every pod-pod cell, those between worker1 and another node failed."""
    made = []
    for cell in next(grid for grid in MATRIX.grids if grid.family == "pod-pod").cells():
        hit = "worker1" in {cell.source.node, cell.target.node} and cell.relation == "other-node"
        text: Verdict = verdict if hit else "pass"
        made.append(CellResult(cell, expect(cell, ()), text, "", (OUTCOME,), False, ""))
    return made


class Looker:
    """Counts the looks."""

    def __init__(self, seen: Mapping[str, NodeFacts | LabError]) -> None:
        self.seen = seen
        self.asked: list[Mapping[str, Sequence[str]]] = []

    def __call__(self, asked: Mapping[str, Sequence[str]]) -> Mapping[str, NodeFacts | LabError]:
        self.asked.append(asked)
        return {name: one for name, one in self.seen.items() if name in asked}


def test_every_failure_has_the_cause_and_nothing_else_has() -> None:
    facts = whole(INTENT)
    facts = with_items(facts, "worker1", make_attribute("flannel.4096", VNI, "1"))
    look = Looker(facts)
    found = with_causes(results(), INTENT, look)
    assert len(look.asked) == 1
    for result in found:
        assert (result.finding is not None) == (result.verdict == "fail"), result.cell.id
        if result.finding:
            assert (result.finding.kind, result.finding.node) == ("wrong-vni", "worker1")


@pytest.mark.parametrize("verdict", ["known-limit", "probe-error", "unexpected-pass"])
def test_what_is_no_failure_of_the_network_is_not_looked_at(verdict: Verdict) -> None:
    look = Looker({})
    there = results(verdict)
    assert with_causes(there, INTENT, look) == tuple(there)
    assert look.asked == []


def test_a_lab_that_cannot_be_looked_at_leaves_the_results_as_they_are() -> None:

    def look(_: Mapping[str, Sequence[str]]) -> Mapping[str, NodeFacts | LabError]:
        raise BrokenError("looking", "the holder is gone")

    there = results()
    assert with_causes(there, INTENT, look) == tuple(there)


STRAY = of_state(TableSubject("ip", "mine"), "chain c", "nft delete", made="no such table")


def placed(
    results: Sequence[CellResult],
    compare: Mapping[str, Sequence[Difference]],
    bracket: Bracket | None,
    seconds: float = 0.0,
) -> tuple[Sequence[CellResult], list[Cell]]:
    """The results, and what was followed; each takes so long."""
    followed: list[Cell] = []

    def follow(cell: Cell) -> Bracket | None:
        followed.append(cell)
        return bracket

    clock = lambda: len(followed) * seconds  # noqa: E731
    return with_places(results, INTENT, lambda _: compare, follow, clock, 4.0), followed


def test_what_is_not_as_made_where_packets_are_lost_is_the_cause_of_all_that_pass_it() -> None:
    at = Bracket("lost", 0, frozenset({"worker1"}))
    found, followed = placed(results(), {"worker1": [STRAY], "win1": [STRAY]}, at)
    assert [cell.protocol for cell in followed] == ["tcp", "udp"]
    for result in found:
        assert (result.finding is not None) == (result.verdict == "fail"), result.cell.id
        if result.finding:
            assert (result.finding.kind, result.finding.place) == ("not-as-made", "worker1")
            assert result.finding.mends == "nft delete"


def test_each_place_of_what_is_followed_is_compared_once() -> None:
    at, asked = Bracket("lost", 0, frozenset({"worker1"})), list[str]()

    def compare(places: Sequence[str]) -> Mapping[str, Sequence[Difference]]:
        asked.extend(places)
        return {"worker1": [STRAY]}

    found = with_places(results(), INTENT, compare, lambda _: at, lambda: 0.0, 4.0)
    assert all(result.finding for result in found if result.verdict == "fail")
    assert len(asked) == len({*asked})
    failed = [result.cell for result in found if result.verdict == "fail"]
    passed = {
        hop.place for cell in failed for path in walk(INTENT, flow_of(cell)) for hop in path.hops
    }
    assert {*asked} < passed


def test_without_a_place_nothing_is_accused() -> None:
    there = results()
    assert placed(there, {"worker1": [STRAY]}, None)[0] == tuple(there)


def test_where_nothing_differs_cells_between_the_same_nodes_get_the_two_points() -> None:
    at = Bracket("last seen at cni0", 0, frozenset({"worker1"}))
    there = results()
    found, followed = placed(there, {"win1": [STRAY]}, at)
    failed = [result for result in found if result.verdict == "fail"]
    assert {result.finding and result.finding.observed for result in failed} == {
        "last seen at cni0"
    }
    ends = {(*group_of(result.cell), result.cell.protocol) for result in failed}
    assert len(followed) == len(ends)


def test_cells_that_pass_the_two_points_get_them_too() -> None:
    leaves, arrives = Point(Tap("worker1", "eth0"), "out"), Point(Tap("master", "eth0"), "in")
    at = Bracket("lost", 0, frozenset({"worker1", "master"}), last=leaves, missing=arrives)
    found, followed = placed(results(), {}, at)
    pairs = [{cell.source.node, cell.target.node} for cell in followed]
    assert pairs.count({"worker1", "master"}) == 2  # one of each protocol, for both directions
    assert all(result.finding for result in found if result.verdict == "fail")


@pytest.mark.parametrize(("seconds", "more"), [(9.0, []), (1.9, ["tcp"])])
def test_no_more_are_followed_than_there_is_time_for(seconds: float, more: list[str]) -> None:
    at = Bracket("last seen at cni0", 0, frozenset({"worker1"}))
    _, followed = placed(results(), {}, at, seconds=seconds)
    assert [cell.protocol for cell in followed] == ["tcp", "udp", *more]  # one of each at least


def test_a_path_to_another_backend_is_the_one_that_was_followed() -> None:
    cell, paths = next(
        (cell, paths)
        for grid in MATRIX.grids
        if grid.family == "pod-service"
        for cell in grid.cells()
        if len(paths := walk(INTENT, flow_of(cell))) > 1
    )
    first = {hop.place for hop in paths[0].hops}
    backend = next(hop.place for hop in paths[-1].hops if hop.place not in first)
    failed = CellResult(cell, expect(cell, ()), "fail", "", (OUTCOME,), False, "")
    at = Bracket("lost", len(paths) - 1, frozenset({backend}))
    ((result,), _) = placed([failed], {backend: [STRAY]}, at)
    assert result.finding is not None
    assert result.finding.place == backend


def test_a_lab_that_cannot_be_compared_gets_the_place_of_the_loss() -> None:

    def compare(_: Sequence[str]) -> Mapping[str, Sequence[Difference]]:
        raise BrokenError("comparing", "the holder is gone")

    at = Bracket("last seen at cni0", 0, frozenset({"worker1"}))
    found = with_places(results(), INTENT, compare, lambda _: at, lambda: 0.0, 4.0)
    assert {result.finding.kind for result in found if result.finding} == {"lost-here"}


def test_a_machine_that_hangs_does_not_hold_a_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hangs = Event()
    view = SimpleNamespace(intent=INTENT, follow=lambda *_: hangs.wait(30))
    monkeypatch.setattr(cause_search, "_PLACES_SECONDS", 0.2)
    there, begun = tuple(results()), time.monotonic()
    assert cause_search.add_places(there, cast("BoundLab", view), 0.1) == there
    assert time.monotonic() - begun < 10
    hangs.set()
    left = sum(result.verdict == "fail" for result in there) - 1
    assert f"no time to follow {left} failures" in capsys.readouterr().err


def test_cells_that_passed_where_some_packets_are_dropped_are_marginal() -> None:
    at = Bracket("lost", 0, frozenset({"worker1"}))
    there = results()
    for observed, marginal in (("limit rate over 50/second drop", True), ("drop", False)):
        stray = of_state(TableSubject("ip", "mine"), observed)
        found = with_marginal(placed(there, {"worker1": [stray]}, at)[0], INTENT)
        passed = [result for result in found if result.verdict == "pass"]
        for one in passed:
            places = {hop.place for path in walk(INTENT, flow_of(one.cell)) for hop in path.hops}
            assert (one.finding is not None) == (marginal and "worker1" in places), one.cell.id
        assert any(result.finding for result in passed) == marginal
