"""Assertions of a scenario: where they are made, and how the answer of a command is judged."""

from dataclasses import replace

import pytest

from lab.matrix.assertion import judge_assertion, place_assertions
from lab.plan.planner import make_plan
from lab.scenario.assertion import Assertion
from lab.scenario.loader import find, load
from lab.shells.shell import Completed
from lab.topology import registry

MADE = Assertion(name="forwarding", node="worker*", command=("cat",), exit=0, matches="^1$")


def places(**where: str | None) -> list[str]:
    intent = registry.intent(make_plan(load(find("overlay"))))
    return [place for _, place in place_assertions([MADE.replace(**where)], intent)]


def test_an_assertion_is_made_on_each_node_or_pod_that_it_names():
    assert places() == ["worker1", "worker2"]
    assert places(node="*") == ["master", "worker1", "worker2", "win1", "win2"]  # and no router
    assert places(node=None, pod="w*1-p2") == ["worker1-p2", "win1-p2"]
    assert places(node="worker1-p1") == []


@pytest.mark.parametrize(
    ("completed", "detail"),
    [
        (Completed(0, "0\n1\n", ""), ""),
        (Completed(3, "1\n", ""), "exit 3 instead of 0: 1"),
        (Completed(3, "1\n", "a\nno \x1b[31m\n"), r"exit 3 instead of 0: no \x1b[31m"),
        (Completed(3, "", ""), "exit 3 instead of 0"),
        (Completed(0, "11\n", ""), "no match of '^1$' in the output: 11"),
        (Completed(0, "", "1"), "no match of '^1$' in the output: (nothing)"),
    ],
)
def test_exit_code_and_output_are_judged(completed, detail):
    assert judge_assertion(MADE, completed) == detail


def test_an_assertion_may_want_another_exit_code_and_any_output():
    refused = MADE.replace(exit=2, matches=None)
    assert judge_assertion(refused, Completed(2, "", "refused")) == ""
    assert judge_assertion(refused, Completed(0, "", "")) == "exit 0 instead of 2"
    assert len(judge_assertion(MADE, replace(Completed(0, "x" * 10_000, "")))) < 300
