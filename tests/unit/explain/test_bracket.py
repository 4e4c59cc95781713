"""What the two points between which a probe is lost say of everything that differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import pytest
from made_differences import at_place, of_state
from seen_machines import cell, lab, whole

from lab.explain.bracket import AT, BEFORE, BEYOND, NEXT, Bracket, find_bracket
from lab.explain.capture.conclusion import Conclusion, Kind
from lab.explain.capture.files import Captured
from lab.explain.capture.packets import Matched, Unanswered
from lab.explain.capture.trace import NOTHING, Change, Point, Row, Trace
from lab.explain.deviations import rank_finding, rank_place
from lab.explain.lab_queries import LabQueries
from lab.explain.paths import flow_of
from lab.explain.stages import explain_cells
from lab.facts.difference import DEVIATION, Difference
from lab.matrix.judge import expect
from lab.providers.capture import Tap
from lab.providers.provider import Outcome
from lab.topology.intent import Intent, KubernetesIntent
from lab.topology.routing import bare
from lab.topology.subject import (
    ApiSubject,
    CachedMtuSubject,
    ChainSubject,
    DeviceSubject,
    IpSetSubject,
    QueueSubject,
    RouteSubject,
    ServiceSubject,
    SettingSubject,
    Subject,
    TableSubject,
    XfrmSubject,
)
from lab.topology.walk import walk

INTENT = lab("overlay")[1]
CELL = cell("overlay", "pod-pod/worker1-p1/win1-p1/tcp-small")
ON_CLUSTER = replace(
    INTENT, kubernetes=KubernetesIntent("1.36", "10.244.0.0/16", "10.96.0.0/12", "10.96.0.10")
)
PATH = walk(INTENT, flow_of(CELL))[0]
PLACES = ("worker1-p1", "worker1", "win1", "win1-p1")
OUTCOME = Outcome(0, "timeout", "connect: no reply", None, (), None, 0.0)


def row(place: str, device: str) -> Row:
    return Row(Tap(place, device), place, "in", True, True, NOTHING, NOTHING)


THERE = tuple(row(place, "eth0") for place in PLACES)
BACK = THERE[::-1]


def captured(kind: Kind, last: Row | None, missing: Row | None, *, asked: str = "") -> Captured:
    way: Literal["question", "answer"] = "answer" if kind.startswith("answer-") else "question"
    conclusion = Conclusion(
        kind,
        "said",
        Point(last.tap, "in") if last else None,
        Point(missing.tap, "in") if missing else None,
        way,
    )
    trace = Trace((), THERE, BACK, 0, None, (), ())
    unanswered = (Unanswered(Tap("worker1", "eth0"), asked, 1),) if asked else ()
    return Captured(
        CELL, expect(CELL, ()), "fail", "", OUTCOME, trace, conclusion, (),
        Matched((), (), unanswered), "",
    )  # fmt: skip


MINE = TableSubject("ip", "mine")


def differs(place: str, subject: Subject = MINE, seen: str = "drop") -> Difference:
    return at_place(place, subject, seen)


def ranks(bracket: Bracket) -> list[int]:
    return [bracket.rank(differs(place)) for place in PLACES]


@pytest.mark.parametrize(
    ("kind", "last", "missing", "expected"),
    [
        ("question-lost", THERE[1], THERE[2], [BEFORE, AT, AT, NEXT]),
        ("question-lost", THERE[0], THERE[0], [AT, NEXT, BEYOND, BEYOND]),
        ("answer-lost", BACK[0], BACK[1], [BEFORE, NEXT, AT, AT]),
        ("unsent", None, None, [AT, NEXT, NEXT, NEXT]),
        ("answered", None, None, [AT] * 4),
    ],
)
def test_places_are_ranked_by_their_distance_from_the_loss(
    kind: Kind, last: Row | None, missing: Row | None, expected: list[int]
) -> None:
    assert ranks(find_bracket(captured(kind, last, missing), INTENT)) == expected


def test_what_was_passed_is_a_cause_only_where_it_changes_packets() -> None:
    bracket = find_bracket(captured("question-lost", THERE[1], THERE[2]), INTENT)
    assert not bracket.allows(differs("worker1-p1"))
    assert bracket.allows(differs("worker1-p1", SettingSubject("ipv4/ip_default_ttl"), "1"))
    assert bracket.allows(differs("worker1-p1", seen="masquerade"))
    behind = find_bracket(captured("question-lost", THERE[0], THERE[0]), INTENT)
    assert not behind.allows(differs("win1-p1", seen="masquerade"))


def test_what_was_changed_on_the_way_comes_before_where_it_is_lost() -> None:
    lost = captured("answer-lost", BACK[0], BACK[1])
    change = Change(Point(THERE[0].tap, "in"), Point(THERE[1].tap, "out"), "its source is wrong")
    lost = replace(lost, conclusion=replace(lost.conclusion, change=change))
    assert ranks(find_bracket(lost, INTENT)) == [AT, AT, NEXT, NEXT]


def test_the_owner_of_an_unanswered_address_is_looked_at_next() -> None:
    address = next(
        bare(pod.address)
        for machine in INTENT.machines
        for pod in machine.pods
        if pod.name == "win1-p1"
    )
    lost = captured("question-lost", THERE[0], THERE[1], asked=address)
    assert ranks(find_bracket(lost, INTENT))[-1] == NEXT


def test_a_setting_of_arp_is_accused_only_where_somebody_did_not_answer() -> None:
    arp = differs("win1", SettingSubject("ipv4/conf/all/arp_filter"), "1")
    heard = find_bracket(captured("question-lost", THERE[1], THERE[2]), INTENT)
    silent = find_bracket(captured("question-lost", THERE[1], THERE[2], asked="192.0.2.1"), INTENT)
    assert not heard.allows(arp)
    assert silent.allows(arp)


@pytest.mark.parametrize(
    ("at", "accused"), [("worker1", "worker1"), ("win1", "win1"), (None, None)]
)
def test_of_two_differences_the_one_at_the_loss_is_the_cause(
    at: str | None, accused: str | None
) -> None:
    stray = of_state(MINE, "drop", "nft delete", made="no such table")
    bracket = Bracket("lost", 0, frozenset({at}), passed_places=PLACES) if at else None
    asked: list[tuple[str, ...]] = []

    def compare(places: Sequence[str]) -> Mapping[str, Sequence[Difference]]:
        asked.append(tuple(places))
        return {name: [stray] for name in ("worker1", "win1") if name in places}

    explanation = explain_cells(
        [CELL],
        (),
        INTENT,
        LabQueries(
            lambda probes, _: {probe.key: replace(OUTCOME, key=probe.key) for probe in probes},
            lambda scope: {name: facts for name, facts in whole(INTENT).items() if name in scope},
            lambda _: (),
            compare,
            lambda _: bracket,
        ),
    )
    assert (explanation.finding.node if explanation.finding else None) == accused
    if accused is None:
        assert {difference.node for difference in explanation.elsewhere} == {"worker1", "win1"}
    else:
        assert asked == [(accused,)]


@pytest.mark.room
@pytest.mark.parametrize(
    ("intent", "kinds"),
    [(ON_CLUSTER, [DEVIATION, "pod-not-listening"]), (INTENT, ["pod-not-listening"])],
)
def test_on_a_cluster_what_differs_at_a_pod_comes_before_the_end_of_its_container(
    intent: Intent, kinds: list[str]
) -> None:
    asked = cell("overlay", "pod-service/worker1-p1/to-master-p1/udp-small")
    facts = whole(INTENT)
    pods = [
        replace(pod, listening=frozenset()) if pod.name == "master-p1" else pod
        for pod in facts["master"].pods or ()
    ]
    facts["master"] = replace(facts["master"], pods=tuple(pods))
    stray = of_state(XfrmSubject("policy", "dir out"), "block")
    explanation = explain_cells(
        [asked],
        (),
        intent,
        LabQueries(
            lambda probes, _: {probe.key: replace(OUTCOME, key=probe.key) for probe in probes},
            lambda scope: {name: one for name, one in facts.items() if name in scope},
            lambda _: (),
            lambda places: {name: [stray] for name in places if name == "master-p1"},
            lambda _: Bracket(
                "lost", 0, frozenset({"master-p1"}), passed_places=("master", "worker1")
            ),
        ),
    )
    assert [finding.kind for finding in explanation.explained.findings] == kinds


def test_a_card_without_its_other_end_comes_after_that_end() -> None:
    bracket = Bracket("lost", 0, frozenset({"worker1-p1"}), frozenset({"worker1"}))
    dark = replace(differs("worker1-p1", DeviceSubject("eth0"), "dark"), attribute="carrier")
    down = replace(
        differs("worker1", DeviceSubject("veth1"), "not up"), kind="link-down", attribute="up"
    )
    for difference in (dark, replace(dark, kind="link-down")):
        assert min([difference, down], key=lambda one: rank_finding(one, PATH, bracket)) == down


def test_what_serves_all_machines_is_as_near_as_where_the_packet_meets_it() -> None:
    bracket = Bracket("lost", 0, frozenset({"worker1-p1", "worker1"}))
    scaled = replace(
        differs("master", ApiSubject("Deployment", "", "coredns")), kind="dns-scaled-down", hop=0
    )
    refused = replace(differs("worker1", ServiceSubject("kube-dns")), kind="service-missing", hop=2)
    assert [rank_place(difference, PATH, bracket) for difference in (scaled, refused)] == [AT, AT]
    assert rank_place(replace(scaled, hop=-1), PATH, bracket) == BEYOND


def test_of_what_was_passed_the_last_place_comes_first() -> None:
    bracket = Bracket("lost", 0, frozenset({"worker2"}), passed_places=("worker2-p1", "worker1"))
    far, near = (at_place(place, RouteSubject("default")) for place in ("worker1", "worker2-p1"))
    assert sorted([far, near], key=lambda difference: rank_finding(difference, PATH, bracket)) == [
        near,
        far,
    ]


def test_of_two_devices_the_one_that_was_never_passed_comes_first() -> None:
    missing = Point(Tap("worker1", "veth1"), "out")
    bracket = Bracket("lost", 0, frozenset({"worker1"}), missing=missing)
    bridge, port = (differs("worker1", DeviceSubject(name), "x") for name in ("cni0", "veth1"))
    for pair in ([bridge, port], [port, bridge]):
        assert min(pair, key=lambda each: rank_finding(each, PATH, bracket)) == port


def test_what_names_only_another_protocol_comes_last_but_where_a_tunnel_has_it() -> None:
    bracket = Bracket("lost", 0, frozenset({"worker1", "worker1-p1"}))
    for place, first in (("worker1-p1", "queue"), ("worker1", "table")):  # TCP in VXLAN, on UDP
        difference = at_place(place, TableSubject("ip", "x"), "udp drop")
        other = at_place(place, QueueSubject("queue", "root", "eth0"), "tbf")
        found = min([difference, other], key=lambda one: rank_finding(one, PATH, bracket))
        assert found.object.startswith(first)


@pytest.mark.parametrize(
    ("ports", "own"),
    [
        ("30000-30010", False),
        ("{ 80, 30000-30010 }", False),
        ("4789", True),  # of the tunnel
        ("8080", True),  # inside it
        ("{ 80, 8000-9000 }", True),
        ("32768-60999", True),  # answers go there
        ("!= 8080", True),
    ],
)
def test_a_rule_for_other_ports_comes_after_what_was_passed_before_the_loss(
    ports: str, own: bool
) -> None:
    bracket = Bracket("lost", 0, frozenset({"win1"}), passed_places=("worker1",))
    hook = "chain c { type filter hook prerouting priority raw; policy accept;"
    rule = f"meta l4proto {{ tcp, udp }} th dport {ports} counter drop"
    table = at_place("win1", TableSubject("ip", "x"), f"{hook} {rule}; }}")
    passed = replace(differs("worker1", DeviceSubject("flannel.4096")), kind="wrong-vni")
    first = min([table, passed], key=lambda difference: rank_finding(difference, PATH, bracket))
    assert (first == table) == own


@pytest.mark.parametrize(
    ("hook", "own"), [("output", False), ("input", False), ("forward", True), ("prerouting", True)]
)
def test_frames_that_stay_on_a_bridge_pass_no_chain_of_what_its_machine_takes_and_sends(
    hook: str, own: bool
) -> None:
    path = walk(INTENT, flow_of(cell("overlay", "pod-pod/worker1-p1/worker1-p2/tcp-small")))[0]
    bracket = Bracket("lost", 0, frozenset({"worker1"}), passed_places=("worker1-p1",))
    rules = f"chain c {{ type filter hook {hook} priority filter; policy drop; }}"
    table = at_place("worker1", TableSubject("bridge", "x"), rules)
    passed = at_place("worker1-p1", DeviceSubject("eth0"), attribute="noarp")
    first = min([table, passed], key=lambda difference: rank_finding(difference, path, bracket))
    assert (first == table) == own


def test_of_several_routes_the_one_that_the_probe_takes_comes_first() -> None:
    bracket = Bracket("lost", 0, frozenset({"worker1-p1"}))
    target = next(hop.packet.target for hop in PATH.request)
    wide = f"{target.rpartition('.')[0]}.0/24"
    ordered = sorted(
        (
            at_place("worker1-p1", RouteSubject(one))
            for one in ("default", "10.9.9.9", wide, target)
        ),
        key=lambda difference: rank_finding(difference, PATH, bracket),
    )
    routes = ["route to " + one for one in (target, wide, "default", "10.9.9.9")]
    assert [difference.object for difference in ordered] == routes


def test_a_set_that_no_rule_uses_is_no_cause() -> None:
    bracket = Bracket("lost", 0, frozenset({"worker1-p1"}))
    alone = at_place("worker1-p1", IpSetSubject("friends"), change="new")
    assert not bracket.allows(alone)
    assert bracket.allows(replace(alone, subject=IpSetSubject("friends", "10.0.0.0/8")))
    assert bracket.allows(replace(alone, change="changed"))


@pytest.mark.parametrize(
    ("place", "hook", "passed"),
    [
        ("worker1", "output", False),
        ("worker1", "input", False),
        ("worker1", "forward", True),
        ("worker1", "prerouting", True),
        ("worker1-p1", "output", True),
        ("worker1-p1", "forward", False),
    ],
)
def test_chain_at_a_hook_that_the_probe_does_not_pass_comes_last(
    place: str, hook: str, passed: bool
) -> None:
    path = walk(INTENT, flow_of(cell("overlay", "pod-pod/worker1-p1/worker1-p2/tcp-small")))[0]
    bracket = find_bracket(captured("question-lost", THERE[0], THERE[1]), INTENT)
    chain = differs(
        place,
        ChainSubject("ip", "limits", "c"),
        f"type filter hook {hook} priority 0; policy drop;",
    )
    other = differs(place, DeviceSubject("worker1-p1"), "without ARP")
    first = min([chain, other], key=lambda difference: rank_finding(difference, path, bracket))
    assert (first == chain) == passed


def test_path_mtu_that_is_still_known_is_named_after_what_limits_it() -> None:
    bracket = Bracket("lost", 0, frozenset({"worker1"}), frozenset({"win1"}))
    cached = differs("worker1", CachedMtuSubject(552), "learned from ICMP errors")
    device = differs("win1", DeviceSubject("veth1"), "552")
    ordered = sorted(
        [cached, device], key=lambda difference: rank_finding(difference, PATH, bracket)
    )
    assert ordered == [device, cached]
