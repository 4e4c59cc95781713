"""Scenario ``services`` by the commands that a user types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lab_command import Lab

from lab.scenario.loader import find

pytestmark = pytest.mark.slow


def judged(lab: Lab, *words: str, code: int = 0) -> list[dict[str, Any]]:
    """The cells of a run."""
    done = lab.run("test", "services", "--json", *words, code=code)
    cells: list[dict[str, Any]] = json.loads(done.stdout)["cells"]
    return cells


@pytest.mark.parametrize(
    ("rule", "families"),
    [
        ("WIN-AFFINITY", "affinity"),
        ("WIN-UNSERVED", "ports or no-endpoints"),
        ("WIN-NODEPORT-OWN-PODS", "nodeport-local"),
    ],
)
def test_a_windows_rule_of_services_switched_off_makes_unexpected_passes(lab, rule, families):
    lab.run("up", "services", "--windows-rule-off", rule)
    red = [
        cell
        for cell in judged(lab, "-m", families, code=1)
        if cell["verdict"] not in {"pass", "known-limit"}
    ]
    assert red
    assert {cell["expectation"]["rule"] for cell in red} == {rule}
    assert {cell["verdict"] for cell in red} == {"unexpected-pass"}


def test_endpoints_that_come_and_go_are_a_change_of_the_scenario(lab, tmp_path):
    file = tmp_path / "services.yaml"
    whole = find("services").read_text()
    near = "    - name: near-linux\n      pods: [worker1-p1]\n"
    assert near in whole
    for pods in ("[worker1-p1]", "[worker2-p2]", "[worker1-p2, win1-p1]"):
        file.write_text(whole.replace(near, near.replace("[worker1-p1]", pods)))
        stderr = lab.run("up", str(file)).stderr
        if pods != "[worker1-p1]":
            assert ": network\n" not in stderr, "only the Services have changed"
        cells = judged(lab, "-m", "nodeport-local or health-check")
        assert {cell["verdict"] for cell in cells} == {"pass", "known-limit"}
        asked = {name for cell in cells for name in cell["backends"] if "near-linux" in cell["id"]}
        assert asked == {*pods.strip("[]").split(", ")}


def test_the_emptied_service_refuses(lab, tmp_path):
    file = tmp_path / "services.yaml"
    whole = find("services").read_text()
    few = whole.replace(
        "    - name: sticky\n      backends: 3", "    - name: sticky\n      backends: 0"
    )
    file.write_text(few.replace("    - affinity\n", ""))
    lab.run("up", "services")
    lab.run("up", str(file))
    cells = [cell for cell in judged(lab, "-m", "no-endpoints") if "sticky" in cell["id"]]
    refused = [cell for cell in cells if cell["verdict"] == "pass"]
    assert {cell["attempts"][0]["status"] for cell in refused} == {"refused"}
    assert len(refused) > 50
