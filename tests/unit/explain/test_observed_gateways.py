"""Virtual gateways as they were seen: the Intent follows one holder, and tells of none."""

from __future__ import annotations

from lab.explain.explainer import compare_machine as differences
from lab.explain.explainer import with_held_gateways
from lab.facts.node import LinkFacts, NodeFacts
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load
from lab.topology import registry

INTENT = registry.intent(make_plan(load(find("upstream-vrrp"))))


def seen(*virtual: str, machine: str = "master1") -> NodeFacts:
    card = INTENT.machine(machine).interfaces[1]
    addresses = (*card.addresses, *virtual)
    link = LinkFacts(card.name, "", card.mac, addresses, card.mtu, up=True, carrier=True)
    absent = tuple((name, "not asked") for name in ("route", "neighbour"))
    return NodeFacts("linux", "", links=(link,), absent=absent)


def test_one_holder_is_followed_wherever_it_is() -> None:
    observed = {"master1": seen(), "master3": seen("10.160.11.1/24", machine="master3")}
    bound = with_held_gateways(INTENT, observed)
    assert [one.holder for one in bound.gateways] == ["master3", "master1"]
    assert bound.machine("master3").interfaces[1].virtual == ("10.160.11.1/24",)


def test_with_no_holder_or_two_the_intent_stays() -> None:
    two = {name: seen("10.160.11.1/24", machine=name) for name in ("master1", "master2")}
    for observed in ({"master1": seen()}, two):
        assert with_held_gateways(INTENT, observed) == INTENT


def test_a_gateway_that_nobody_holds_is_told_of_the_machine_that_should() -> None:
    machine = INTENT.machine("master1")
    found = [one for one in differences(machine, seen("10.160.4.1/24")) if "gateway" in one.object]
    assert [(one.kind, one.object, one.observed) for one in found] == [
        ("gateway-missing", "gateway 10.160.11.1/24", "held by nobody")
    ]
    whole = differences(machine, seen("10.160.4.1/24", "10.160.11.1/24"))
    assert not [one for one in whole if one.kind == "gateway-missing"]
