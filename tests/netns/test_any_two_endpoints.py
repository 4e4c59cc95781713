"""Any two endpoints, explained and probed in labs of real namespaces."""

from __future__ import annotations

import time

import pytest
from netns_running import Running

from lab.matrix.cell import Cell
from lab.matrix.cells import every_pair
from lab.matrix.pairs import EveryEndpoint
from lab.matrix.run import run
from lab.matrix.verdict import GREEN
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load
from lab.topology import registry

KINDS = {"node", "client", "pod", "service"}


@pytest.mark.parametrize("scenario", ["overlay", "hard-way", "kubeinit"])
def test_what_the_intent_says_of_pairs_that_no_family_has_is_what_happens(bring_up, scenario):
    plan = make_plan(load(find(scenario)))
    running: Running = bring_up(registry.intent(plan), name=scenario)
    families = every_pair(plan, running.intent)
    ends = EveryEndpoint.of(plan, running.intent, families)
    cells: list[Cell] = []
    sources = (*ends.lab.nodes, *ends.lab.clients)
    for source in sources:
        targets = (*sources, *ends.lab.pods[:1], *ends.lab.pods[-1:], ends.lab.shared[0].endpoint)
        for target in targets:
            if source is not target and not families.joins(source.name, target.name):
                cells += ends.grid(source.name, target.name, "probing").cells()
    assert {cell.target.kind for cell in cells} == KINDS

    results = run(
        cells,
        registry.limits(plan),
        lambda probes, settings: running.provider.probe(
            running.lab, running.intent, probes, settings, lambda _: None
        ),
        time.monotonic,
        lambda cell: cell.id,
    )
    assert not [
        (result.cell.id, result.verdict, result.detail)
        for result in results
        if result.verdict not in GREEN
    ]
    expected = {result.expectation.works for result in results}
    assert expected == {True, False}
