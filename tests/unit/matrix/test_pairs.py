"""Any two endpoints of a lab: what is expected between them, or why nothing can be asked."""

from __future__ import annotations

from functools import cache

import pytest
from shipped import intent_of, plan_of

from lab._errors import UsageError
from lab.lifecycle.explain import ExplainQuestion
from lab.matrix.cell import Cell
from lab.matrix.cells import every_pair
from lab.matrix.judge import expect, judge
from lab.matrix.pairs import EveryEndpoint
from lab.matrix.run import make_probe
from lab.providers.provider import Outcome
from lab.topology import registry

ACTION = "explaining"
ASKED_BY_SOME = {"name", "api"}


def ask(scenario: str, source: str, target: str | None) -> tuple[Cell, ...]:
    question = ExplainQuestion(source, target)
    return question.cells(plan_of(scenario), intent_of(scenario), ACTION)


@cache
def ends_of(scenario: str) -> EveryEndpoint:
    plan, intent = plan_of(scenario), intent_of(scenario)
    return EveryEndpoint.of(plan, intent, every_pair(plan, intent))


@pytest.mark.parametrize("scenario", ["overlay", "kubeinit", "hard-way"])
def test_every_two_endpoints_have_cells_or_a_reason_why_not(scenario):
    plan, intent, ends = plan_of(scenario), intent_of(scenario), ends_of(scenario)
    families, limits = every_pair(plan, intent), registry.limits(plan)
    joined = {
        (source.name, target.path(source).target.name)
        for grid in families.grids
        for source in grid.sources
        for target in grid.targets
        if source.name not in target.excluded
    }
    for source in ends.senders.values():
        for target in ends.targets.values():
            if (source.name, target.name) in joined:
                continue
            if source.name == target.name or target.kind in ASKED_BY_SOME:
                with pytest.raises(UsageError, match=f"'{target.name}'|are the same"):
                    ends.grid(source.name, target.name, ACTION)
                continue
            cells = [*ends.grid(source.name, target.name, ACTION).cells()]
            assert {cell.protocol for cell in cells} == set(plan.protocols)
            for cell in cells:
                expectation = expect(cell, limits)
                assert expectation.works != bool(cell.unreachable or expectation.refusal)
                assert bool(cell.backends) != bool(cell.unreachable)
                assert make_probe(0, cell).source == source.name


@pytest.mark.parametrize(
    ("scenario", "source", "target", "backends", "reason"),
    [
        ("overlay", "worker1", "worker2", ("worker2",), ""),
        ("overlay", "win1", "client", ("client",), ""),
        ("overlay", "client", "win1", ("win1",), ""),
        ("overlay", "client", "win1-p1", (), "router has no route to 10.244.3.4"),
        ("overlay", "client", "to-win1-p1", (), "router has no route to 10.96.0.26"),
        ("upstream-tor", "client", "node001-p1", ("node001-p1",), ""),
        ("hard-way", "controller-0", "worker-0-p1", ("worker-0-p1",), ""),
        ("kubeinit", "services", "controller-01-p1", (), "router has no route to 10.244.0.4"),
    ],
)
def test_what_the_routes_lead_to_is_expected_to_answer_and_nothing_else(
    scenario, source, target, backends, reason
):
    for cell in ask(scenario, source, target):
        assert (cell.family, cell.backends) == ("pair", backends)
        expectation = expect(cell, ())
        assert expectation.works == (not reason)
        assert reason in expectation.reason
        assert ask(scenario, cell.id, None) == (cell,)


def test_a_node_reaches_every_backend_of_a_shared_service_and_a_windows_node_none():
    cells = ask("overlay", "worker1", "everyone")
    (shared,) = ends_of("overlay").lab.shared
    assert {cell.backends for cell in cells} == {tuple(pod.name for pod in shared.backends)}
    limits = registry.limits(plan_of("overlay"))
    rules = {expect(cell, limits).rule for cell in ask("overlay", "win1", "everyone")}
    assert rules == {"WIN-HOST-SERVICE"}


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        ("timeout", "pass"),
        ("no-route", "pass"),
        ("refused", "pass"),
        ("ok", "fail"),
        ("wrong", "fail"),
        ("error", "probe-error"),
    ],
)
def test_where_no_answer_is_expected_only_an_answer_is_a_failure(status, verdict):
    cell = ask("overlay", "client", "win1-p1")[0]
    answered = ("win1-p1",) if status == "ok" else ()
    outcome = Outcome(0, status, "", None, answered, None, 0.0)
    assert judge(cell, expect(cell, ()), (outcome,)).verdict == verdict


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("worker1", "worker1", "source and target are the same"),
        ("router", "router", "source and target are the same"),
        ("router", "client", "'router' is a router: no program on it sends or answers probes"),
        ("worker1", "router", "'router' is a router"),
        ("worker1-p1", "coredns", "'coredns' is the cluster's DNS server"),
        ("to-win1-p1", "client", "'to-win1-p1' answers probes, but sends none"),
        ("worker1", "to-master-p1.default", "'worker1' does not ask the DNS server"),
        ("worker1", "clinet", "there is no endpoint 'clinet'"),
        ("wroker1", "client", "there is no endpoint 'wroker1'"),
    ],
)
def test_what_cannot_be_probed_is_refused_by_name_with_the_reason(source, target, reason):
    with pytest.raises(UsageError) as refused:
        ask("overlay", source, target)
    assert reason in refused.value.happened
    assert refused.value.hint


def test_a_mistyped_endpoint_is_answered_with_the_nearest_of_all_endpoints():
    with pytest.raises(UsageError) as refused:
        ask("overlay", "worker1", "clinet")
    assert "did you mean 'client'?" in refused.value.hint
