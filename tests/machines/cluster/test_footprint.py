"""What an add-on makes on a node is as intended there, and nowhere else."""

from dataclasses import replace
from typing import Any

import pytest
from made_items import changed, make_links, make_routes, make_tables, make_tunnel, with_routes

from lab.explain.check import LabLook
from lab.explain.checks.bgp import BgpSessionsCheck
from lab.explain.explainer import compare_lab
from lab.explain.explainer import compare_machine as differences
from lab.facts import nftables
from lab.facts.difference import Difference
from lab.facts.items import Items, LinkFacts
from lab.facts.node import NodeFacts, SeenSession
from lab.facts.translations import Masquerade, Translations
from lab.lifecycle.compilation import compile_scenario
from lab.machines.addons.calico import Calico
from lab.machines.addons.flannel import Flannel
from lab.topology.footprint import LAB, bird_of, find_footprint
from lab.topology.intent import BLACKHOLE, Intent, MachineIntent, Route

CALICO, FLANNEL = Calico.footprint, Flannel.footprint

POOLS = ("10.244.0.0/26", "10.244.0.64/26", "10.244.0.128/26")


def intent_of(scenario: str) -> Intent:
    return compile_scenario(scenario, "linux", None, "kubernetes", real=True).intent


def rule(chain: str, *expression: Any) -> dict[str, Any]:
    return {"rule": {"family": "ip", "table": "calico", "chain": chain, "expr": list(expression)}}


def match(field: str, operator: str, right: object, protocol: str = "ip") -> dict[str, Any]:
    left = {"payload": {"protocol": protocol, "field": field}}
    return {"match": {"op": operator, "left": left, "right": right}}


def pools(name: str) -> dict[str, Any]:
    elements = [
        {"prefix": {"addr": pool.partition("/")[0], "len": int(pool.partition("/")[2])}}
        for pool in POOLS
    ]
    return {"set": {"family": "ip", "table": "calico", "name": name, "elem": elements}}


def hooked(chain: str, kind: str, hook: str) -> dict[str, Any]:
    return {
        "chain": {
            "family": "ip", "table": "calico", "name": chain, "type": kind, "hook": hook, "prio": 0
        }
    }  # fmt: skip


NFT = (
    pools("cali40masq-ipam-pools"),
    pools("cali40all-ipam-pools"),
    hooked("nat-postrouting", "nat", "postrouting"),
    rule(
        "nat-postrouting",
        match("saddr", "==", "@cali40masq-ipam-pools"),
        match("daddr", "!=", "@cali40all-ipam-pools"),
        {"masquerade": {"flags": "fully-random"}},
    ),
    hooked("filter-input", "filter", "input"),
    rule("filter-input", match("dport", "==", 4789, "udp"), {"drop": None}),
)
"""As Felix writes it: masquerade by sets, and its own bars, here of VXLAN from strangers."""


def test_masquerade_by_sets_that_have_names_is_read():
    read = nftables.read(NFT, but=frozenset())
    assert read.translations.masquerades == tuple(Masquerade(pool, POOLS) for pool in POOLS)


def kinds(differences: tuple[Difference, ...]) -> set[str]:
    return {difference.kind for difference in differences}


def node(intent: Intent) -> MachineIntent:
    """A node without Services, whose own parts alone are judged."""
    machine = intent.machine("worker1")
    assert machine.translation
    return replace(machine, translation=replace(machine.translation, services=()))


def seen(machine: MachineIntent) -> NodeFacts:
    """The node as Calico has made it, with a pod that is not the lab's."""
    read = nftables.read(NFT, but=frozenset())
    names = [card.name for card in machine.interfaces]
    names += [pod.port for pod in machine.pods] + ([machine.tunnel.name] if machine.tunnel else [])
    links = [
        LinkFacts(name, "", "", (), 0, up=True, carrier=True)
        for name in [*names, "cali0123456789a"]
    ]
    cards = {card.name: card for card in machine.interfaces}
    links = [
        replace(link, mac=cards[link.name].mac, addresses=cards[link.name].addresses)
        if link.name in cards
        else link
        for link in links
    ]
    return NodeFacts(
        os="linux",
        version="",
        items=Items.of(
            (
                *make_links(links),
                *(make_tunnel(machine.tunnel) if machine.tunnel else ()),
                *make_tables(machine),
                *make_routes([Route("10.244.0.99/32", "cali0123456789a")]),
            )
        ),
        translations=Translations("", (), read.translations.masquerades, marked=True),
        barriers=read.barriers,
        absent=(("neighbour", "not asked"),),
    )


@pytest.mark.parametrize("scenario", ["calico-vxlan", "calico-bgp"])
def test_nothing_that_calico_makes_on_a_healthy_node_is_accused(scenario):
    intent = intent_of(scenario)
    machine = node(intent)
    assert machine.bridge is None
    assert differences(machine, seen(machine), by="kubernetes", footprint=CALICO) == ()
    alone = replace(intent, machines=(machine,))
    assert compare_lab(alone, {"worker1": seen(machine)}, by="kubernetes") == ()


def test_felix_may_set_a_route_to_the_end_of_a_tunnel_and_may_not():
    machine = node(intent_of("calico-vxlan"))
    ends = [route.via for route in machine.routes if route.device == "vxlan.calico"]
    facts = seen(machine)
    assert ends == ["10.244.0.0", "10.244.0.128"]
    there = [Route(f"{end}/32", "vxlan.calico") for end in ends]
    elsewhere = [Route(f"{ends[0]}/32", "eth0")]
    for routes, kind in (([], set()), (there, set()), (elsewhere, {"stray-route"})):
        items = changed(facts.items, *make_routes(routes))
        found = differences(machine, replace(facts, items=items), by="kubernetes", footprint=CALICO)
        assert kinds(found) == kind


def test_without_the_declaration_it_is():
    machine = node(intent_of("calico-vxlan"))
    found = kinds(differences(machine, seen(machine), by="kubernetes", footprint=FLANNEL))
    assert found == {"stray-route", "tunnel-port-dropped"}


def test_a_wrong_route_is_reported_beside_the_add_ons_own():
    machine = node(intent_of("calico-vxlan"))
    facts = seen(machine)
    lost = tuple(route for route in machine.routes if route.device != BLACKHOLE)
    wrong = tuple(replace(route, source=None) for route in machine.routes)
    led = (*machine.routes, Route("10.244.0.130/32", "eth0", "10.30.0.1"))
    for routes, kind in ((lost, "route-missing"), (wrong, "wrong-route"), (led, "stray-route")):
        items = with_routes(facts.items, routes)
        found = differences(machine, replace(facts, items=items), by="kubernetes", footprint=CALICO)
        assert kinds(found) == {kind}, kind


def test_an_unknown_table_is_reported_beside_calicos():
    machine = node(intent_of("calico-vxlan"))
    foreign = tuple(replace(barrier, table="firewall-1") for barrier in seen(machine).barriers)
    facts = replace(seen(machine), barriers=foreign)
    found = differences(machine, facts, by="kubernetes", footprint=CALICO)
    assert kinds(found) == {"tunnel-port-dropped"}


def test_each_topology_has_one_declaration_and_namespaces_have_the_lab_s():
    assert find_footprint("calico-bgp") is find_footprint("calico-vxlan") is CALICO
    assert find_footprint("kubeinit") is find_footprint("overlay") is FLANNEL
    assert find_footprint("calico-bgp", "lab") is LAB


@pytest.mark.parametrize(
    ("scenario", "kind"), [("calico-bgp", "Mesh"), ("calico-bgp-tor", "Global")]
)
def test_sessions_of_calico_s_own_bird_are_known_by_the_peer_s_address(scenario, kind):
    intent = intent_of(scenario)
    machine = intent.machine("worker1")
    assert machine.speaker
    names = {s.machine: f"{kind}_{s.address.replace('.', '_')}" for s in machine.speaker.sessions}
    sessions = tuple(SeenSession(name, "up", "Established") for name in names.values())
    facts = NodeFacts("linux", "", sessions=sessions)
    assert list(BgpSessionsCheck().in_lab(LabLook(intent, {"worker1": facts}, "kubernetes"))) == []
    peer = machine.speaker.sessions[0]
    shut = tuple(
        replace(session, state="down", info="") if session.name == names[peer.machine] else session
        for session in sessions
    )
    (difference,) = BgpSessionsCheck().in_lab(
        LabLook(intent, {"worker1": replace(facts, sessions=shut)}, "kubernetes")
    )
    assert (difference.kind, difference.node) == ("session-down", "worker1")
    assert difference.shows == "birdc -s /run/calico/bird.ctl show protocols"
    session = peer.address.replace(".", "_")
    assert difference.mends == f'birdc -s /run/calico/bird.ctl "enable \\"*_{session}\\""'
    assert bird_of(intent, intent.machine("router"), "kubernetes").socket == ""
