"""Where a probe passes, and what is read of packets that were captured on its way."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from shipped import cell_of, cells_of, intent_of

from lab.explain.capture.conclusion import Conclusion, _lost_error, conclude
from lab.explain.capture.packets import (
    Decoded,
    InnerPacket,
    Matched,
    PacketEnds,
    Passed,
    Refused,
    decode,
    match,
)
from lab.explain.capture.probe import choose_capture_points
from lab.explain.capture.trace import Point, Sight, Trace, by_time, find_change, trace
from lab.providers.capture import Frame, Taken, Tap
from lab.providers.netns.compile import compile_intent
from lab.scenario.loader import shipped
from lab.topology.path import Station

CASES = sorted((Path(__file__).parents[2] / "cases" / "capture").glob("*.json"))
Case = dict[str, Any]


def read(path: Path) -> Case:
    case: Case = json.loads(path.read_text(encoding="utf-8"))
    return case


def taken(case: Case) -> tuple[Taken, ...]:
    frames: dict[Tap, list[Frame]] = {}
    for place, device, at, direction, length, data in case["frames"]:
        frame = Frame(at + 1, direction, bytes.fromhex(data), length)
        frames.setdefault(Tap(place, device), []).append(frame)
    return tuple(Taken(tap, tuple(own)) for tap, own in frames.items())


def judged(case: Case, packets: tuple[Taken, ...]) -> tuple[Trace, Conclusion]:
    name = case["scenario"]
    where = choose_capture_points(intent_of(name), cell_of(name, case["cell"]))
    matched = match(packets, where.request)
    ways, taps, well = where.ways, where.taps, case["answered"]
    blind = {packet.tap for packet in packets if packet.blind}
    seen = (
        trace(ways, matched, well=well, blind=blind) if ways else by_time(taps, where.ends, matched)
    )
    return seen, conclude(seen, well=case["answered"], owners=where.owners)


def passed(tap: Tap, sight: Sight) -> str:
    return f"{tap} {sight.packets}{' of another MAC' if sight.strangers_mac else ''}"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_place_where_the_probe_was_last_seen_is_reported(path):
    case = read(path)
    trace, conclusion = judged(case, taken(case))
    expected = case["expected"]
    found = {
        "kind": conclusion.kind,
        "last": str(conclusion.last.tap) if conclusion.last else None,
        "missing": str(conclusion.missing.tap) if conclusion.missing else None,
        "sentence": conclusion.sentence,
        "question": [
            passed(row.tap, row.question) for row in trace.request if row.question.packets
        ],
        "answer": [passed(row.tap, row.answer) for row in trace.reply if row.answer.packets],
    }
    assert found == expected


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_is_taken_down_of_a_probe_that_works_is_as_the_intent_has_it(path):
    case = read(path)
    change = find_change(judged(case, taken(case))[0])
    assert (change is None) == (path.stem != "masquerade-missing")


POD_TO_POD, HAIRPIN = "pod-to-pod-works", "hairpin-in-fragments-works"
SERVER, SERVICE = "10.244.1.4", "10.96.0.22"
ASKED, HELLO = {4050, 4051, 4052}, 72
"""The numbers of the datagrams that ask there, and the length of the first of either way."""
CUT: dict[str, tuple[str, Callable[[InnerPacket], int], tuple[str, ...]]] = {
    # the case, how often each packet of it is kept, and what is said: kind, last, missing
    "who asks takes no answer": (
        POD_TO_POD, lambda packet: packet.opens,
        ("untaken", "arriving at master-p1 eth0", "leaving master-p1 eth0")),
    "who is asked says no more": (
        POD_TO_POD, lambda packet: packet.opens or packet.flow.target == SERVER,
        ("unanswered", "arriving at worker1-p1 eth0", "leaving worker1-p1 eth0")),
    "who is asked hears neither the confirmation nor the request": (
        POD_TO_POD,
        lambda packet: 2 * packet.opens if packet.flow.source == SERVER else 1,
        ("unanswered", "arriving at worker1-p1 eth0", "leaving worker1-p1 eth0")),
    "all came back": (
        POD_TO_POD, lambda _: True,
        ("untaken", "arriving at master-p1 eth0", "leaving master-p1 eth0")),
    "datagrams that came are not all answered": (
        HAIRPIN, lambda packet: packet.ident in ASKED or packet.length == HELLO,
        ("unanswered", "arriving at worker1-p1 eth0", "leaving worker1-p1 eth0")),
    "what a bridge leads back to its port is missed there": (
        HAIRPIN,
        lambda packet: packet.flow.target == SERVICE and packet.flow.source_port is not None,
        ("question-lost", "arriving at worker1 veth1", "leaving worker1 veth1")),
}  # fmt: skip


@pytest.mark.parametrize(("name", "kept", "expected"), CUT.values(), ids=CUT)
def test_a_partial_exchange_is_reported_with_the_side_that_stopped(name, kept, expected):
    case = {**read(next(path for path in CASES if path.stem == name)), "answered": False}

    def keeps(frame: Frame) -> int:
        inside = decode(frame.data).inside
        return 0 if inside is None else kept(inside)

    packets = tuple(
        replace(
            capture, frames=tuple(frame for frame in capture.frames for _ in range(keeps(frame)))
        )
        for capture in taken(case)
    )
    conclusion = judged(case, packets)[1]
    assert (conclusion.kind, str(conclusion.last), str(conclusion.missing)) == expected
    assert conclusion.lost == ("question" if conclusion.kind == "question-lost" else "answer")


BLIND: dict[str, tuple[str, tuple[tuple[str, str], ...], str]] = {
    # the machine, where answers are kept, and what is said
    "target": (
        "worker1", (),
        ("question-lost: last seen leaving master eth0 (in VXLAN 4096 10.9.176.10 > "
         "10.9.176.11:4789); nothing can be captured at worker1 eth0, where it goes next")),
    "target that answers": (
        "worker1", (("master", "eth0"),),
        ("answer-lost: it came to worker1-p1 eth0, and its answer was last seen arriving at "
         "master eth0 (in VXLAN 4096 10.9.176.11 > 10.9.176.10:4789); it never arrived at "
         "master flannel.4096")),
    "source": (
        "master", (), "unknown: nothing can be captured at master-p1 eth0, where it begins"),
}  # fmt: skip


@pytest.mark.parametrize(("blind", "answers_at", "expected"), BLIND.values(), ids=BLIND)
def test_nothing_is_reported_lost_where_nothing_can_be_captured(blind, answers_at, expected):
    case = {**read(next(case for case in CASES if case.stem == POD_TO_POD)), "answered": False}

    def seen(tap: Tap, frame: Frame) -> bool:
        inside = decode(frame.data).inside
        return (tap.place, tap.device) in answers_at or (
            inside is not None and inside.flow.target == SERVER
        )

    packets = tuple(
        Taken(capture.tap, (), blind=True)
        if capture.tap.place.startswith(blind)
        else replace(
            capture, frames=tuple(each for each in capture.frames if seen(capture.tap, each))
        )
        for capture in taken(case)
    )
    conclusion = judged(case, packets)[1]
    assert f"{conclusion.kind}: {conclusion.sentence}" == expected


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_packets_of_others_change_nothing(path):
    """Those of every other case that was asked in the same scenario pass the same devices."""
    case = read(path)
    noise = [
        capture
        for other in CASES
        if other != path and (other_case := read(other))["scenario"] == case["scenario"]
        if other_case["cell"].rsplit("/", 1)[0] != case["cell"].rsplit("/", 1)[0]
        for capture in taken(other_case)
    ]
    own = taken(case)
    mixed = tuple(
        Taken(
            capture.tap,
            tuple(
                frame
                for more in (capture, *noise)
                if more.tap == capture.tap
                for frame in more.frames
            ),
        )
        for capture in own
    )
    before, after = judged(case, own), judged(case, mixed)
    assert after[1].kind == before[1].kind
    assert after[1].last == before[1].last
    assert [row.question for row in after[0].rows] == [row.question for row in before[0].rows]


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_query_is_found_whichever_protocol_the_system_of_its_pod_chooses(protocol):
    """curl in a Windows pod looks names up as the system does."""
    cell = f"dns/win1-p1/to-master-p1/{protocol}-small"
    request = choose_capture_points(intent_of("overlay"), cell_of("overlay", cell)).request
    assert request.protocols == {"tcp", "udp"}


def test_of_two_tries_the_one_that_is_lost_is_followed_to_its_own_backend():
    where = choose_capture_points(
        intent_of("overlay"), cell_of("overlay", "pod-service/master-p1/everyone/udp-small")
    )
    ways = where.ways[:2]
    passed = [
        sent(station, 4000 + number, at)
        for number, (stations, back) in enumerate(ways)
        for at, station in enumerate((*stations, *(back if number else ())))
    ]
    matched = Matched(tuple(passed), (), ())
    lost, answered = (trace(ways, matched, well=well) for well in (False, True))
    assert (lost.path_index, answered.path_index) == (0, 1)
    target = ways[0][0][-1]
    conclusion = conclude(lost, well=False, owners={})
    assert (conclusion.kind, conclusion.last) == (
        "unanswered",
        Point(Tap(target.place, target.device), "in"),
    )


def sent(station: Station, port: int, at: int) -> Passed:
    """A datagram of the client's ``port`` as the Intent has it at a station."""
    packet, tap = station.packet, Tap(station.place, station.device)
    ports = (packet.port, port) if packet.answer else (port, packet.port)
    flow = PacketEnds(17, packet.source, ports[0], packet.target, ports[1])
    inside = InnerPacket(flow, at, 0, fragment=False, length=80, digest=port, ttl=64)
    frame = Frame(at + 1, station.passing, b"", 100)
    return Passed(
        tap, frame, Decoded("", inside=inside), inside, "reply" if packet.answer else "request"
    )


EVERY = 37
"""Of a scenario's thousands of cells each so manieth: all families, pairs of all kinds."""


@pytest.mark.parametrize("name", shipped())
def test_every_device_that_is_listened_at_is_there(name):
    intent = intent_of(name)
    there = {
        (operations.namespace, device)
        for operations in compile_intent(intent)
        for device, _ in operations.indexes
    }
    for cell in cells_of(name)[::EVERY]:
        taps = {(tap.place, tap.device) for tap, _ in choose_capture_points(intent, cell).taps}
        assert taps <= there, cell.id
        assert taps or choose_capture_points(intent, cell).end, cell.id


@pytest.mark.parametrize("name", shipped())
def test_what_leaves_one_namespace_comes_into_the_next(name):
    """Between two namespaces a packet leaves by a device of one and comes in by the other's."""
    intent = intent_of(name)
    for cell in cells_of(name)[::EVERY]:
        for stations, back in choose_capture_points(intent, cell).ways:
            for way in (stations, back):
                for left, right in pairwise(way):
                    if left.place != right.place:
                        assert (left.passing, right.passing) == ("out", "in"), cell.id


WAYS = [
    ("overlay", "pod-pod/worker1-p1/worker1-p2/tcp-small",
     "worker1-p1 eth0 out, worker1 veth1 in, worker1 veth2 out, worker1-p2 eth0 in"),
    ("overlay", "hairpin/worker1-p1/to-worker1-p1/tcp-small",
     ("worker1-p1 eth0 out, worker1 veth1 in, worker1 cni0 in, "
     "worker1 cni0 out, worker1 veth1 out, worker1-p1 eth0 in")),
    ("overlay", "pod-external/worker1-p1/client/tcp-small",
     ("worker1-p1 eth0 out, worker1 veth1 in, worker1 cni0 in, worker1 eth0 out, "
     "router eth0 in, router eth1 out, client eth0 in")),
    ("kubeinit", "pod-node/controller-02-p2/compute-03/tcp-small",
     ("controller-02-p2 eth0 out, controller-02 veth2 in, controller-02 cni0 in, "
     "controller-02 eth0 out, hypervisor-01 vnet1 in, hypervisor-01 vxlan-nodes out, "
     "hypervisor-01 eth0 out, hypervisor-02 eth0 in, hypervisor-02 vxlan-nodes in, "
     "hypervisor-02 vnet1 out, compute-03 eth0 in")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cell", "there"), WAYS)
def test_a_way_is_every_passing_of_a_device(name, cell, there):
    ((way, back),) = choose_capture_points(intent_of(name), cell_of(name, cell)).ways
    assert ", ".join(f"{station} {station.passing}" for station in way) == there
    turned = [
        f"{station} {'in' if station.passing == 'out' else 'out'}" for station in reversed(way)
    ]
    assert [f"{station} {station.passing}" for station in back] == turned


@pytest.mark.parametrize(
    ("at_source", "lost"), [("other", True), ("in", False)], ids=["for another MAC", "taken"]
)
def test_an_icmp_error_that_is_the_expected_answer_is_followed_back(at_source, lost):
    case = read(next(path for path in CASES if path.stem == POD_TO_POD))
    trace, _ = judged(case, taken(case))
    first, second, third = (row.tap for row in trace.request[:3])
    directions = ((third, "in"), (second, "out"), (first, at_source))
    errors = tuple(Refused(tap, Frame(1, way, b"", 0), None, None) for tap, way in directions)
    conclusion = _lost_error(replace(trace, errors=errors), Conclusion("refused", "said"))
    assert (conclusion is not None) == lost
    if conclusion:
        assert (conclusion.last, conclusion.missing, conclusion.lost) == (
            Point(second, "out"),
            Point(first, None),
            "answer",
        )
