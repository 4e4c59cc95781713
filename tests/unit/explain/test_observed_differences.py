"""One node as it was seen, changed in one way, and what is told of it first."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations

import made_items
import pytest
from made_items import make_tunnel
from observed_nodes import CASES, WORKER1
from shipped import intent_of as intent

from lab._errors import BrokenError
from lab.explain.check import OWN_KINDS
from lab.explain.check import kinds as every_kind
from lab.explain.explainer import compare_lab, with_chosen_macs, with_held_gateways
from lab.explain.explainer import compare_machine as differences
from lab.facts.items import Items, LinkFacts, make_attribute, make_device_items
from lab.facts.linux import read_facts
from lab.facts.node import DeviceCounter, NodeFacts, PodFacts, Unread, find_rises
from lab.facts.questions import OF_KERNEL
from lab.facts.translations import Translations

WAYS = json.loads((CASES / "differences.json").read_text())
WORKER = intent("overlay").machine("worker1")
HEALTHY = read_facts(WORKER1, "")


def changed(changes: list[list[str]]) -> NodeFacts:
    text = WORKER1
    for old, new in changes:
        assert old in text, f"'{old}' is not in what was seen"
        text = text.replace(old, new)
    return read_facts(text, "")


def test_a_node_as_intended_shows_no_difference() -> None:
    assert differences(WORKER, HEALTHY) == ()
    assert dict(HEALTHY.absent) == {}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way["name"])
def test_the_difference_is_the_first_finding(way) -> None:
    found = differences(WORKER, changed(way["changes"]))
    expected = [(way["kind"], way["object"])] if way["kind"] else []
    assert [(difference.kind, difference.object) for difference in found][:1] == expected
    assert all(
        difference.node == "worker1" and difference.shows and difference.mends
        for difference in found
    )


def test_a_card_that_is_down_hides_what_depends_on_it() -> None:
    (way,) = (way for way in WAYS if "takes its routes with it" in way["name"])
    assert [difference.kind for difference in differences(WORKER, changed(way["changes"]))] == [
        "link-down"
    ]


def test_of_two_differences_one_is_the_first_finding() -> None:
    named = [way for way in WAYS if way["kind"]]
    pairs = list(combinations(named, 2))[::7]
    tried = 0
    for one, other in pairs:
        text = WORKER1
        for old, new in (*one["changes"], *other["changes"]):
            if old not in text:
                break
            text = text.replace(old, new)
        else:
            tried += 1
            first = differences(WORKER, read_facts(text, ""))[0]
            wanted = {(way["kind"], way["object"]) for way in (one, other)}
            assert (first.kind, first.object) in wanted, (one["name"], other["name"], str(first))
    assert tried > 100


def test_every_kind_of_difference_of_a_single_node_has_a_way() -> None:
    elsewhere = {
        # pods, programs and pairs of nodes: below, in the other tests, and in tests/netns
        *("pod-missing", "pod-address", "pod-gateway", "pod-mtu", "pod-neighbour"),
        *("pod-resolver", "pod-not-listening", "proxy-missing"),
        *("program-down", "kubelet-down", "proxy-down", "flannel-down"),
        *("tunnel-port-closed", "kubelet-port-closed"),
        *("duplicate-address", "duplicate-mac", "duplicate-pod-cidr", "backend-missing"),
        "gateway-twice",
        *("tunnel-address", "tunnel-mac", "tunnel-mtu", "bridge-mtu", "gateway-missing"),
        *("unplugged", "learned-route-missing", "wrong-learned-route"),
        *("session-down", "session-waiting", "gateway-barred"),
        *("wrong-policy", "wrong-affinity", "wrong-refusal"),
        "balancer-kept",
        "link-not-slow",  # of a scenario with links: tests/e2e/test_slow_links.py
        # of clusters: tests/machines/cluster/test_observed_software.py
        *("runtime-down", "proxy-stopped", "flanneld-down", "wrong-subnet", "cni-config-missing"),
        *("certificate-expired", "disk-full", "dns-scaled-down", "cni-policy-dropped"),
        *("felix-down", "wrong-pool", "wrong-encapsulation", "wrong-as"),
        # of a logical network: tests/unit/explain and tests/netns
        *("logical-port", "logical-route", "port-unbound", "tunnel-end-missing"),
        *("balancer-missing", "balancer-stale", "balancers-missing"),
    }
    kinds = set(every_kind()) - {kind.name for kind in OWN_KINDS}
    assert kinds - elsewhere == {way["kind"] for way in WAYS} - {""}


def test_an_unanswered_query_is_reported_with_the_reason() -> None:
    text = WORKER1.replace("@@@= 0\n\n@@@ forwarding", "@@@= absent ip\n\n@@@ forwarding")
    assert dict(read_facts(text, "").absent)["proxy"] == "there is no 'ip'"
    (unread,) = read_facts(text, "").unread
    assert (unread.part, unread.reason) == ("proxy", "there is no 'ip'")
    bad = WORKER1.replace('[{"ifindex"', '[{"ifindex', 1)
    assert "cannot be read" in dict(read_facts(bad, "").absent)["address"]


def test_a_program_that_no_check_needs_may_be_missing() -> None:
    text = re.sub(r"(@@@ queues\n).*?@@@= 0\n", r"\1@@@= absent tc\n", WORKER1, flags=re.DOTALL)
    assert dict(read_facts(text, "").absent)["queues"] == "there is no 'tc'"
    assert not read_facts(text, "").unread


def test_a_program_that_is_missing_is_no_question_that_failed() -> None:
    text = re.sub(r"(@@@ nftables\n).*?@@@= 0\n", r"\1@@@= absent nft\n", WORKER1, flags=re.DOTALL)
    (unread,) = read_facts(text, "").unread
    assert (unread.reason, unread.installed) == ("there is no 'nft'", False)


@pytest.mark.parametrize("at", range(0, WORKER1.index("\n@@@ end"), 997))
def test_answers_that_were_cut_off_anywhere_are_no_facts(at: int) -> None:
    with pytest.raises(BrokenError, match="cut off"):
        read_facts(WORKER1[:at], "")


def test_a_failing_tool_is_reported_with_its_own_message() -> None:
    text = WORKER1.replace("@@@= 0\n\n@@@ iptables", "@@@= 1\n\n@@@ iptables")
    complaint = "\n@@@ nftables\nError: Could not process rule: Operation not permitted\n"
    why = dict(read_facts(text, complaint).absent)["nftables"]
    assert why == "exit code 1: Error: Could not process rule: Operation not permitted"
    assert read_facts(text, complaint).unread == (Unread("nftables", why),)


@pytest.mark.parametrize("name", sorted(OF_KERNEL - {"iptables-legacy"}))
def test_a_question_that_failed_is_no_difference(name: str) -> None:
    start = WORKER1.index(f"@@@ {name}\n")
    end = WORKER1.index("\n@@@= ", start)
    seen = read_facts(f"{WORKER1[:start]}@@@ {name}\n\n@@@= 137{WORKER1[end + 7 :]}", "")
    assert differences(WORKER, seen) == ()
    assert [unread.part for unread in seen.unread] == [name]


def test_names_and_macs_that_kubernetes_chose_are_no_difference() -> None:
    text = WORKER1.replace('"ifname":"veth1"', '"ifname":"veth2f4c01"')
    text = text.replace("0a:58:0a:f4:01:01", "6e:12:aa:00:00:01")
    assert differences(WORKER, read_facts(text, ""), by="kubernetes") == ()


def test_a_tunnels_mac_is_taken_from_the_node_whose_it_is() -> None:
    whole = intent("overlay")
    chosen = "7a:00:00:00:00:02"
    own = made_items.changed(HEALTHY.items, make_attribute("flannel.4096", "address", chosen))
    bound = with_chosen_macs(whole, {"worker1": replace(HEALTHY, items=own)})
    for machine in bound.machines:
        macs = {entry.remote: entry.mac for entry in machine.forwarding}
        if machine.name != "worker1" and machine.tunnel:
            assert macs["10.9.176.11"] == chosen
    assert bound.machine("worker1").tunnel.mac == chosen


@pytest.mark.room
def test_entries_with_a_peers_old_mac_are_reported() -> None:
    whole = intent("overlay")
    peer = replace(WORKER.tunnel, mac="7a:00:00:00:00:03")
    observed = {
        "worker1": HEALTHY,
        "worker2": NodeFacts("linux", "", items=Items.of(make_tunnel(peer))),
    }
    differing = compare_lab(whole, observed, by="kubernetes")
    kinds = {difference.kind for difference in differing if difference.node == "worker1"}
    assert kinds == {"stale-neighbour", "entry-missing"}


def test_real_kube_proxys_rules_are_judged_as_the_labs_are() -> None:
    rules = json.dumps(json.loads((CASES / "kube-proxy-nftables.json").read_text()))
    start, end = WORKER1.index("@@@ nftables\n"), WORKER1.index("\n@@@ iptables")
    seen = read_facts(f"{WORKER1[:start]}@@@ nftables\n{rules}\n\n@@@= 0\n{WORKER1[end:]}", "")
    assert dict(seen.absent) == {}
    translation = WORKER.translation
    served = tuple(service for service in translation.services if service.address == "10.96.0.22")
    ports = tuple(
        replace(one, ports=tuple(replace(port, node_port=30000) for port in one.ports))
        for one in served
    )
    machine = replace(WORKER, translation=replace(translation, services=ports))
    found = [
        (difference.kind, difference.object)
        for difference in differences(machine, seen, by="kubernetes")
    ]
    assert found == [("masquerade-missing", "packets of 10.244.1.0/24 that leave the lab")]


def test_services_that_kube_proxy_has_chains_for_come_back_when_it_is_ended() -> None:
    translations = Translations("nftables", (), HEALTHY.translations.masquerades, marked=True)
    stranded = replace(HEALTHY, translations=replace(translations, stranded=True))
    untouched = replace(HEALTHY, translations=translations)
    (emptied,) = differences(WORKER, stranded, by="kubernetes")
    (missing,) = differences(WORKER, untouched, by="kubernetes")
    assert emptied.kind == missing.kind == "service-rules-missing"
    assert "/etc/protocols" in emptied.observed
    told = emptied.fixed_by("overlay")
    assert told == "lab exec overlay worker1 -- pkill -x kube-proxy"
    assert missing.observed == "nothing is translated at all"
    assert missing.mends != emptied.mends


def test_risen_counters_are_listed_largest_first() -> None:
    def count(**values: int) -> tuple[DeviceCounter, ...]:
        return tuple(
            DeviceCounter(device, "sent", "packets", value) for device, value in values.items()
        )

    before = NodeFacts("linux", "", counters=count(a=1, b=1, c=9))
    after = replace(before, counters=count(a=2, b=9, c=9, d=3))
    assert find_rises(before, after) == count(b=8, d=3, a=1)


@pytest.mark.room
def test_a_kubernetes_pod_with_a_duplicate_address_is_named() -> None:
    whole = intent("overlay")
    pod, other = (pod for pod in whole.machine("worker1").pods if pod.role == "probe")

    def inside(space: str, mac: str, *addresses: str) -> PodFacts:
        card = LinkFacts("eth0", "veth", mac, addresses, 1450, up=True, carrier=True)
        return PodFacts(space, Items.of(make_device_items(card)), None)

    there = (
        inside("cni-1", "0a:00:00:00:00:01", pod.address, other.address),
        inside("cni-2", "0a:00:00:00:00:02", other.address),
    )
    facts = {"worker1": NodeFacts("linux", "", pods=there)}
    (difference,) = (
        one for one in compare_lab(whole, facts, by="kubernetes") if one.kind.startswith("dup")
    )
    bare = other.address.partition("/")[0]
    assert (difference.kind, difference.node) == ("duplicate-address", "worker1")
    assert difference.object == f"address {bare} of pod {pod.name}"
    assert difference.observed == f"also pod {other.name} of worker1"


VRRP = intent("upstream-vrrp")


def held(*virtual: str, machine: str = "master1") -> NodeFacts:
    card = VRRP.machine(machine).interfaces[1]
    addresses = (*card.addresses, *virtual)
    link = LinkFacts(card.name, "", card.mac, addresses, card.mtu, up=True, carrier=True)
    absent = tuple((name, "not asked") for name in ("route", "neighbour"))
    return NodeFacts("linux", "", items=Items.of(make_device_items(link)), absent=absent)


def test_one_holder_is_followed_wherever_it_is() -> None:
    observed = {"master1": held(), "master3": held("10.160.11.1/24", machine="master3")}
    bound = with_held_gateways(VRRP, observed)
    assert [gateway.holder for gateway in bound.gateways] == ["master3", "master1"]
    assert bound.machine("master3").interfaces[1].virtual == ("10.160.11.1/24",)


def test_with_no_holder_or_two_the_intent_stays() -> None:
    two = {name: held("10.160.11.1/24", machine=name) for name in ("master1", "master2")}
    for observed in ({"master1": held()}, two):
        assert with_held_gateways(VRRP, observed) == VRRP


def test_a_gateway_without_a_holder_is_reported_for_the_machine_that_should_hold_it() -> None:
    machine = VRRP.machine("master1")
    found = [
        difference
        for difference in differences(machine, held("10.160.4.1/24"))
        if "gateway" in difference.object
    ]
    assert [(difference.kind, difference.object, difference.observed) for difference in found] == [
        ("gateway-missing", "gateway 10.160.11.1/24", "held by no machine")
    ]
    whole = differences(machine, held("10.160.4.1/24", "10.160.11.1/24"))
    assert not [difference for difference in whole if difference.kind == "gateway-missing"]
