"""After a machine was off its networks or a lab was mended, what was there before is waited for."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from lab_desk import Desk
from made_items import changed, make_links, make_routes, with_link, with_routes

from lab._errors import DeadlineError
from lab.explain.explainer import learning_machines as asked
from lab.explain.explainer import list_unlearned
from lab.facts.items import Items, LinkFacts
from lab.facts.node import NodeFacts
from lab.lifecycle import reconnect
from lab.lifecycle.faults import heal, words
from lab.lifecycle.reconnect import wait_until_learned
from lab.plan.planner import make_plan
from lab.providers.fake.provider import FakeProvider
from lab.providers.provider import LabHandle, Provider
from lab.scenario.loader import find, load
from lab.state.lock import HeldError
from lab.topology import registry
from lab.topology.intent import Intent, MachineIntent


class Cutting(FakeProvider):
    """A provider of machines in memory that can be off their networks."""

    off: set[str]

    def cut_off(self, _lab: LabHandle, _intent: Intent, machine: str) -> None:
        self.off.add(machine)

    def reconnect(self, _lab: LabHandle, _intent: Intent, machine: str) -> None:
        self.off.discard(machine)


@pytest.fixture
def cutting(desk):
    desk.provider = Cutting(now=lambda: desk.now)
    desk.provider.off = set()
    desk.providers = {"fake": desk.provider}
    desk.up()
    return desk


def off(desk: Desk) -> set[str]:
    assert isinstance(desk.provider, Cutting)
    return desk.provider.off


def written(desk: Desk) -> list[tuple[str, str, str]]:
    return [(fault.name, fault.node, fault.state) for fault in desk.store.faults("overlay")]


def killed(desk: Desk) -> None:
    """What a test leaves that is killed while a machine is away."""
    desk.opened().cut_off("worker1")
    assert off(desk) == {"worker1"}


def test_it_is_written_down_while_a_machine_is_away_and_no_longer(cutting):
    killed(cutting)
    assert written(cutting) == [(reconnect.CUT_OFF, "worker1", "done")]
    cutting.opened().reconnect("worker1")
    assert (written(cutting), off(cutting)) == ([], set())


def test_it_is_written_down_before_the_machine_goes(cutting, monkeypatch):
    seen = []
    monkeypatch.setattr(cutting.provider, "cut_off", lambda *_: seen.extend(written(cutting)))
    cutting.opened().cut_off("worker1")
    assert seen == [(reconnect.CUT_OFF, "worker1", "intended")]


def test_the_next_command_that_uses_the_lab_reconnects_it_and_reports_it(cutting):
    killed(cutting)
    said: list[str] = []
    with cutting.opened().in_use("lab test overlay", said.append):
        assert off(cutting) == set()
    assert said == ["worker1 was left off its networks by a killed failover test: reconnected"]
    assert written(cutting) == []


def test_up_of_a_lab_that_is_up_puts_it_back_too(cutting):
    killed(cutting)
    cutting.up()
    assert (written(cutting), off(cutting)) == ([], set())
    assert any(line.startswith("worker1 was left off its networks") for line in cutting.said)


def test_status_shows_it_and_heal_puts_it_back(cutting):
    killed(cutting)
    status = cutting.status()
    assert [(fault.name, fault.node) for fault in status.faults] == [(reconnect.CUT_OFF, "worker1")]
    lab = cutting.opened()
    (removed,) = heal(lab, cutting.said.append).removed
    assert words(removed) == "'cut-off' on 'worker1'"
    assert (written(cutting), off(cutting)) == ([], set())


def test_of_a_lab_that_was_made_anew_nothing_is_put_back(cutting):
    killed(cutting)
    cutting.now += 1
    cutting.down()
    cutting.up()
    said: list[str] = []
    with cutting.opened().in_use("lab test overlay", said.append):
        pass
    assert said == []
    assert off(cutting) == {"worker1"}, "asked for of a machine that is no more"


def test_who_takes_machines_away_waits_for_other_tests_and_they_for_it(cutting):
    lab = cutting.opened()
    failing, other = "lab test overlay --failover", "lab test overlay"
    with lab.in_use(other, str), lab.in_use(other, str, wait=0), pytest.raises(HeldError):
        lab.in_use(failing, str, wait=0, alone=True).__enter__()
    with lab.in_use(failing, str, alone=True), pytest.raises(HeldError, match="--failover"):
        lab.in_use(other, str, wait=0).__enter__()


def test_a_process_that_holds_the_lab_alone_does_not_wait_for_itself(cutting):
    lab = cutting.opened()
    within = replace(lab, held_alone=True)
    with lab.in_use("lab test --failover", str, alone=True), within.in_use("test", str, wait=0):
        assert within.held_alone


LAB = LabHandle("calico", Path("/nowhere"), "token")


@cache
def intent_of(name: str) -> Intent:
    """As where pods are namespaces."""
    return replace(registry.intent(make_plan(load(find(name)))), kubernetes=None)


def whole(machine: MachineIntent) -> NodeFacts:
    """The machine with every card, address and route that it should have."""
    cards = [
        (interface.name, interface.mac, interface.held, interface.mtu)
        for interface in machine.interfaces
    ]
    others = [bridge for bridge in (machine.bridge, machine.tunnel) if bridge]
    cards += [(one.name, one.mac, one.addresses, one.mtu) for one in others]
    links = tuple(
        LinkFacts(name, "", mac, addresses, mtu, up=True, carrier=True)
        for name, mac, addresses, mtu in cards
    )
    items = Items.of((*make_links(links), *make_routes(machine.routes)))
    return NodeFacts("linux", "", items=items)


class Looked:
    """A provider that shows one look after the other, the last for ever."""

    name = "looked"

    def __init__(self, *looks: Mapping[str, NodeFacts]) -> None:
        self.looks = list(looks)
        self.seen = 0

    def observe(self, _: object, __: object, names: Mapping[str, Any], ___: object):
        facts = self.looks[min(self.seen, len(self.looks) - 1)]
        self.seen += 1
        return {name: facts[name] for name in names}


def wait(provider: Looked, intent: Intent, said: list[str]) -> None:
    wait_until_learned(cast(Provider, provider), LAB, intent, "healing", said.append)


def all_healthy(intent: Intent) -> dict[str, NodeFacts]:
    return {machine.name: whole(machine) for machine in intent.machines}


def without_learned(machine: MachineIntent, facts: NodeFacts) -> NodeFacts:
    static = [route for route in machine.routes if route.by is None]
    return replace(facts, items=with_routes(facts.items, static))


def test_only_machines_with_daemons_that_learn_are_asked():
    assert asked(intent_of("overlay")) == ()
    nodes = ("master", "worker1", "worker2", "win1", "win2")
    assert asked(intent_of("calico-bgp")) == nodes
    assert asked(intent_of("calico-bgp-tor")) == (*nodes, "router")
    assert asked(intent_of("upstream-vrrp")) == ("master1", "master2", "master3", "node001")


def test_nothing_is_looked_at_where_nothing_is_learned():
    provider = Looked({})
    wait(provider, intent_of("overlay"), [])
    assert provider.seen == 0


@pytest.mark.parametrize("name", ["calico-bgp", "calico-bgp-tor", "upstream-vrrp"])
def test_a_lab_that_has_learned_all_is_waited_for_once(name):
    provider, said = Looked(all_healthy(intent_of(name))), list[str]()
    wait(provider, intent_of(name), said)
    assert (provider.seen, said) == (1, [])


def test_returning_routes_are_waited_for_and_reported_once(monkeypatch):
    monkeypatch.setattr(reconnect, "_EVERY_SECONDS", 0.001)
    intent = intent_of("calico-bgp")
    healthy = all_healthy(intent)
    broken = healthy | {"worker1": without_learned(intent.machine("worker1"), healthy["worker1"])}
    provider, said = Looked(broken, broken, healthy), list[str]()
    wait(provider, intent, said)
    assert provider.seen == 3
    assert len(said) == 1
    assert "worker1: route to 10.244." in said[0]
    assert said[0].endswith(" and 1 more")


def test_a_route_that_leads_elsewhere_and_a_gateway_that_nobody_holds_are_missing_too():
    intent = intent_of("upstream-vrrp")
    healthy = all_healthy(intent)
    node = healthy["node001"]
    learned = [route for route in intent.machine("node001").routes if route.by]
    moved = make_routes(replace(route, via="9.9.9.9") for route in learned)
    elsewhere = replace(node, items=changed(node.items, *moved))
    kinds = {difference.kind for difference in list_unlearned(intent, {"node001": elsewhere})}
    assert kinds == {"wrong-learned-route"}
    card = intent.machine("master1").interfaces[1]
    link = healthy["master1"].link(card.name)
    assert link is not None
    bare = with_link(healthy["master1"].items, replace(link, addresses=card.addresses))
    differences = list_unlearned(intent, {"master1": replace(healthy["master1"], items=bare)})
    assert {difference.kind for difference in differences} == {"gateway-missing"}


def test_a_route_that_does_not_return_is_reported_with_its_machine(monkeypatch):
    monkeypatch.setattr(reconnect, "_SECONDS", -9.0)  # so that nothing is left of the hold time
    intent = intent_of("calico-bgp")
    healthy = all_healthy(intent)
    broken = healthy | {"win2": without_learned(intent.machine("win2"), healthy["win2"])}
    with pytest.raises(DeadlineError, match=r"last seen: .*win2: route to 10\.244") as raised:
        wait(Looked(broken), intent, [])
    assert raised.value.doing.startswith("healing: waiting for daemons")
    assert "lab gather calico" in raised.value.hint


def test_a_clusters_own_network_is_left_to_it():
    provider = Looked({})
    wait(provider, registry.intent(make_plan(load(find("calico-bgp")))), [])
    assert provider.seen == 0
