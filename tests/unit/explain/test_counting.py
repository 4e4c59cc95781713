"""Where counters say that packets were lost, and where they say nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from seen_machines import lab

from lab._errors import BrokenError, LabError
from lab.explain.question import FEWEST, flow_of, lost
from lab.facts.node import Counter, NodeFacts
from lab.topology.path import Hop, Path
from lab.topology.walk import walk

Seen = Mapping[str, NodeFacts | LabError]
SENT, GOT = "eth0 sent packets", "eth0 received packets"


def path() -> Path:
    """From worker1's pod through the tunnel to win1's, and back."""
    _, intent, matrix = lab("overlay")
    cell = matrix.find("pod-pod/worker1-p1/win1-p1/tcp-small")
    assert cell is not None
    return walk(intent, flow_of(cell))[0]


def counted(**machines: Mapping[str, int]) -> Seen:
    return {
        name: NodeFacts(
            os="linux",
            version="",
            counters=tuple(Counter(one, value) for one, value in counters.items()),
        )
        for name, counters in machines.items()
    }


def card(machine: str, number: int = 0) -> int:
    """The place on the path of one of a machine's cards."""
    return [at for at, hop in enumerate(path().hops) if is_card(hop, machine)][number]


def is_card(hop: Hop, machine: str) -> bool:
    return hop.kind == "card" and hop.machine == machine


def test_what_was_sent_and_never_heard_was_lost_between_two_cards() -> None:
    before = counted(worker1={SENT: 10}, win1={GOT: 500})
    after = counted(worker1={SENT: 16}, win1={GOT: 500})
    (found,) = lost(path(), before, after)
    assert (found.kind, found.node, found.hop) == ("lost-between", "win1", card("win1"))
    assert found.observed == "6 packets sent by eth0 of worker1, none arrived"
    assert found.intended == "as many as were sent"
    assert found.shows == "ip -statistics link show dev eth0"
    assert found.fault == ""


def test_the_way_back_is_looked_at_too() -> None:
    before = counted(worker1={SENT: 10, GOT: 7}, win1={SENT: 3, GOT: 500})
    after = counted(worker1={SENT: 16, GOT: 7}, win1={SENT: 9, GOT: 506})
    (found,) = lost(path(), before, after)
    assert (found.node, found.hop) == ("worker1", card("worker1", 1))
    assert "sent by eth0 of win1" in found.observed


@pytest.mark.parametrize("sent", range(FEWEST))
def test_few_packets_may_be_somebody_elses(sent: int) -> None:
    before = counted(worker1={SENT: 10}, win1={GOT: 500})
    assert lost(path(), before, counted(worker1={SENT: 10 + sent}, win1={GOT: 500})) == ()


def test_where_anything_arrived_the_network_between_carries() -> None:
    before = counted(worker1={SENT: 10}, win1={GOT: 500})
    assert lost(path(), before, counted(worker1={SENT: 40}, win1={GOT: 501})) == ()


@pytest.mark.parametrize("name", ["eth0 received dropped", "eth0 sent errors"])
def test_a_device_of_the_path_that_drops_is_told_once(name: str) -> None:
    before, after = counted(worker1={name: 1}), counted(worker1={name: 8})
    (found,) = lost(path(), before, after)
    assert (found.kind, found.node, found.hop) == ("packets-dropped", "worker1", card("worker1"))
    assert found.observed == f"{name} 7 while it was asked"
    assert found.intended == "no drops"


def test_what_drops_comes_before_what_is_only_missing() -> None:
    before = counted(worker1={SENT: 0}, win1={GOT: 0, "eth0 received dropped": 0})
    after = counted(worker1={SENT: 6}, win1={GOT: 0, "eth0 received dropped": 6})
    assert [one.kind for one in lost(path(), before, after)] == ["packets-dropped", "lost-between"]


@pytest.mark.parametrize(
    "name", ["veth99 received dropped", "Ip OutNoRoutes", "eth00 received dropped"]
)
def test_what_is_not_on_the_path_says_nothing(name: str) -> None:
    assert lost(path(), counted(worker1={name: 1}), counted(worker1={name: 8})) == ()


def test_a_machine_that_did_not_answer_says_nothing() -> None:
    silent = {"win1": BrokenError("looking at 'win1'", "no answer")}
    before = counted(worker1={SENT: 10})
    assert lost(path(), before, {**counted(worker1={SENT: 16}), **silent}) == ()
    assert lost(path(), {**before, **silent}, counted(worker1={SENT: 16}, win1={GOT: 1})) == ()


def test_a_machine_that_was_not_looked_at_says_nothing() -> None:
    assert lost(path(), {}, counted(worker1={SENT: 10}, win1={GOT: 0})) == ()
    assert lost(path(), counted(worker1={SENT: 1}), counted(worker1={SENT: 10})) == ()
