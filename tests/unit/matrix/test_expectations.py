"""What is expected of cells, and the verdicts that follow, case by case."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shipped import cell_of, cells_of, plan_of

from lab.matrix.cell import Expectation
from lab.matrix.cells import cells, families
from lab.matrix.judge import STICKY_TRIES, applies_to, expect, judge
from lab.matrix.run import make_probe
from lab.matrix.verdict import GREEN, VERDICTS
from lab.providers.provider import Outcome
from lab.scenario.scenario import Limit, Match
from lab.topology import registry
from lab.topology.windows_limits import OF_PROXY

POD = "pod-pod/win1-p1/worker1-p1/tcp-small"
PORT = "nodeport/win1/win1:to-master-p1/udp-large"
OTHER_PORT = "nodeport/client/win1:to-master-p1/udp-large"
NAME = "dns/win1-p1/to-master-p1.default/udp-small"
SHARED = "pod-service/master-p1/everyone/tcp-small"

FACETS = [
    ("nothing asked speaks of everything", Match(), POD, True),
    ("family", Match(families=frozenset({"pod-pod"})), POD, True),
    ("other family", Match(families=frozenset({"dns"})), POD, False),
    ("protocol", Match(protocol="tcp"), POD, True),
    ("other protocol", Match(protocol="udp"), POD, False),
    ("size", Match(size="small"), POD, True),
    ("other size", Match(size="large"), POD, False),
    ("source by pattern", Match(source="win1-*"), POD, True),
    ("source by its node's name", Match(source="win1"), POD, True),
    ("source that is another", Match(source="win2*"), POD, False),
    ("target's name is no source", Match(source="worker*"), POD, False),
    ("source kind", Match(source_kind="pod"), POD, True),
    ("other source kind", Match(source_kind="node"), POD, False),
    ("source system", Match(source_os="windows"), POD, True),
    ("other source system", Match(source_os="linux"), POD, False),
    ("target by name", Match(target="worker1-p1"), POD, True),
    ("target by its node's name", Match(target="worker1"), POD, True),
    ("target that is another", Match(target="win1*"), POD, False),
    ("backend behind a node port", Match(target="master-p1"), PORT, True),
    ("one backend of a shared Service", Match(target="win2-p1"), SHARED, True),
    ("no backend of a shared Service", Match(target="worker2-p2"), SHARED, False),
    ("target system", Match(target_os="linux"), POD, True),
    ("other target system", Match(target_os="windows"), POD, False),
    ("relation", Match(relation="other-node"), POD, True),
    ("other relation", Match(relation="self"), POD, False),
    ("own entry", Match(entry="own"), PORT, True),
    ("own entry is not another's", Match(entry="other"), PORT, False),
    ("the client has no entry of its own", Match(entry="other"), OTHER_PORT, True),
    ("no entry without a node port", Match(entry="other"), POD, False),
    ("name form", Match(name_form="partial"), NAME, True),
    ("other name form", Match(name_form="short"), NAME, False),
    ("no name form without a name", Match(name_form="short"), POD, False),
    ("all facets must hold", Match(protocol="tcp", source_os="linux"), POD, False),
    ("patterns mind the case", Match(source="WIN1*"), POD, False),
]


def limit(identity: str, when: Match) -> Limit:
    return Limit(id=identity, when=when, fails="timeout", reason="it is known", source="somebody")


@pytest.mark.parametrize(
    ("match", "cell", "holds"), [case[1:] for case in FACETS], ids=[case[0] for case in FACETS]
)
def test_facet(match, cell, holds):
    assert applies_to(match, cell_of("overlay", cell)) is holds


def test_first_limit_that_speaks_of_the_cell_decides():
    limits = (
        limit("OTHER", Match(source="win2*")),
        limit("FIRST", Match(source="win1*")),
        limit("SECOND", Match()),
    )
    expectation = expect(cell_of("overlay", POD), limits)
    assert (expectation.works, expectation.rule, expectation.refusal) == (False, "FIRST", "timeout")
    assert (expectation.reason, expectation.source) == ("it is known", "somebody")


@pytest.mark.parametrize("family", families())
def test_cell_without_a_limit_works_by_the_rule_of_its_family(family):
    every = (*cells_of("overlay"), *cells_of("services"), *cells_of("kubeinit"))
    cell = next((cell for cell in every if cell.family == family and cell.refusal is None), None)
    if cell is None:
        on_request = families()[family].on_request
        assert on_request or family == "no-endpoints", "which works while there are some"
        return
    expectation = expect(cell, ())
    assert expectation.works
    assert expectation.refusal is None
    assert expectation.rule == families()[cell.family].works.rule
    assert expectation.reason
    assert expectation.source


def test_every_rule_has_an_id_of_its_own():
    rules = [family.works.rule for family in families().values()]
    rules += [rule.rule for family in families().values() for rule in family.promised.values()]
    assert len(set(rules)) == len(rules) > 20


VERDICT_CASES = json.loads((Path(__file__).parents[2] / "cases/matrix/verdicts.json").read_text())
NAMED = {
    "pod": ("pod-pod/master-p1/win1-p1/tcp-small", {}),
    "shared": (
        "pod-service/master-p1/everyone/tcp-small",
        {"backends": ("a", "b", "c"), "sources": frozenset()},
    ),
    "own": ("pod-service/master-p1/everyone/udp-small", {"backends": ("a", "b")}),
    "dns": ("dns/master-p1/to-master-p1/udp-small", {}),
}


def outcome(given: dict[str, Any]) -> Outcome:
    ok = given["status"] == "ok"
    return Outcome(
        0,
        given["status"],
        given.get("detail", ""),
        given.get("source_seen", "10.244.0.4" if ok else None),
        tuple(given.get("backends", ["win1-p1"] if ok else [])),
        given.get("answer"),
        0.2,
        tuple(given.get("other_sources", [])),
    )


@pytest.mark.parametrize("case", VERDICT_CASES, ids=lambda case: case["name"])
def test_verdict(case):
    identity, changes = NAMED[case["cell"]]
    cell = replace(cell_of("overlay", identity), **changes)
    expectation = (
        Expectation(False, "KNOWN", "it is known", "somebody", case["refusal"])
        if case["refusal"]
        else expect(cell, ())
    )
    found = judge(cell, expectation, tuple(outcome(given) for given in case["attempts"]))
    assert (found.verdict, found.detail) == (case["verdict"], case["detail"])


def test_every_verdict_has_a_case():
    assert {case["verdict"] for case in VERDICT_CASES} == set(VERDICTS)


def test_only_a_plain_pass_has_no_detail():
    for case in VERDICT_CASES:
        assert bool(case["detail"]) is (case["verdict"] != "pass")
    assert sorted(GREEN) == ["known-limit", "pass"]


SPECIAL_CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "cases" / "matrix" / "special.json").read_text()
)


LIMITS = registry.limits(plan_of("services"))
SERVICES = {cell.id: cell for cell in cells_of("services")}


def answered(*backends: str, answer: str | None = None, seen: str | None = None) -> Outcome:
    return Outcome(0, "ok", "", seen, backends, answer, 1.0)


@pytest.mark.parametrize("case", SPECIAL_CASES, ids=lambda case: case["name"])
def test_cell_of_a_special_service(case):
    cell = SERVICES[case["cell"]]
    expectation = expect(cell, LIMITS)
    assert expectation.rule == case["rule"]
    assert expectation.refusal == case.get("fails")
    assert expectation.promised == (expectation.rule.startswith("K8S-") and not expectation.works)
    if expectation.rule.startswith("K8S-"):
        assert cell.relation == case["relation"]
        assert list(cell.backends) == case["backends"]
        assert sorted(cell.sources) == case["sources"]
        assert cell.sticky == case.get("sticky", False)
        assert cell.answer == case.get("answer")
        assert cell.refusal == expectation.refusal
        assert cell.target.port == case.get("port", cell.target.port)


NOBODY, STICKY = "no-endpoints/{}/nobody/tcp-small", "affinity/{}/sticky/tcp-small"
HEADLESS_NAME = "win2-p1.by-name.default.svc.cluster.local."
HEADLESS = f"headless/worker1-p1/{HEADLESS_NAME}/tcp-small"
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
def test_verdict_on_a_special_service(cell, outcome, wanted):
    assert judge(SERVICES[cell], expect(SERVICES[cell], LIMITS), (outcome,)).verdict == wanted


def test_cells_are_asked_as_what_they_are():
    assert make_probe(1, SERVICES[STICKY.format("worker1-p2")]).tries == STICKY_TRIES
    assert make_probe(1, SERVICES[HEALTH]).dialect == "health"
    assert make_probe(1, SERVICES[HEADLESS]).name == HEADLESS_NAME


def test_pods_of_a_windows_node_with_some_of_the_backends_do_not_ask_it():
    plan = plan_of("services")
    mixed = tuple(
        replace(service, backends=("worker1-p1", "win1-p1"))
        if service.name == "near-linux"
        else service
        for service in plan.services
    )
    plan = replace(plan, services=mixed, families=("nodeport-local",))
    made = {cell.id for cell in cells(plan, registry.intent(plan))}
    assert "nodeport-local/win2-p1/win1:near-linux/tcp-small" in made
    assert "nodeport-local/worker1-p2/worker1:near-linux/tcp-small" in made
    assert "nodeport-local/win1-p2/win1:near-linux/tcp-small" not in made


def test_limits_apply_to_the_versions_they_name():
    plan = plan_of("services")
    affinity = [limit.when for limit in registry.limits(plan) if limit.id == "WIN-AFFINITY"]
    assert {match.source or match.entry_node for match in affinity} == {"win2"}
    older = tuple(replace(node, version="1.32") for node in plan.nodes)
    known = {limit.limit.id for limit in OF_PROXY}
    left = {limit.id for limit in registry.limits(replace(plan, nodes=older))}
    assert len(known) == 3
    assert not known & left


def test_labs_without_special_services_have_no_limits_of_theirs():
    known = {limit.limit.id for limit in OF_PROXY}
    assert not known & {limit.id for limit in registry.limits(plan_of("overlay"))}


def test_ports_that_a_service_lacks_are_asked_of_nftables_alone():
    plan = plan_of("services")
    refused = {"nftables": set[str](), "iptables": set[str]()}
    for mode in ("nftables", "iptables"):
        asked = replace(plan, proxy_mode=mode, families=("ports",))
        refused[mode] = {cell.id for cell in cells(asked, registry.intent(asked)) if cell.refusal}
    assert "ports/worker1-p1/shop:log/tcp-small" in refused["nftables"]
    assert not refused["iptables"]
