"""Where counters say that packets were lost, and where they say nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pytest
from seen_machines import cell, lab

from lab._errors import BrokenError, LabError
from lab.explain.losses import find_losses
from lab.explain.paths import flow_of
from lab.facts.node import DeviceCounter, NodeFacts
from lab.topology.walk import walk

Name = tuple[str, Literal["received", "sent"], str]
Counts = Mapping[str, Mapping[Name, int] | LabError]
SENT: Name = ("eth0", "sent", "packets")
GOT: Name = ("eth0", "received", "packets")
DROPPED: Name = ("eth0", "received", "dropped")
PATH = walk(
    lab("overlay")[1], flow_of(cell("overlay", "pod-pod/worker1-p1/win1-p1/tcp-small"))
)[0]  # fmt: skip
"""From worker1's pod through the tunnel to win1's, and back."""
CARDS = [(at, hop.machine) for at, hop in enumerate(PATH.hops) if hop.kind == "card"]
"""The places of cards on the path: worker1's and win1's there, then back."""
SILENT = BrokenError("looking at 'win1'", "no answer")


def counted(machines: Counts) -> Mapping[str, NodeFacts | LabError]:
    return {
        name: machine
        if isinstance(machine, LabError)
        else NodeFacts(
            "linux",
            "",
            counters=tuple(DeviceCounter(*name, value) for name, value in machine.items()),
        )
        for name, machine in machines.items()
    }


def dropped(device: str) -> Name:
    return device, "received", "dropped"


QUIET: list[tuple[str, Counts, Counts]] = [
    *(
        (f"{sent} packets may be somebody else's", {"worker1": {SENT: 10}, "win1": {GOT: 500}},
         {"worker1": {SENT: 10 + sent}, "win1": {GOT: 500}})
        for sent in range(3)
    ),
    ("where anything arrived the network between carries",
     {"worker1": {SENT: 10}, "win1": {GOT: 500}}, {"worker1": {SENT: 40}, "win1": {GOT: 501}}),
    *(
        (f"{device} is not on the path", {"worker1": {dropped(device): 1}},
         {"worker1": {dropped(device): 8}})
        for device in ("veth99", "eth00")
    ),
    ("a machine that does not answer",
     {"worker1": {SENT: 10}}, {"worker1": {SENT: 16}, "win1": SILENT}),
    ("a machine that did not answer", {"worker1": {SENT: 10}, "win1": SILENT},
     {"worker1": {SENT: 16}, "win1": {GOT: 1}}),
    ("a machine that was not looked at", {}, {"worker1": {SENT: 10}, "win1": {GOT: 0}}),
    ("a machine that is not looked at", {"worker1": {SENT: 1}}, {"worker1": {SENT: 10}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"), [one[1:] for one in QUIET], ids=[one[0] for one in QUIET]
)
def test_no_loss_is_reported_for(before: Counts, after: Counts) -> None:
    assert find_losses(PATH, counted(before), counted(after)) == ()


def test_what_was_sent_and_never_heard_was_lost_between_two_cards() -> None:
    before = counted({"worker1": {SENT: 10}, "win1": {GOT: 500}})
    after = counted({"worker1": {SENT: 16}, "win1": {GOT: 500}})
    (difference,) = find_losses(PATH, before, after)
    assert (difference.kind, difference.node, difference.fault) == ("lost-between", "win1", "")
    assert (difference.hop, difference.node) == CARDS[1]
    assert difference.observed == "6 packets sent by eth0 of worker1, none arrived"
    assert difference.intended == "as many as were sent"
    assert difference.shows == "ip -statistics link show dev eth0"


def test_three_packets_that_never_arrived_are_a_loss() -> None:
    before = counted({"worker1": {SENT: 10}, "win1": {GOT: 500}})
    (difference,) = find_losses(PATH, before, counted({"worker1": {SENT: 13}, "win1": {GOT: 500}}))
    assert difference.kind == "lost-between"


def test_the_way_back_is_looked_at_too() -> None:
    before = counted({"worker1": {SENT: 10, GOT: 7}, "win1": {SENT: 3, GOT: 500}})
    after = counted({"worker1": {SENT: 16, GOT: 7}, "win1": {SENT: 9, GOT: 506}})
    (difference,) = find_losses(PATH, before, after)
    assert (difference.hop, difference.node) == CARDS[3] == (CARDS[3][0], "worker1")
    assert "sent by eth0 of win1" in difference.observed


@pytest.mark.parametrize("name", [DROPPED, ("eth0", "sent", "errors")])
def test_a_dropping_device_on_the_path_is_reported_once(name: Name) -> None:
    before, after = counted({"worker1": {name: 1}}), counted({"worker1": {name: 8}})
    (difference,) = find_losses(PATH, before, after)
    assert (difference.kind, difference.hop, difference.node) == ("packets-dropped", *CARDS[0])
    assert difference.observed == f"{' '.join(name)} 7 while it was asked"
    assert difference.intended == "no drops"


def test_what_drops_comes_before_what_is_only_missing() -> None:
    before = counted({"worker1": {SENT: 0}, "win1": {GOT: 0, DROPPED: 0}})
    after = counted({"worker1": {SENT: 6}, "win1": {GOT: 0, DROPPED: 6}})
    assert [difference.kind for difference in find_losses(PATH, before, after)] == [
        "packets-dropped",
        "lost-between",
    ]
