"""The failures of a run get their causes from one look at the machines they have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from seen_machines import lab, whole

from lab._errors import BrokenError, LabError
from lab.explain.question import flow_of, with_causes
from lab.facts.difference import StateDifference
from lab.facts.node import NodeFacts
from lab.matrix.judge import expect
from lab.matrix.verdict import CellResult, Verdict
from lab.providers.provider import Outcome
from lab.topology.walk import walk

OUTCOME = Outcome(0, "timeout", "no reply", None, (), None, 0.0)


def results(broken: str, verdict: Verdict = "fail") -> list[CellResult]:
    """Every pod-pod cell, those to and from a node failed."""
    _, _, matrix = lab("overlay")
    made = []
    for grid in matrix.grids:
        for cell in grid.cells() if grid.family == "pod-pod" else ():
            hit = broken in {cell.source.node, cell.target.node} and cell.relation == "other-node"
            found: Verdict = verdict if hit else "pass"
            made.append(CellResult(cell, expect(cell, ()), found, "", (OUTCOME,), False, ""))
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
    _, intent, _ = lab("overlay")
    seen = whole(intent)
    (tunnel,) = seen["worker1"].tunnels
    seen["worker1"] = replace(seen["worker1"], tunnels=(replace(tunnel, vni=1),))
    look = Looker(seen)
    found = with_causes(results("worker1"), intent, look)
    assert len(look.asked) == 1
    for one in found:
        assert (one.finding is not None) == (one.verdict == "fail"), one.cell.id
        if one.finding:
            assert (one.finding.kind, one.finding.node) == ("wrong-vni", "worker1")


@pytest.mark.parametrize("verdict", ["known-limit", "probe-error"])
def test_what_is_no_failure_of_the_network_is_not_looked_at(verdict: Verdict) -> None:
    _, intent, _ = lab("overlay")
    look = Looker({})
    there = results("worker1", verdict)
    assert with_causes(there, intent, look) == tuple(there)
    assert look.asked == []


def test_a_lab_that_cannot_be_looked_at_leaves_the_results_as_they_are() -> None:
    _, intent, _ = lab("overlay")

    def look(_: Mapping[str, Sequence[str]]) -> Mapping[str, NodeFacts | LabError]:
        raise BrokenError("looking", "the holder is gone")

    there = results("worker1")
    assert with_causes(there, intent, look) == tuple(there)


def test_what_is_not_as_made_is_the_cause_where_the_checks_find_none() -> None:
    _, intent, _ = lab("overlay")
    stray = StateDifference(
        *("nftables", "table ip mine", "no such table", "chain c", "nft list", "nft delete")
    )
    asked: list[Sequence[str]] = []

    def compare(places: Sequence[str]) -> Mapping[str, Sequence[StateDifference]]:
        asked.append(places)
        return {"worker1": [stray]}

    found = with_causes(results("worker1"), intent, Looker(whole(intent)), compare)
    assert len(asked) == 1
    for one in found:
        assert (one.finding is not None) == (one.verdict == "fail"), one.cell.id
        if one.finding:
            assert (one.finding.kind, one.finding.place) == ("not-as-made", "worker1")
            assert one.finding.mends == "nft delete"


def test_what_is_not_as_made_behind_any_backend_of_a_service_is_the_cause() -> None:
    _, intent, matrix = lab("overlay")
    cell, paths = next(
        (cell, paths)
        for grid in matrix.grids
        if grid.family == "pod-service"
        for cell in grid.cells()
        if len(paths := walk(intent, flow_of(cell))) > 1
    )
    first = {hop.place for hop in paths[0].hops}
    backend = next(hop.place for hop in paths[-1].hops if hop.place not in first)
    stray = StateDifference("setting", "ttl", "64", "1", "sysctl", "sysctl -w")
    failed = CellResult(cell, expect(cell, ()), "fail", "", (OUTCOME,), False, "")
    compare = {backend: [stray]}
    (found,) = with_causes([failed], intent, Looker(whole(intent)), lambda _: compare)
    assert found.finding is not None
    assert found.finding.place == backend


def test_a_lab_that_cannot_be_compared_leaves_the_results_as_they_are() -> None:
    _, intent, _ = lab("overlay")

    def compare(_: Sequence[str]) -> Mapping[str, Sequence[StateDifference]]:
        raise BrokenError("comparing", "the holder is gone")

    there = results("worker1")
    assert with_causes(there, intent, Looker(whole(intent)), compare) == tuple(there)
