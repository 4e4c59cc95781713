"""Who is watched while the holder of a gateway is lost, and what is made of what was seen."""

from dataclasses import replace

import pytest
from shipped import intent_of

from lab._errors import UsageError
from lab.matrix.failover import Failover, Turn, beats, holder_to_lose
from lab.providers.failover import Silence
from lab.topology import gateways

HELD = {"node009": "master1", "node010": "master1"}
MOVED = {"node009": "master2", "node010": "master2"}


def turn(seconds: float, holders: dict[str, str | None] | None = None, *wrong: str) -> Turn:
    silences = (
        Silence("node009-p1", "node001-p1", seconds, 100, 50),
        Silence("node001-p1", "node009-p1", seconds / 2, 100, 60),
    )
    return Turn(silences, dict(MOVED) if holders is None else holders, wrong)


def test_pods_behind_the_gateways_and_those_of_every_other_linux_node_ask_each_other():
    watched = {(beat.source, beat.target) for beat in beats(intent_of("upstream-vrrp"), "master1")}
    behind, others = ("node009-p1", "node010-p1"), ("master2-p1", "master3-p1", "node001-p1")
    there = {(one, other) for one in behind for other in others}
    assert watched == there | {(other, one) for one, other in there}


def test_what_another_machine_holds_is_not_watched():
    intent = gateways.held(intent_of("upstream-vrrp"), {"node010": "master3"})
    ends = {end for beat in beats(intent, "master3") for end in (beat.source, beat.target)}
    assert "node010-p1" in ends
    assert "node009-p1" not in ends
    assert not [end for end in ends if end.startswith("master3")]


def test_the_holder_of_the_first_gateway_is_lost():
    intent = intent_of("upstream-vrrp")
    assert holder_to_lose(intent, "lab") == "master1"
    assert holder_to_lose(gateways.held(intent, {"node009": "master3"}), "lab") == "master3"


def test_what_cannot_fail_over_is_refused_with_the_reason():
    with pytest.raises(UsageError, match="topology 'overlay' has no gateway"):
        holder_to_lose(intent_of("overlay"), "lab")
    intent = intent_of("upstream-vrrp")
    alone = tuple(replace(gateway, candidates=("master1",)) for gateway in intent.gateways)
    with pytest.raises(UsageError, match="only master1"):
        holder_to_lose(replace(intent, gateways=alone), "lab")


def test_it_went_well_where_others_took_over_and_every_route_followed():
    failover = Failover("master1", HELD, turn(2.5), turn(0.0))
    assert failover.well
    assert (failover.away.longest, failover.back.longest) == (2.5, 0.0)
    outward, inward = (failover.silence(failover.away, outward=way) for way in (True, False))
    assert outward
    assert inward
    assert (outward.source, inward.source) == ("node009-p1", "node001-p1")


@pytest.mark.parametrize(
    ("away", "back", "trouble"),
    [
        (turn(9, {"node009": None}), turn(0), "no machine holds the gateway of node009 while"),
        (turn(3, None, "a route"), turn(0), "while master1 is away: a route"),
        (turn(3), turn(0, None, "another"), "while master1 is back: another"),
        (turn(3, dict(HELD)), turn(0), "master1 is away and still holds the gateway of node009"),
    ],
)
def test_a_failed_failover_has_its_trouble(away, back, trouble):
    failover = Failover("master1", HELD, away, back)
    assert not failover.well
    assert failover.trouble.startswith(trouble)


def test_of_a_lost_machine_nothing_is_learned_and_the_rest_stays():
    intent = gateways.held(intent_of("upstream-vrrp"), MOVED)
    left = gateways.without(intent, "master1")
    assert "master1" not in {machine.name for machine in left.machines}
    known = {route.destination for route in left.machine("node001").routes if route.by}
    assert known == {"10.160.1.0/24", "10.160.2.0/24", "10.160.11.0/24", "10.160.4.0/24"}
