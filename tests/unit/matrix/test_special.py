"""The families of special Services: what is expected of their cells, case by case."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shipped import cells_of, plan_of

from lab.matrix.cell import Cell
from lab.matrix.cells import cells
from lab.matrix.judge import STICKY_TRIES, expect, judge
from lab.matrix.run import probe
from lab.providers.provider import Outcome
from lab.topology import registry
from lab.topology.windows_limits import OF_PROXY

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "cases" / "matrix" / "special.json").read_text()
)


LIMITS = registry.limits(plan_of("services"))


@pytest.fixture
def services() -> dict[str, Cell]:
    return {cell.id: cell for cell in cells_of("services")}


def answered(*backends: str, answer: str | None = None, seen: str | None = None) -> Outcome:
    return Outcome(0, "ok", "", seen, backends, answer, 1.0)


def verdict(cell: Cell, outcome: Outcome) -> str:
    return judge(cell, expect(cell, LIMITS), (outcome,)).verdict


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_cell(case: dict[str, Any], services: dict[str, Cell]) -> None:
    cell = services[case["cell"]]
    found = expect(cell, LIMITS)
    assert found.rule == case["rule"]
    assert found.refusal == case.get("fails")
    assert found.promised == (found.rule.startswith("K8S-") and not found.works)
    if found.rule.startswith("K8S-"):
        assert cell.relation == case["relation"]
        assert list(cell.backends) == case["backends"]
        assert sorted(cell.sources) == case["sources"]
        assert cell.sticky == case.get("sticky", False)
        assert cell.answer == case.get("answer")
        assert cell.refusal == found.refusal
        assert cell.target.port == case.get("port", cell.target.port)


def test_one_backend_passes_whichever_it_is_and_a_second_one_fails(
    services: dict[str, Cell],
) -> None:
    cell = services["affinity/worker1-p2/sticky/tcp-small"]
    assert probe(1, cell).tries == STICKY_TRIES
    seen = next(iter(cell.sources))
    assert {verdict(cell, answered(name, seen=seen)) for name in cell.backends} == {"pass"}
    assert verdict(cell, answered("master-p1", "win1-p1", seen=seen)) == "fail"
    assert verdict(cell, answered("worker2-p1", seen=seen)) == "fail"


def test_affinity_where_there_should_be_none_is_an_unexpected_pass(
    services: dict[str, Cell],
) -> None:
    cell = services["affinity/win2-p1/sticky/tcp-small"]
    assert verdict(cell, answered("master-p1", "win1-p1")) == "known-limit"
    assert verdict(cell, answered("master-p1", seen="10.244.4.4")) == "unexpected-pass"


def test_what_kubernetes_promises_is_an_unexpected_pass_where_a_limit_says_otherwise(
    services: dict[str, Cell],
) -> None:
    cell = services["no-endpoints/win1-p1/nobody/tcp-small"]
    assert verdict(cell, replace(answered(), status="timeout")) == "known-limit"
    assert verdict(cell, replace(answered(), status="refused")) == "unexpected-pass"
    assert verdict(cell, replace(answered(), status="no-route")) == "fail"


@pytest.mark.parametrize(
    ("cell", "kept", "other"),
    [
        ("no-endpoints/worker1-p1/nobody/tcp-small", "refused", "timeout"),
        ("nodeport-local/client/worker2:near-linux/tcp-small", "timeout", "refused"),
    ],
)
def test_a_promised_refusal_passes_and_anything_else_fails(
    cell: str, kept: Any, other: Any, services: dict[str, Cell]
) -> None:
    asked = services[cell]
    assert verdict(asked, replace(answered(), status=kept)) == "pass"
    assert verdict(asked, replace(answered(), status=other)) == "fail"
    assert verdict(asked, answered("worker1-p1")) == "fail"
    assert verdict(asked, replace(answered(), status="error")) == "probe-error"


def test_a_health_check_is_asked_as_one_and_must_count_right(services: dict[str, Cell]) -> None:
    cell = services["health-check/client/worker1:near-linux:health/tcp-small"]
    assert probe(1, cell).dialect == "health"
    assert verdict(cell, answered(answer="1")) == "pass"
    assert verdict(cell, answered(answer="0")) == "fail"


def test_names_of_pods_are_asked_as_names(services: dict[str, Cell]) -> None:
    name = "win2-p1.by-name.default.svc.cluster.local."
    cell = services[f"headless/worker1-p1/{name}/tcp-small"]
    assert probe(1, cell).name == name
    assert verdict(cell, answered(answer="10.244.4.4")) == "pass"
    assert verdict(cell, answered(answer="10.244.4.4, 10.244.4.5")) == "fail"


def test_pods_of_a_windows_node_with_some_of_the_backends_do_not_ask_it() -> None:
    plan = plan_of("services")
    mixed = tuple(
        replace(one, backends=("worker1-p1", "win1-p1")) if one.name == "near-linux" else one
        for one in plan.services
    )
    plan = replace(plan, services=mixed, families=("nodeport-local",))
    made = {cell.id for cell in cells(plan, registry.intent(plan))}
    assert "nodeport-local/win2-p1/win1:near-linux/tcp-small" in made
    assert "nodeport-local/worker1-p2/worker1:near-linux/tcp-small" in made
    assert "nodeport-local/win1-p2/win1:near-linux/tcp-small" not in made


def test_limits_are_of_those_versions_that_they_are_said_of() -> None:
    plan = plan_of("services")
    affinity = [one.when for one in registry.limits(plan) if one.id == "WIN-AFFINITY"]
    assert {one.source or one.entry_node for one in affinity} == {"win2"}
    older = tuple(replace(node, version="1.32") for node in plan.nodes)
    known = {one.limit.id for one in OF_PROXY}
    left = {one.id for one in registry.limits(replace(plan, nodes=older))}
    assert len(known) == 3
    assert not known & left


def test_labs_without_special_services_have_no_limits_of_theirs() -> None:
    known = {one.limit.id for one in OF_PROXY}
    assert not known & {one.id for one in registry.limits(plan_of("overlay"))}


def test_ports_that_a_service_lacks_are_asked_of_nftables_alone() -> None:
    plan = plan_of("services")
    refused = {"nftables": set[str](), "iptables": set[str]()}
    for mode in ("nftables", "iptables"):
        asked = replace(plan, proxy_mode=mode, families=("ports",))
        refused[mode] = {cell.id for cell in cells(asked, registry.intent(asked)) if cell.refusal}
    assert "ports/worker1-p1/shop:log/tcp-small" in refused["nftables"]
    assert not refused["iptables"]
