from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shipped import cell_of

from lab.matrix.cell import Expectation
from lab.matrix.judge import expect, judge
from lab.matrix.verdict import GREEN, VERDICTS
from lab.providers.provider import Outcome

CASES = json.loads((Path(__file__).parents[2] / "cases/matrix/verdicts.json").read_text())
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
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
    assert {case["verdict"] for case in CASES} == set(VERDICTS)


def test_only_a_plain_pass_says_nothing():
    for case in CASES:
        assert bool(case["detail"]) is (case["verdict"] != "pass")
    assert sorted(GREEN) == ["known-limit", "pass"]
