"""What a difference has to do with is decided by its fields."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_differences import at_place, of_state
from seen_machines import cell, lab

from lab.explain.bracket import Bracket
from lab.explain.deviations import is_in_doubt
from lab.explain.explainer import PathFindings
from lab.explain.kernel import KernelReport, read_kernel_reports
from lab.explain.paths import flow_of
from lab.explain.topics import Topic, alters, topics_of
from lab.facts.difference import Difference
from lab.facts.ruleset import compare_rulesets, read_ruleset
from lab.facts.translations import Barrier
from lab.providers.capture import KernelTrace
from lab.topology.subject import (
    AddressSubject,
    DeviceSubject,
    EntrySubject,
    FlowsSubject,
    QueueSubject,
    SetSubject,
    SettingSubject,
    Subject,
)
from lab.topology.walk import walk

ADDRESS = AddressSubject("10.9.176.11/24", "eth0")
ENTRY = EntrySubject("0a:58:0a:f4:02:00", "flannel.4096")
FLOWS = FlowsSubject("br-int")
DROPPING = Barrier(FLOWS, "priority=65535 actions=drop")


@pytest.mark.parametrize("change", ["gone", "new", "changed"])
def test_packets_take_another_way_without_an_address(change: str) -> None:
    assert alters(of_state(ADDRESS, change=change))


@pytest.mark.parametrize("attribute", ["address", "mac"])
def test_the_mac_of_a_device_is_named_where_the_kernel_speaks_of_macs(attribute: str) -> None:
    word = KernelReport("worker1", "frames for another MAC", frozenset[Topic]({"macs"}))
    difference = at_place("worker1", DeviceSubject("eth0"), attribute=attribute)
    assert word.names(difference)
    assert not word.names(replace(difference, attribute="mtu"))
    assert not word.names(replace(difference, place="worker2"))


def test_a_device_that_is_set_down_is_named_where_the_kernel_has_no_route() -> None:
    missing = KernelReport("worker1", "no route to send by", frozenset[Topic]({"routes"}))
    down = at_place("worker1", DeviceSubject("eth0"), attribute="up")
    assert missing.names(down)
    assert not missing.names(replace(down, attribute="carrier"))


def test_a_forwarding_entry_has_nothing_to_do_with_whether_a_machine_forwards() -> None:
    off = KernelReport("worker1", "forwarding is off", frozenset[Topic]({"forwarding"}))
    assert topics_of(of_state(ENTRY)) == {"entries"}
    assert not off.names(at_place("worker1", ENTRY))
    assert off.names(at_place("worker1", SettingSubject("ipv4/ip_forward")))


@pytest.mark.parametrize(
    ("kind", "element", "expected"),
    [("set", "10.0.0.2", False), ("map", "10.0.0.2 : jump mark-for-masquerade", True)],
)
def test_a_set_changes_packets_by_what_is_in_it_whatever_its_name(
    kind: str, element: str, expected: bool
) -> None:
    made, now = (
        read_ruleset(
            f"table ip mine {{\n\t{kind} dnats {{\n\t\telements = {{ {text} }}\n\t}}\n}}\n"
        )
        for text in ("10.0.0.1", f"10.0.0.1, {element}")
    )
    (difference,) = compare_rulesets(made, now)
    assert difference.subject == SetSubject(kind, "ip", "mine", "dnats")
    assert alters(difference) is expected


def test_drops_of_a_queue_name_nothing_but_its_device() -> None:
    (word,) = read_kernel_reports(
        [
            KernelTrace(
                "worker1",
                before=QUEUE.format(dropped=1),
                after=QUEUE.format(dropped=9),
            )
        ]
    )
    assert (word.device, word.topics) == ("veth1", frozenset())
    names = {name: word.names(at_place("worker1", subject)) for name, subject in BESIDE.items()}
    assert names == {
        "its device": True,
        "its queue": True,
        "another's queue": False,
        "entry": False,
    }


QUEUE = """\
qdisc pfifo 8001: dev veth1 root refcnt 2 limit 0p
 Sent 90 bytes 1 pkt (dropped {dropped}, overlimits 0 requeues 0)
"""
BESIDE: dict[str, Subject] = {
    "its device": DeviceSubject("veth1"),
    "its queue": QueueSubject("queue", "root", "veth1"),
    "another's queue": QueueSubject("queue", "root", "eth0"),
    "entry": ENTRY,
}


def finding(barrier: Barrier | None) -> Difference:
    difference = at_place("worker1", FLOWS)
    return replace(difference, kind="packets-barred", barrier=barrier, hop=0)


@pytest.mark.parametrize(("barrier", "doubtful"), [(DROPPING, True), (None, False)])
def test_a_flow_that_drops_is_in_doubt_where_the_kernel_reports_another_drop(
    barrier: Barrier | None,
    doubtful: bool,
) -> None:
    """As a rule is: it would be named if it had dropped the probe."""
    word = KernelReport("worker1", "no route", frozenset[Topic]({"routes"}))
    bracket = Bracket("lost", 0, frozenset({"worker1"}), kernel=(word,))
    path = walk(lab("overlay")[1], flow_of(cell("overlay", CELL)))[0]
    at_machine = next(number for number, hop in enumerate(path.hops) if hop.place == "worker1")
    difference = replace(finding(barrier), hop=at_machine)
    assert is_in_doubt(PathFindings(path, (difference,)), bracket) is doubtful


CELL = "pod-pod/worker1-p1/win1-p1/tcp-small"
