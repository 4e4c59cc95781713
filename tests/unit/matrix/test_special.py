"""The families of special Services: what is expected of their cells, case by case."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shipped import cells_of, plan_of

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
SERVICES = {cell.id: cell for cell in cells_of("services")}


def answered(*backends: str, answer: str | None = None, seen: str | None = None) -> Outcome:
    return Outcome(0, "ok", "", seen, backends, answer, 1.0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_cell(case):
    cell = SERVICES[case["cell"]]
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


NOBODY, STICKY = "no-endpoints/{}/nobody/tcp-small", "affinity/{}/sticky/tcp-small"
NAME = "win2-p1.by-name.default.svc.cluster.local."
HEADLESS = f"headless/worker1-p1/{NAME}/tcp-small"
HEALTH = "health-check/client/worker1:near-linux:health/tcp-small"
REFUSED, TIMEOUT = (replace(answered(), status=status) for status in ("refused", "timeout"))


@pytest.mark.parametrize(
    ("cell", "outcome", "wanted"),
    [
        # One backend passes, whichever it is; a second one, or a pod that is no backend, fails.
        *(
            (STICKY.format("worker1-p2"), answered(one, seen="10.244.1.5"), "pass")
            for one in ("master-p1", "win1-p1", "worker1-p1")
        ),
        (STICKY.format("worker1-p2"), answered("master-p1", "win1-p1", seen="10.244.1.5"), "fail"),
        (STICKY.format("worker1-p2"), answered("worker2-p1", seen="10.244.1.5"), "fail"),
        # Affinity where there should be none.
        (STICKY.format("win2-p1"), answered("master-p1", "win1-p1"), "known-limit"),
        (STICKY.format("win2-p1"), answered("master-p1", seen="10.244.4.4"), "unexpected-pass"),
        # What Kubernetes promises, where a limit says otherwise.
        (NOBODY.format("win1-p1"), TIMEOUT, "known-limit"),
        (NOBODY.format("win1-p1"), REFUSED, "unexpected-pass"),
        (NOBODY.format("win1-p1"), replace(answered(), status="no-route"), "fail"),
        # A promised refusal passes, and anything else fails.
        *(
            (cell, outcome, wanted)
            for cell, kept, other in (
                (NOBODY.format("worker1-p1"), REFUSED, TIMEOUT),
                ("nodeport-local/client/worker2:near-linux/tcp-small", TIMEOUT, REFUSED),
            )
            for outcome, wanted in (
                (kept, "pass"),
                (other, "fail"),
                (answered("worker1-p1"), "fail"),
                (replace(answered(), status="error"), "probe-error"),
            )
        ),
        # A health check must count right; a name must have these addresses.
        (HEALTH, answered(answer="1"), "pass"),
        (HEALTH, answered(answer="0"), "fail"),
        (HEADLESS, answered(answer="10.244.4.4"), "pass"),
        (HEADLESS, answered(answer="10.244.4.4, 10.244.4.5"), "fail"),
    ],
)
def test_verdict(cell, outcome, wanted):
    assert judge(SERVICES[cell], expect(SERVICES[cell], LIMITS), (outcome,)).verdict == wanted


def test_cells_are_asked_as_what_they_are():
    assert probe(1, SERVICES[STICKY.format("worker1-p2")]).tries == STICKY_TRIES
    assert probe(1, SERVICES[HEALTH]).dialect == "health"
    assert probe(1, SERVICES[HEADLESS]).name == NAME


def test_pods_of_a_windows_node_with_some_of_the_backends_do_not_ask_it():
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


def test_limits_are_of_those_versions_that_they_are_said_of():
    plan = plan_of("services")
    affinity = [one.when for one in registry.limits(plan) if one.id == "WIN-AFFINITY"]
    assert {one.source or one.entry_node for one in affinity} == {"win2"}
    older = tuple(replace(node, version="1.32") for node in plan.nodes)
    known = {one.limit.id for one in OF_PROXY}
    left = {one.id for one in registry.limits(replace(plan, nodes=older))}
    assert len(known) == 3
    assert not known & left


def test_labs_without_special_services_have_no_limits_of_theirs():
    known = {one.limit.id for one in OF_PROXY}
    assert not known & {one.id for one in registry.limits(plan_of("overlay"))}


def test_ports_that_a_service_lacks_are_asked_of_nftables_alone():
    plan = plan_of("services")
    refused = {"nftables": set[str](), "iptables": set[str]()}
    for mode in ("nftables", "iptables"):
        asked = replace(plan, proxy_mode=mode, families=("ports",))
        refused[mode] = {cell.id for cell in cells(asked, registry.intent(asked)) if cell.refusal}
    assert "ports/worker1-p1/shop:log/tcp-small" in refused["nftables"]
    assert not refused["iptables"]
