"""What a lab of system containers takes of the machine, from its Intent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.plan.planner import make_plan
from lab.providers.nspawn.preflight import need
from lab.scenario.loader import find, load
from lab.topology import registry
from lab.topology.intent import Intent


def linux_intent(name: str) -> Intent:
    scenario = load(find(name))
    linux = tuple(group for group in scenario.nodes if group.os == "linux")
    return registry.intent(make_plan(scenario.replace(nodes=linux)))


@pytest.mark.parametrize(
    ("scenario", "instances"),
    [
        ("overlay", 27 + 2 * 13 + 2 * 4),
        ("upstream-vrrp", 3 * 27 + 13 + 2 * 4),
        ("kubeinit", 3 * 27 + 13 + 3 * 4),
    ],
)
def test_every_node_counts_by_what_runs_on_it(scenario: str, instances: int) -> None:
    assert need(linux_intent(scenario)).inotify == instances


def test_a_control_plane_without_a_kubelet_counts_as_one_program_of_the_two() -> None:
    assert need(linux_intent("hard-way")).inotify == 3 * 13 + 3 * 13 + 2 * 4


def test_without_a_cluster_every_machine_is_a_plain_one() -> None:
    intent = replace(linux_intent("overlay"), kubernetes=None)
    assert need(intent).inotify == 5 * 4
