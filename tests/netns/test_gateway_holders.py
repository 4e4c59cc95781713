"""Virtual gateways of real keepalived: held, lost, taken over, and not taken back."""

from __future__ import annotations

from typing import cast

import pytest
from netns_running import Running, scenario_intent
from observed_labs import differences

from lab._deadline import Deadline
from lab._errors import BrokenError, UsageError
from lab.providers.failover import Beat, BeatPace, resolve_gateways
from lab.suites.failover import FailoverTest
from lab.suites.running_lab import RunningLab
from lab.topology.intent import Intent

pytestmark = pytest.mark.slow

ADVERT_SECONDS = 0.3
"""Shorter than the scenario's, so that the test is."""


@pytest.fixture(scope="module")
def running(bring_up):
    parameters = {"advert_seconds": ADVERT_SECONDS}
    return bring_up(scenario_intent("upstream-vrrp", topology=parameters, pods_per_node=1))


def held(running: Running) -> dict[str, list[str]]:
    gateway_holders = running.provider.gateway_holders(running.lab, running.intent)
    return {node: list(names) for node, names in gateway_holders.items()}


def holders(running: Running) -> set[str]:
    return {name for names in held(running).values() for name in names}


def test_a_failover_and_another_one_back(running, capsys):
    assert holders(running) == {"master1"}
    for _ in range(2):
        failover = failover_of(running, running.intent).run()
        assert failover.trouble == ""
        assert failover.lost == failover.before["node009"]
        assert failover.lost not in failover.away.holders.values()
        assert failover.back.holders == failover.away.holders, "nobody preempts"
        for silence in failover.away.silences:
            assert ADVERT_SECONDS < silence.seconds < 15.0, silence
            assert 0 < silence.answered < silence.sent, silence
        assert holders(running) == set(failover.back.holders.values())
    assert capsys.readouterr().err.count("failover: ") == 4
    assert differences(running) == ()


def test_an_address_that_is_taken_away_by_hand_finds_a_holder_again(running):
    first = resolve_gateways(running.provider, running.lab, running.intent).gateways[0]
    assert first.holder
    running.shell(first.holder, f"ip address del {first.address} dev {first.device}")
    Deadline(20).wait("being held again", lambda: held(running)[first.node])
    Deadline(20).wait("being whole", lambda: differences(running), until=lambda left: not left)


def test_an_address_on_two_machines_is_reported_and_the_plan_stays(running):
    first = resolve_gateways(running.provider, running.lab, running.intent).gateways[0]
    other = next(name for name in first.candidates if name != first.holder)
    running.shell(other, f"ip address add {first.address} dev {first.device}")
    try:
        kinds = {difference.kind for difference in differences(running)}
        seen = held(running)[first.node]
        planned = resolve_gateways(running.provider, running.lab, running.intent).gateways[0].holder
    finally:
        running.shell(other, f"ip address del {first.address} dev {first.device}")
    assert len(seen) == 2
    assert planned == running.intent.gateways[0].holder
    assert "gateway-twice" in kinds
    Deadline(20).wait("being whole", lambda: differences(running), until=lambda left: not left)


def test_nothing_is_taken_away_where_pods_do_not_answer_to_begin_with(running):
    changed: list[str] = []
    beat = Beat("node009-p1", "nobody", "10.160.99.99")
    with pytest.raises(BrokenError, match="'node009-p1' gets no steady answer from 'nobody'"):
        running.provider.pulse(
            running.lab, (beat,), lambda: changed.append("changed"), BeatPace(patience=1.0)
        )
    assert changed == []


def test_a_machine_that_is_not_lost_leaves_no_silence(running):
    beat = Beat("node001-p1", "master3-p1", "10.160.2.4")
    pace = BeatPace(calm=0.5, least=1.0)
    (found,) = running.provider.pulse(running.lab, (beat,), lambda: None, pace)
    assert found.answered >= found.sent - 20
    assert found.seconds < 0.5


def test_other_providers_and_topologies_are_refused(running):
    with pytest.raises(UsageError, match="provider 'libvirt' cannot take a machine off"):
        failover_of(running, running.intent, _Other())
    overlay = scenario_intent("overlay")
    with pytest.raises(UsageError, match="has no gateway that could fail over"):
        failover_of(running, overlay)


def failover_of(running: Running, intent: Intent, provider: object = None) -> FailoverTest:
    return FailoverTest(cast("RunningLab", ByHand(running, provider or running.provider)), intent)


class ByHand:
    """A lab of which machines are cut off and put back without writing it down."""

    def __init__(self, running: Running, provider: object) -> None:
        self.running, self.provider = running, provider
        self.handle, self.name = running.lab, running.lab.name

    def cut_off(self, machine: str) -> None:
        self.running.provider.cut_off(self.running.lab, self.running.intent, machine)

    def reconnect(self, machine: str) -> None:
        self.running.provider.reconnect(self.running.lab, self.running.intent, machine)


class _Other:
    name = "libvirt"
    abilities: frozenset[str] = frozenset()
