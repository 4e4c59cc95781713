"""Packets that were taken down in real labs, and where the probe was last seen.

A case holds what every device of a path saw (frames cut to what is read of them) while one cell
was asked, some with a fault in the lab, and what must be said of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shipped import cell_of, intent_of

from lab.explain.capture.packets import InnerPacket, decode, match
from lab.explain.capture.probe import listening
from lab.explain.capture.trace import (
    Conclusion,
    Sight,
    Trace,
    by_time,
    conclude,
    find_change,
    trace,
)
from lab.providers.capture import Frame, Taken, Tap

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
    where = listening(intent_of(name), cell_of(name, case["cell"]))
    matched = match(packets, where.asked)
    ways, taps = where.ways, where.taps
    seen = trace(ways, matched) if ways else by_time(taps, where.ends, matched)
    return seen, conclude(seen, well=case["answered"], owners=where.owners)


def passed(tap: Tap, sight: Sight) -> str:
    return f"{tap} {sight.packets}{' of another MAC' if sight.strangers_mac else ''}"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_it_is_said_where_the_probe_was_last_seen(path: Path) -> None:
    case = read(path)
    seen, said = judged(case, taken(case))
    expected = case["expected"]
    found = {
        "kind": said.kind,
        "last": str(said.last.tap) if said.last else None,
        "missing": str(said.missing.tap) if said.missing else None,
        "sentence": said.sentence,
        "question": [passed(row.tap, row.question) for row in seen.there if row.question.packets],
        "answer": [passed(row.tap, row.answer) for row in seen.back if row.answer.packets],
    }
    assert found == expected


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_what_is_taken_down_of_a_probe_that_works_is_as_the_intent_has_it(path: Path) -> None:
    case = read(path)
    change = find_change(judged(case, taken(case))[0])
    assert (change is None) == (path.stem != "masquerade-missing")


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (
            lambda packet, _: packet.opens,
            ("untaken", "answer", "arriving at master-p1 eth0", "leaving master-p1 eth0"),
        ),
        (
            lambda packet, server: packet.opens or packet.flow.target == server,
            ("unanswered", "answer", "arriving at worker1-p1 eth0", "leaving worker1-p1 eth0"),
        ),
        (
            lambda *_: True,
            ("untaken", "answer", "arriving at master-p1 eth0", "leaving master-p1 eth0"),
        ),
    ],
    ids=["who asks takes no answer", "who is asked says no more", "all came back"],
)
def test_of_what_was_not_lost_on_the_way_it_is_said_who_did_not_go_on(
    kept: Callable[[InnerPacket, str], bool], expected: tuple[str, ...]
) -> None:
    case = read(next(path for path in CASES if path.stem == "pod-to-pod-works"))
    case["answered"] = False
    server = "10.244.1.4"
    packets = tuple(
        replace(one, frames=tuple(frame for frame in one.frames if keeps(frame, server, kept)))
        for one in taken(case)
    )
    said = judged(case, packets)[1]
    assert (said.kind, said.way, str(said.last), str(said.missing)) == expected


ASKED, HELLO = {4050, 4051, 4052}, 72
"""The numbers of the datagrams that ask there, and the length of the first of either way."""


def test_of_datagrams_that_came_and_were_not_all_answered_it_is_said_so() -> None:
    case = read(next(path for path in CASES if path.stem == "hairpin-in-fragments-works"))
    case["answered"] = False

    def kept(packet: InnerPacket, _: str) -> bool:
        return packet.ident in ASKED or packet.length == HELLO

    packets = tuple(
        replace(one, frames=tuple(frame for frame in one.frames if keeps(frame, "", kept)))
        for one in taken(case)
    )
    said = judged(case, packets)[1]
    found = said.kind, str(said.last), str(said.missing)
    assert found == ("unanswered", "arriving at worker1-p1 eth0", "leaving worker1-p1 eth0")


def test_what_a_bridge_leads_back_to_its_port_is_missed_at_that_port() -> None:
    case = read(next(path for path in CASES if path.stem == "hairpin-in-fragments-works"))
    case["answered"] = False
    packets = tuple(
        replace(one, frames=tuple(frame for frame in one.frames if keeps(frame, "", translated)))
        for one in taken(case)
    )
    said = judged(case, packets)[1]
    found = said.kind, str(said.last), str(said.missing)
    assert found == ("question-lost", "arriving at worker1 veth1", "leaving worker1 veth1")


def translated(packet: InnerPacket, _: str) -> bool:
    """Not: the question before."""
    return packet.flow.target == "10.96.0.22" and packet.flow.source_port is not None


def keeps(frame: Frame, server: str, kept: Callable[[InnerPacket, str], bool]) -> bool:
    inside = decode(frame.data).inside
    return inside is not None and kept(inside, server)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_packets_of_others_change_nothing(path: Path) -> None:
    """Those of every other case that was asked in the same scenario pass the same devices."""
    case = read(path)
    noise = [
        one
        for other in CASES
        if other != path and (other_case := read(other))["scenario"] == case["scenario"]
        if other_case["cell"].rsplit("/", 1)[0] != case["cell"].rsplit("/", 1)[0]
        for one in taken(other_case)
    ]
    own = taken(case)
    mixed = tuple(
        Taken(
            one.tap,
            tuple(frame for more in (one, *noise) if more.tap == one.tap for frame in more.frames),
        )
        for one in own
    )
    before, after = judged(case, own), judged(case, mixed)
    assert after[1].kind == before[1].kind
    assert after[1].last == before[1].last
    assert [row.question for row in after[0].rows] == [row.question for row in before[0].rows]


def test_the_cases_have_every_kind_of_end_that_a_lab_can_be_brought_to() -> None:
    kinds = {read(path)["expected"]["kind"] for path in CASES}
    assert kinds >= {
        "answered",
        "question-lost",
        "question-cut",
        "refused",
        "answer-lost",
    }
