"""What is wrong inside machines that run, and whether they can be asked all the same."""

from collections.abc import Mapping
from typing import cast

import pytest

from lab.machines.base import NODES, look_inside
from lab.machines.guests import Guests
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load
from lab.topology import registry


class Machines:
    """Some that are not well, and some that do not answer."""

    def __init__(self, ill: Mapping[str, str], silent: Mapping[str, str]) -> None:
        self.ill, self.mute = ill, silent

    def ailments(self, _intent: object) -> Mapping[str, str]:
        return self.ill

    def silent(self) -> Mapping[str, str]:
        return self.mute


@pytest.mark.parametrize(
    ("ill", "silent", "nodes", "again", "reachable"),
    [
        ({}, {}, {"worker1": "NotReady"}, NODES, True),
        ({}, {"worker1": "no answer"}, {"worker1": "NotReady"}, "machines", False),
        ({"worker1": "no agent"}, {}, {}, "machines", False),
    ],
)
def test_a_cluster_that_is_not_well_leaves_its_machines_reachable(
    ill, silent, nodes, again, reachable
):
    intent = registry.intent(make_plan(load(find("overlay"))))
    machines = cast(Guests, Machines(ill, silent))
    liveness = look_inside(machines, intent, {NODES: lambda _: nodes})
    assert liveness is not None
    assert (liveness.state, liveness.again_from, liveness.reachable) == ("broken", again, reachable)


def test_a_healthy_cluster_has_no_problem():
    intent = registry.intent(make_plan(load(find("overlay"))))
    assert look_inside(cast(Guests, Machines({}, {})), intent, {NODES: lambda _: {}}) is None
