"""Routes that BIRD learns in a lab: there, withdrawn when a node is lost, and there again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from netns_running import Running, scenario_intent
from observed_labs import differences

from lab._deadline import Deadline
from lab.explain.faults import registry as faults
from lab.providers.netns import failover

pytestmark = pytest.mark.slow

HOLD_SECONDS = 3
"""The least there is, so that the test is short."""
NOTICE_SECONDS = 2
"""On top: BIRD's timers count whole seconds, and the kernel is told after that."""


@pytest.fixture(scope="module", params=["mesh", "tor"])
def running(request, bring_up):
    parameters = {"peering": request.param, "hold_seconds": HOLD_SECONDS}
    intent = scenario_intent("calico-bgp", topology=parameters, pods_per_node=1)
    return bring_up(replace(intent, kubernetes=None), name=f"bgp-{request.param}")


def _learned(running: Running, machine: str) -> set[str]:
    lines = running.shell(machine, "ip -4 route show proto bird").splitlines()
    return {line.split()[0] for line in lines if " via " in line}


def _wanted(running: Running, machine: str) -> set[str]:
    routes = running.intent.machine(machine).routes
    return {route.destination for route in routes if route.by == "bird"}


def test_every_machine_has_learned_the_intended_routes(running):
    for machine in running.intent.machines:
        assert _learned(running, machine.name) == _wanted(running, machine.name)
    assert differences(running) == ()


def test_a_lost_nodes_block_goes_within_the_hold_time_and_comes_back(running):
    lost = running.intent.machine("worker2")
    assert lost.translation
    block = str(lost.translation.local_cidr)
    others = [
        machine.name
        for machine in running.intent.machines
        if machine.speaker and machine.name != lost.name
    ]
    failover.plug(running.entry, running.intent, lost.name, plugged=False)
    try:
        deadline = Deadline(HOLD_SECONDS + NOTICE_SECONDS)
        for name in others:
            deadline.wait(
                f"'{name}' losing {block}",
                lambda name=name: _learned(running, name),  # type: ignore[misc]
                until=lambda there: block not in there,
                every=0.05,
            )
            left = _wanted(running, name) - {block}
            assert _learned(running, name) == left
    finally:
        failover.plug(running.entry, running.intent, lost.name, plugged=True)
    for name in others:
        Deadline(20).wait(
            f"'{name}' learning {block} again",
            lambda name=name: _learned(running, name),  # type: ignore[misc]
            until=lambda there: block in there,
            every=0.05,
        )
    assert running.ask("worker1-p1", lost.pods[0].address.partition("/")[0], 8080)
    Deadline(20).wait("being whole", lambda: differences(running), until=lambda left: not left)


def test_a_session_that_is_down_is_seen_with_the_routes_that_are_missing(running):
    peer = running.intent.machine("worker1").speaker
    assert peer
    session = f"'to-{peer.sessions[0].machine}'"
    running.shell("worker1", f'birdc disable "{session}"')
    found = differences(running, "worker1")
    lost = {(difference.kind, difference.object) for difference in found}
    running.shell("worker1", found[0].shows)
    running.shell("worker1", found[0].mends)
    Deadline(20).wait("being whole", lambda: differences(running), until=lambda left: not left)
    assert {kind for kind, _ in lost} == {"session-down", "learned-route-missing"}
    routes = [route for route in running.intent.machine("worker1").routes if route.by]
    through = [route for route in routes if route.via == peer.sessions[0].address]
    missing = {what for kind, what in lost if kind == "learned-route-missing"}
    assert missing == {f"route to {route.destination}" for route in through}


@pytest.mark.parametrize("name", ["node-link-down", "two-nodes-one-mac"])
def test_the_fix_of_a_card_leaves_learned_routes_to_the_daemon(running, name):
    fault = faults.faults()[name]
    change = fault.change(running.intent, "worker1", "worker2" if fault.peer else "")
    for command in (*change.do, *change.undo):
        running.shell(command.place, command.line)
    static = running.shell("worker1", "ip -4 route show proto boot").splitlines()
    Deadline(20).wait("being whole", lambda: differences(running), until=lambda left: not left)
    assert {line.split()[0] for line in static}.isdisjoint(_wanted(running, "worker1"))
    assert _learned(running, "worker1") == _wanted(running, "worker1")
