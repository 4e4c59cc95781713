"""Sessions of BGP, virtual gateways and a services node's DNS: from what was seen to words."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from made_items import make_routes
from seen_machines import (
    Seen,
    broken,
    cell,
    down,
    lab,
    whole,
    with_address,
    with_items,
    with_link,
    without_routes,
)

from lab.explain.check import LabLook
from lab.explain.checks.bgp import BgpSessionsCheck
from lab.explain.explainer import Explainer, compare_lab
from lab.explain.lab_queries import LabQueries
from lab.explain.paths import flow_of, select_machines
from lab.explain.stages import explain_cells
from lab.facts import linux, nftables
from lab.facts.difference import Difference
from lab.facts.items import make_device_items
from lab.facts.node import PACKETS, DeviceCounter, SeenSession
from lab.facts.translations import Barrier
from lab.providers.provider import Outcome, Probe
from lab.topology import gateways
from lab.topology.subject import ChainSubject
from lab.topology.walk import walk

BIRDC = """BIRD 2.0.12 ready.
Name       Proto      Table      State  Since         Info
device1    Device     ---        up     08:12:18.797
kernel1    Kernel     master4    up     08:12:18.797
to-master  BGP        ---        up     08:12:19.696  Established
to-worker1 BGP        ---        start  08:12:21.535  Active        Socket: Connection refused
to-win1    BGP        ---        down   08:12:21.535
"""


def findings(name: str, facts: Seen, id_: str) -> tuple[Difference, ...]:
    """As ``lab explain`` has it: of the machines on the path alone."""
    _, intent, _ = lab(name)
    flow = flow_of(cell(name, id_))
    there = {machine: facts[machine] for machine in select_machines(intent, walk(intent, flow))}
    return Explainer(intent, there).explain(flow).findings


def told(differences: Sequence[Difference]) -> list[tuple[str, str]]:
    return [(difference.kind, difference.node) for difference in differences]


def session(facts: Seen, node: str, peer: str, state: str, info: str) -> Seen:
    name = f"to-{peer}"
    sessions = (one for one in facts[node].sessions if one.name != name)
    return broken(facts, node, sessions=(*sessions, SeenSession(name, state, info)))


def block(name: str, node: str) -> str:
    translation = lab(name)[1].machine(node).translation
    assert translation is not None
    return str(translation.local_cidr)


def shut(name: str, node: str, peer: str) -> Seen:
    """A session that one end has shut, the other end as BIRD tells of it."""
    facts = session(whole(lab(name)[1]), node, peer, "down", "")
    return session(facts, peer, node, "start", "Active Socket: Connection refused")


def test_only_birds_sessions_are_read_from_its_output() -> None:
    assert linux.read_sessions(BIRDC) == (
        SeenSession("to-master", "up", "Established"),
        SeenSession("to-worker1", "start", "Active Socket: Connection refused"),
        SeenSession("to-win1", "down", ""),
    )
    assert linux.read_sessions("") == ()


def test_in_a_mesh_the_end_that_shut_a_session_is_named_from_both_sides() -> None:
    facts = shut("calico-bgp", "worker1", "win1")
    facts = without_routes(facts, "worker1", block("calico-bgp", "win1"))
    facts = without_routes(facts, "win1", block("calico-bgp", "worker1"))
    for id_ in ("pod-pod/worker1-p1/win1-p1/tcp-small", "pod-pod/win1-p1/worker1-p1/tcp-small"):
        differences = findings("calico-bgp", facts, id_)
        assert (differences[0].fault, differences[0].node) == ("bgp-session-down", "worker1")
        assert {kind for kind, _ in told(differences[1:])} == {"learned-route-missing"}
        assert differences[0].shown_by("x") == "lab exec x worker1 -- birdc show protocols"
        assert differences[0].fixed_by("x").endswith("""birdc "enable '"'"'to-win1'"'"'"'""")
    beside = findings("calico-bgp", facts, "pod-pod/master-p1/worker1-p1/tcp-small")
    assert beside == ()


def test_with_the_router_a_third_nodes_routes_hang_on_the_session_too() -> None:
    name, lost = "calico-bgp-tor", block("calico-bgp-tor", "worker1")
    facts = shut(name, "worker1", "router")
    for other in ("router", "master", "win1"):
        facts = without_routes(facts, other, lost)
    differences = findings(name, facts, "node-pod/win1/worker1-p1/tcp-small")
    assert (differences[0].fault, differences[0].node) == ("bgp-session-down", "worker1")
    assert findings(name, facts, "pod-pod/win1-p1/master-p1/tcp-small") == ()


@pytest.mark.parametrize(
    ("name", "lost"), [("upstream-vrrp", "master1"), ("calico-bgp-tor", "worker1")]
)
def test_sessions_with_a_machine_that_is_lost_are_missed_by_nobody(name: str, lost: str) -> None:
    _, intent, _ = lab(name)
    left = gateways.without(intent, lost)
    facts = whole(left)
    for machine in left.machines:
        if machine.speaker and any(session.machine == lost for session in machine.speaker.sessions):
            facts = session(facts, machine.name, lost, "start", "Active")
    assert list(BgpSessionsCheck().in_lab(LabLook(left, facts))) == []
    assert facts != whole(left)
    for machine in left.machines:  # and what else is wrong is told all the same
        for other in machine.speaker.sessions if machine.speaker else ():
            if other.machine != lost:
                shut_too = session(facts, machine.name, other.machine, "down", "")
                assert len(list(BgpSessionsCheck().in_lab(LabLook(left, shut_too)))) == 1


def test_a_session_that_stays_down_ranks_after_its_cause() -> None:
    facts = session(whole(lab("calico-bgp")[1]), "worker1", "win1", "start", "Active")
    id_ = "pod-pod/worker1-p1/win1-p1/tcp-small"
    assert told(findings("calico-bgp", facts, id_)) == [("session-waiting", "worker1")]
    facts = down(facts, "win1", "eth0")
    assert told(findings("calico-bgp", facts, id_))[0] == ("link-down", "win1")


def explained(name: str, id_: str, look: Callable[..., object]) -> Difference | None:
    """The first finding where every probe times out."""
    return explain_cells(
        [cell(name, id_)], (), lab(name)[1], LabQueries(timed_out, look, lambda _: ())
    ).finding


def test_where_routes_lead_to_another_the_whole_lab_is_looked_at() -> None:
    name, id_ = "calico-bgp", "pod-pod/win1-p1/master-p1/tcp-small"
    _, intent, _ = lab(name)
    bridge, drawn = intent.machine("win1").bridge, block(name, "win1")
    assert bridge is not None
    facts = with_address(whole(intent), "win2", "cbr0", *bridge.addresses)
    (route,) = (route for route in intent.machine("master").routes if route.destination == drawn)
    moved = make_routes([replace(route, via=intent.machine("win2").address())])
    facts = with_items(facts, "master", *moved)
    looked: list[set[str]] = []

    def look(wanted):
        looked.append(set(wanted))
        return {one: facts[one] for one in wanted}

    difference = explained(name, id_, look)
    assert difference
    assert (difference.fault, difference.node) == ("duplicate-node-pod-cidr", "win2")
    assert looked[0] == {"win1", "master"}
    assert "win2" in looked[1]


def test_a_duplicate_mac_off_the_path_ranks_before_counters() -> None:
    name, id_ = "overlay", "pod-pod/master-p1/worker1-p1/tcp-small"
    _, intent, _ = lab(name)
    twin = next(interface.mac for interface in intent.machine("worker1").interfaces)
    facts = with_link(whole(intent), "worker2", "eth0", mac=twin)
    looks = [0]

    def look(wanted):
        looks[0] += 1
        sent = (DeviceCounter("eth0", "sent", PACKETS, 10 * looks[0]),)
        return {one: broken(facts, "master", counters=sent)[one] for one in wanted}

    difference = explained(name, id_, look)
    assert difference
    assert (difference.fault, difference.node) == ("two-nodes-one-mac", "worker2")
    facts["worker2"] = whole(intent)["worker2"]
    counted = explained(name, id_, look)
    assert counted
    assert (counted.kind, counted.node) == ("lost-between", "worker1")


def timed_out(probes: Sequence[Probe], _: object):
    return {probe.key: Outcome(probe.key, "timeout", "", None, (), None, 0.1) for probe in probes}


RULE = """{"rule": {"family": "arp", "table": "t", "chain": "input", "handle": 3, "expr": [
{"match": {"op": "==", "left": {"payload": {"protocol": "arp", "field": "daddr ip"}},
"right": "10.160.11.1"}}, {"counter": {"packets": 6, "bytes": 0}}, {"drop": null}]}}"""


def arp_rule(address: str) -> tuple[Barrier, ...]:
    chain = {"family": "arp", "table": "t", "name": "input", "hook": "input", "type": "filter"}
    rule = json.loads(RULE.replace("10.160.11.1", address))
    return nftables.read([{"chain": chain}, rule], but=frozenset()).barriers


def test_a_silent_gateway_is_reported_for_its_holder() -> None:
    name = "upstream-vrrp"
    facts = broken(whole(lab(name)[1]), "master1", barriers=arp_rule("10.160.11.1"))
    for id_ in (
        "pod-pod/node009-p1/node001-p1/tcp-small",
        "pod-pod/node001-p1/node009-p1/tcp-small",
    ):
        (difference,) = findings(name, facts, id_)
        assert (difference.kind, difference.fault, difference.node) == (
            "gateway-barred",
            "gateway-dead",
            "master1",
        )
        assert difference.observed == "arp daddr ip 10.160.11.1 drop (matched 6 packets)"
        assert "nft delete" in difference.fixed_by("x")
    assert findings(name, facts, "pod-pod/node010-p1/node001-p1/tcp-small") == ()
    behind = broken(whole(lab(name)[1]), "master1", barriers=arp_rule("10.160.4.1"))
    (difference,) = findings(name, behind, "node-pod/node009/node010-p1/tcp-small")
    assert (difference.fault, difference.node) == (
        "gateway-dead",
        "master1",
    )  # asks as the gateway itself
    others = broken(whole(lab(name)[1]), "master1", barriers=arp_rule("100.100.126.216"))
    assert findings(name, others, "pod-pod/node009-p1/node001-p1/tcp-small") == ()


def test_a_gateway_without_a_holder_is_reported_where_it_is_needed() -> None:
    name = "upstream-vrrp"
    facts = whole(lab(name)[1])
    card = facts["master1"].link("eth1")
    assert card
    left = tuple(text for text in card.addresses if text != "10.160.11.1/24")
    facts = with_link(facts, "master1", "eth1", addresses=left)
    differences = findings(name, facts, "pod-pod/node001-p1/node009-p1/tcp-small")
    assert told(differences) == [("gateway-missing", "master1")]
    assert differences[0].fault == "gateway-dead"


DNS_BARRED = (Barrier(ChainSubject("ip", "x", "input"), "a rule", ports=(53, 53)),)


def test_the_services_nodes_dns_is_reported_for_queries_of_pods_and_nodes() -> None:
    name = "kubeinit"
    facts = broken(whole(lab(name)[1]), "services", barriers=DNS_BARRED)
    for source in ("compute-03-p1", "controller-02"):
        (difference,) = findings(
            name, facts, f"node-names/{source}/api.k8scluster.kubeinit.local./udp-small"
        )
        assert (difference.fault, difference.node) == ("dns-unreachable", "services")
    assert findings(name, facts, "api/compute-03-p1/api/tcp-small") == ()
    assert findings(name, facts, "dns/compute-03-p1/to-controller-01-p1/udp-small") == ()


def test_a_name_that_pods_ask_for_passes_the_dns_server_and_comes_back() -> None:
    _, intent, _ = lab("kubeinit")
    asked_for = cell(
        "kubeinit", "node-names/compute-03-p1/api.k8scluster.kubeinit.local./tcp-small"
    )
    (path,) = walk(intent, flow_of(asked_for))
    assert path.end == ""
    ends = [hop.place for hop in path.hops if hop.kind == "endpoint"]
    there_and_on = ["compute-03-p1", "coredns", "coredns", "services", "services", "coredns"]
    assert ends == [*there_and_on, "coredns", "compute-03-p1"]
    assert {hop.packet.protocol for hop in path.hops if "services" in hop.place} == {"udp"}
    onward = replace(intent, services_node=None)
    assert len(walk(onward, flow_of(asked_for))[0].hops) < len(path.hops)


def test_a_rule_for_the_network_that_a_machine_is_reached_by_bars_nothing_of_the_lab() -> None:
    intent = lab("overlay")[1]
    facts = whole(intent)
    like = facts["worker1"].links[0]
    management = replace(like, name="mgmt0", addresses=("192.168.251.11/24",))
    facts = with_items(facts, "worker1", *make_device_items(management))
    rule = Barrier(ChainSubject("ip", "x", "forward"), "a rule", prefixes=("10.244.0.0/16",))

    def barred(device: str) -> list[str]:
        barriers = (replace(rule, device=device),)
        found = broken(facts, "worker1", barriers=barriers)
        return [one.node for one in compare_lab(intent, found) if one.barrier]

    assert barred("mgmt0") == []
    assert barred("eth0") == ["worker1"]
    assert barred("") == ["worker1"]
