"""What the kernel says of a probe: rules by handle, and counters that rose."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_differences import at_place
from seen_machines import lab

from lab.explain.bracket import AT, BEYOND, UNREPORTED, Bracket
from lab.explain.capture.probe import choose_capture_points
from lab.explain.capture.trace import Change, Point
from lab.explain.deviations import rank_finding
from lab.explain.kernel import TABLE, read_kernel_reports, route_questions, trace_table
from lab.facts.difference import Difference
from lab.providers.capture import KernelTrace, PacketDrop, RouteQuestion, Tap
from lab.topology.path import Flow
from lab.topology.subject import (
    AddressSubject,
    ChainSubject,
    DeviceSubject,
    FirewallSubject,
    PodSubject,
    QueueSubject,
    RouteSubject,
    RuleSubject,
    SetSubject,
    SettingSubject,
    Subject,
    TableSubject,
    XfrmSubject,
)
from lab.topology.walk import walk

# Printed by nft 1.0.6 on Linux 6.18, the packet's fields cut.
TRACED = f"""\
trace id cd6e66f7 ip {TABLE} prerouting packet: iif "eth0" ip saddr 10.244.1.4 ip daddr 10.244.3.4
trace id cd6e66f7 ip {TABLE} prerouting rule ip saddr 10.0.0.1 meta nftrace set 1 # handle 6 \
(verdict continue)
trace id cd6e66f7 ip {TABLE} prerouting policy accept
trace id cd6e66f7 ip mark c rule meta mark set 0x00000077 # handle 2 (verdict continue)
trace id cd6e66f7 ip mark c policy accept
trace id cd6e66f7 inet f c packet: iif "eth0" ip saddr 10.244.1.4 ip daddr 10.244.3.4
trace id cd6e66f7 inet f c rule tcp dport 8080 drop comment "x" # handle 3 (verdict drop)
trace id acbdf025 inet f c rule tcp dport 8080 drop comment "x" # handle 3 (verdict drop)
trace id acbdf026 ip shut all policy drop
"""
COUNTERS = """\
Ip: Forwarding DefaultTTL InHdrErrors InAddrErrors OutNoRoutes
Ip: 1 64 {header} {address} 5
TcpExt: SyncookiesSent IPReversePathFilter
TcpExt: 0 {filter}
XfrmOutPolBlock         \t{blocked}
qdisc pfifo 8001: dev veth1 root refcnt 2 limit 0p
 Sent 90 bytes 1 pkt (dropped {queue}, overlimits 0 requeues 0)
qdisc noqueue 0: dev lo root refcnt 2
 Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0)
"""
NONE = {"header": 3, "address": 2, "filter": 0, "blocked": 7, "queue": 1}


def deviation(subject: Subject, place: str = "worker1") -> Difference:
    return at_place(place, subject)


def test_the_rule_that_drops_is_named_by_its_handle_once_and_comes_first() -> None:
    reports = read_kernel_reports([KernelTrace("w", TRACED)])
    assert [(report.sentence, report.drops) for report in reports] == [
        ("w: table inet f chain c dropped it: rule 'tcp dport 8080 drop comment \"x\"' (handle 3)",
         True),
        ("w: table ip shut chain all dropped it by its policy", True),
        ("w: table ip mark chain c took it: rule 'meta mark set 0x00000077' (handle 2)", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    ["ct zone set 5", "meta mark set 0x00000077", "notrack", "dnat to 10.244.1.9", "accept"],
)
def test_a_rule_that_changes_the_probe_is_named(change: str) -> None:
    line = f"trace id 1 ip mine c rule {change} # handle 2 (verdict continue)\n"
    told = [word.sentence for word in read_kernel_reports([KernelTrace("w", line)])]
    took = f"w: table ip mine chain c took it: rule '{change}' (handle 2)"
    assert told == ([] if change == "accept" else [took])


@pytest.mark.parametrize(
    ("rises", "said", "about"),
    [
        (
            {"header": 5},
            "header or TTL wrong (Ip InHdrErrors rose by 2)",
            SettingSubject("ipv4/ip_default_ttl"),
        ),
        (
            {"address": 4},
            "its destination is not local, and forwarding is off (Ip InAddrErrors rose by 2)",
            SettingSubject("ipv4/ip_forward"),
        ),
        ({"address": 4}, "(Ip InAddrErrors rose by 2)", RouteSubject("10.244.1.4", "local")),
        ({"filter": 1}, "IPReversePathFilter rose by 1", SettingSubject("ipv4/conf/all/rp_filter")),
        (
            {"blocked": 9},
            "an xfrm policy blocks what is sent",
            XfrmSubject("policy", "src 0.0.0.0/0"),
        ),
        ({"queue": 4}, "queue pfifo of veth1 dropped 3", QueueSubject("queue", "root", "veth1")),
    ],
)
def test_a_counter_that_rose_speaks_of_its_part_of_the_kernel(
    rises: dict[str, int], said: str, about: Subject
) -> None:
    before, after = COUNTERS.format(**NONE), COUNTERS.format(**{**NONE, **rises})
    (word,) = read_kernel_reports([KernelTrace("worker1", "", before, after)])
    assert said in word.sentence
    assert word.names(deviation(about))
    assert not word.names(deviation(about, place="worker2"))
    assert not word.names(deviation(TableSubject("ip", "other")))


@pytest.mark.parametrize(
    ("thing", "named"),
    [
        (TableSubject("inet", "f"), True),
        (ChainSubject("inet", "f", "c"), True),
        (ChainSubject("inet", "f", "other"), False),
        (ChainSubject("inet", "f", "c2"), False),
        (TableSubject("inet", "f2"), False),
        (SetSubject("map", "inet", "f", "services"), False),
    ],
)
def test_a_rule_speaks_of_its_own_chain_or_of_the_table_as_a_whole(
    thing: Subject, named: bool
) -> None:
    word = read_kernel_reports([KernelTrace("worker1", TRACED)])[0]
    assert word.names(deviation(thing)) == named


def test_unchanged_counters_are_not_reported() -> None:
    text = COUNTERS.format(**NONE)
    assert read_kernel_reports([KernelTrace("worker1", "", text, text)]) == ()


def test_of_two_differences_in_one_place_the_one_that_the_kernel_names_is_first() -> None:
    words = read_kernel_reports([KernelTrace("worker1", TRACED)])
    at = Point(Tap("worker1", "eth0"), "out")
    change = Change(None, at, "its source is wrong")
    bracket = Bracket("lost", 0, frozenset({"worker1"}), kernel=words, change=change)
    stray, marks, drops = (
        deviation(TableSubject(*one)) for one in (("ip", "stray"), ("ip", "mark"), ("inet", "f"))
    )
    path = walk(lab("overlay")[1], Flow("worker1-p1", "10.244.1.5", 8080, "tcp"))[0]
    ordered = sorted(
        [stray, marks, drops], key=lambda difference: rank_finding(difference, path, bracket)
    )
    assert ordered == [drops, marks, stray]
    assert bracket.kernel_rank(stray) == UNREPORTED
    elsewhere = replace(bracket, loss_places=frozenset({"win1"}))
    assert [elsewhere.rank(difference) for difference in (drops, marks, stray)] == [
        AT,
        BEYOND,
        BEYOND,
    ]
    assert elsewhere.dropping() == {"worker1"}
    unchanged = replace(bracket, change=None)
    assert [unchanged.kernel_rank(difference) for difference in (drops, marks)] == [0, UNREPORTED]
    assert bracket.dropped()[0].startswith("worker1: table inet f chain c dropped it")


def test_what_marks_the_probe_is_a_table_that_its_owner_takes_with_it() -> None:
    table = trace_table("udp", ["10.244.3.4", "10.244.1.4"])
    assert table.startswith(f"table ip {TABLE} {{ flags owner; chain prerouting")
    assert "ip daddr { 10.244.1.4, 10.244.3.4 } meta l4proto udp meta nftrace set 1" in table
    assert "@th,312,8 17 @th,368,32 0xaf40304 meta nftrace set 1" in table  # inside VXLAN


BY_CARD = RouteQuestion("10.244.1.4", "10.244.3.4", "tcp", 8080, False, "cni0", "flannel.4096")


@pytest.mark.parametrize(
    ("answer", "drops"),
    [
        ("10.244.3.4 from 10.244.1.4 via 10.244.3.0 dev flannel.4096 \n    cache iif cni0", None),
        ("10.244.3.4 from 10.244.1.4 via 10.9.176.1 dev eth0 \n    cache iif cni0", False),
        ("RTNETLINK answers: Network is unreachable", True),
    ],
)
def test_a_missing_or_different_route_is_reported(answer: str, drops: bool | None) -> None:
    words = read_kernel_reports([KernelTrace("worker1", routes=((BY_CARD, answer),))])
    assert [word.drops for word in words] == ([] if drops is None else [drops])
    for word in words:
        assert "'ip route get 10.244.3.4 from 10.244.1.4 iif cni0 ipproto tcp dport 8080'" in (
            word.sentence
        )
        assert word.names(deviation(RuleSubject("70", "from all lookup 70")))
        assert word.names(deviation(AddressSubject("10.244.1.4/24", "eth0")))
        assert not word.names(deviation(ChainSubject("ip", "kube-proxy", "services")))


def test_routes_are_asked_where_packets_are_sent_on_and_not_where_they_are_translated() -> None:
    _, intent, matrix = lab("overlay")
    cell = matrix.find("pod-service/worker1-p1/to-win1-p1/tcp-small")
    assert cell is not None
    asked = route_questions(choose_capture_points(intent, cell).ways)
    back = next(question for question in asked["win1"] if question.answer)
    assert (back.arrives, back.leaves) == ("cni0", "flannel.4096")
    assert not [question for question in asked["worker1"] if question.target == cell.target.address]
    (first,) = asked["worker1-p1"]
    assert (first.arrives, first.leaves, first.target) == ("", "eth0", cell.target.address)


LISTENS = replace(deviation(PodSubject("win1-p1")), attribute="listening")
RULE = deviation(FirewallSubject(rule="x"))
SMALL = replace(deviation(DeviceSubject("eth0", "card")), attribute="mtu")
OTHER_NETWORK = replace(deviation(DeviceSubject("flannel.4096", "tunnel")), attribute="vni")


@pytest.mark.parametrize(
    ("reason", "meaning", "about"),
    [
        # texts in public logs, and names of PKTMON_DROP_REASON
        ("INET: transport endpoint was not found", "nothing listens on that port", LISTENS),
        ("INET_EndpointNotFound", "nothing listens on that port", LISTENS),
        ("Port unreachable", "nothing listens on that port", LISTENS),
        ("Inspection drop", "the Windows firewall or another filter", RULE),
        ("INET: checksum is invalid", "its checksum is wrong", None),
        ("MTU Mismatch", "larger than the next link takes", SMALL),
        ("VirtualSubnetId", "of another virtual network", OTHER_NETWORK),
        ("NL_NoRoute", "no route to send by", deviation(RouteSubject("10.244.1.0/24"))),
        ("Filtered VLAN", "", None),
    ],
)
def test_a_component_of_windows_reports_why_it_drops(
    reason: str, meaning: str, about: Difference | None
) -> None:
    drop = PacketDrop("tcpip.sys", "inbound", 1, reason)
    (word,) = read_kernel_reports([KernelTrace("win1", drops=(drop,))])
    told = f"win1: tcpip.sys dropped 1 inbound packet of it: '{reason}'"
    assert word.sentence == told + (f" ({meaning})" if meaning else "")
    assert (word.drops, word.traced) == (True, True)
    assert about is None or word.names(replace(about, place="win1"))
    assert not word.names(deviation(QueueSubject("queue", "root", "eth0"), "win1"))


@pytest.mark.parametrize(
    "reason", ["INET: Rst", "INET_DuplicateSegment", "NL_NotLocallyDestined", "FailedPacketFilter"]
)
def test_late_segments_and_flooded_frames_accuse_no_component(reason: str) -> None:
    assert not read_kernel_reports(
        [KernelTrace("win1", drops=(PacketDrop("a", "inbound", 1, reason),))]
    )
