"""What an agent says, and what a guest may say instead."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab._errors import BrokenError, DeadlineError, UsageError
from lab.providers.capture import Frame, Taken, Tap
from lab.providers.node import protocol
from lab.providers.node.campaign import join_taken
from lab.providers.provider import Outcome

OUTCOME = Outcome(7, "ok", "", "10.0.0.1", ("a", "b"), None, 1.5, ("10.0.0.2",))
FAILED = Outcome(8, "timeout", "connect: no reply in 1 s", None, (), None, 0.0)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def test_outcomes_come_back_as_they_were() -> None:
    kind, value = protocol.read_line(protocol.outcomes_line([OUTCOME, FAILED]))
    assert kind == "outcomes"
    assert protocol.read_outcomes(value) == [OUTCOME, FAILED]


def test_what_passed_a_tap_comes_back_as_it_was_in_however_many_lines() -> None:
    frames = tuple(Frame(at, "other", bytes([at]) * 60_000, 65_000) for at in range(5))
    told = Taken(Tap("worker1-p1", "eth0"), frames, 3, "it went down")
    values = [protocol.read_line(said) for said in protocol.taken_lines(told)]
    assert [kind for kind, _ in values] == ["taken"] * len(values)
    assert len(values) > 1
    assert join_taken([told.tap], [protocol.read_taken(value) for _, value in values]) == (told,)


def test_an_error_names_the_machine_and_keeps_its_kind() -> None:
    for error, kind in (
        (BrokenError("adding bridge", "refused", "try"), BrokenError),
        (DeadlineError("waiting", "not done", ""), DeadlineError),
        (UsageError("compiling", "twice", ""), BrokenError),
    ):
        read = protocol.read_failure(protocol.read_line(protocol.failure_line(error))[1], "worker1")
        assert type(read) is kind
        assert read.doing == f"{error.doing} on machine 'worker1'"
        assert (read.happened, read.hint) == (error.happened, error.hint)


@given(st.binary(max_size=60) | ANYTHING.map(lambda one: json.dumps(one).encode()))
def test_whatever_a_guest_says_is_read_or_refused(said: bytes) -> None:
    try:
        protocol.read_line(said)
    except protocol.StrangeError:
        return


@given(ANYTHING)
def test_whatever_a_value_is_it_is_taken_or_refused(value: Any) -> None:
    for reader in (
        protocol.read_outcomes,
        protocol.read_piece,
        protocol.read_completed,
        protocol.read_number,
        protocol.read_taken,
        lambda one: protocol.read_failure(one, "m"),
    ):
        try:
            reader(value)
        except protocol.StrangeError:
            continue


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x"])
def test_a_piece_of_evidence_stays_where_it_is_put(path: str) -> None:
    with pytest.raises(protocol.StrangeError, match="leads away"):
        protocol.read_piece([path, "text"])


@pytest.mark.parametrize("status", ["great", ["ok"], None])
def test_an_outcome_has_a_status_that_there_is(status: object) -> None:
    with pytest.raises(protocol.StrangeError, match="no outcome"):
        protocol.read_outcomes([[7, status, "", None, [], None, 0.0, []]])
