from __future__ import annotations

import errno
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.providers.netns.exchange import Expired, describe_failure
from lab.providers.netns.prober import AttendedClock, interleave
from lab.providers.netns.protocol import CannotProbeError, WireError
from lab.providers.provider import Probe


def probes(sources: int, targets: int) -> list[Probe]:
    return [
        Probe(source * targets + target, f"s{source}", "tcp", "small", f"10.0.0.{target}", 1, 1500)
        for source in range(sources)
        for target in range(targets)
    ]


@given(st.integers(0, 9), st.integers(0, 30), st.integers(1, 9))
def test_every_probe_has_its_turn_once(sources: int, targets: int, batch: int) -> None:
    asked = probes(sources, targets)
    assert Counter(interleave(asked, batch)) == Counter(asked)


def test_sources_take_turns() -> None:
    order = [probe.source for probe in interleave(probes(3, 4), 2)]
    assert order == ["s0", "s0", "s1", "s1", "s2", "s2"] * 2


def test_no_target_is_flooded_at_the_start() -> None:
    first = interleave(probes(100, 100), 8)[:400]
    assert max(Counter(probe.address for probe in first).values()) <= 8


def test_attended_time_is_time_that_passes_in_short_steps() -> None:
    clock = AttendedClock(100.0, gap=0.1)
    for step in range(1, 11):
        clock.tick(100.0 + step * 0.05)
    assert clock.seconds == pytest.approx(0.5)


def test_a_long_gap_counts_as_a_short_one() -> None:
    clock = AttendedClock(100.0, gap=0.1)
    clock.tick(160.0)
    clock.tick(160.05)
    assert clock.seconds == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (errno.ECONNREFUSED, "refused"),
        (errno.EHOSTUNREACH, "no-route"),
        (errno.ENETUNREACH, "no-route"),
        (errno.ENETDOWN, "no-route"),
        (errno.EACCES, "no-route"),
        (errno.EINVAL, "no-route"),
        (errno.ETIMEDOUT, "timeout"),
        (errno.EPERM, "timeout"),
        (errno.ECONNRESET, "wrong"),
        (errno.EPIPE, "wrong"),
        (errno.EMFILE, "error"),
        (errno.EADDRNOTAVAIL, "error"),
        (errno.ENOMEM, "error"),
        (errno.EAGAIN, "error"),
    ],
)
def test_each_errno_says_its_own_of_the_network(number: int, status: str) -> None:
    assert describe_failure(OSError(number, "text"), "connect", 1.0)[0] == status


def test_details_name_what_was_under_way() -> None:
    assert describe_failure(Expired(), "connect", 1.0) == ("timeout", "connect: no reply in 1 s")
    assert describe_failure(OSError(errno.ECONNREFUSED, ""), "connect", 1.0) == (
        "refused",
        "connect: connection refused",
    )
    assert describe_failure(WireError("short"), "answer", 1.0) == ("wrong", "answer: short")
    assert describe_failure(CannotProbeError("no such place"), "start", 1.0) == (
        "error",
        "no such place",
    )
    assert describe_failure(TypeError("odd"), "start", 1.0) == ("error", "start: TypeError: odd")
