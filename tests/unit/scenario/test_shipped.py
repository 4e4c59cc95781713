"""The shipped scenarios: valid, and the same plan as ever, to the digest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.plan.canonical import digest
from lab.plan.planner import make_plan
from lab.scenario.loader import SpecString, find, load, shipped
from lab.topology import registry

DIGESTS: dict[str, str] = json.loads(
    (Path(__file__).parents[2] / "cases" / "scenario" / "plan-digests.json").read_text()
)


@pytest.mark.parametrize("name", shipped())
def test_shipped_scenario_is_valid_and_its_plan_is_the_same_as_ever(name):
    """Labs that are up know their machines by it: it must not change for the same file.

    A change of the file itself is compared with the document that the scenario is after, which
    the head of the file names.
    """
    scenario = load(find(name), topology_check=registry.check)
    assert scenario.name == name
    assert {group.os for group in scenario.nodes} == {"linux", "windows"}
    assert digest(make_plan(scenario)) == DIGESTS[name]


def test_kubeinit_is_what_its_spec_string_makes():
    shipped, made = (
        load(one) for one in (find("kubeinit"), SpecString("k8s-libvirt-3-3-2,compute-03.os=linux"))
    )
    kept = {"name": "", "summary": "", "nodes": ()}
    assert shipped.replace(**kept) == made.replace(**kept)
    assert [group.replace(line=0) for group in shipped.nodes] == [
        group.replace(line=0) for group in made.nodes
    ]
