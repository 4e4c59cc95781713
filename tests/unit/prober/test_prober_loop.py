"""The prober's loop: the order of probes, shortages, and source ports."""

import errno
import socket
from collections import Counter
from contextlib import suppress
from select import EPOLLIN, EPOLLOUT

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.providers.netns import prober
from lab.providers.netns.exchange import InFlight, Open, Steps, describe_failure
from lab.providers.netns.prober import (
    CYCLE_SECONDS,
    FIRST,
    LAST,
    AttendedClock,
    Pulse,
    SourcePorts,
    interleave,
)
from lab.providers.netns.protocol import CannotProbeError
from lab.providers.provider import Outcome, Probe, ProbeSettings


def probes(sources: int, targets: int) -> list[Probe]:
    return [
        Probe(source * targets + target, f"s{source}", "tcp", "small", f"10.0.0.{target}", 1, 1500)
        for source in range(sources)
        for target in range(targets)
    ]


@given(st.integers(0, 9), st.integers(0, 30), st.integers(1, 9))
def test_every_probe_has_its_turn_once(sources, targets, batch):
    asked = probes(sources, targets)
    assert Counter(interleave(asked, batch)) == Counter(asked)


def test_sources_take_turns():
    order = [probe.source for probe in interleave(probes(3, 4), 2)]
    assert order == ["s0", "s0", "s1", "s1", "s2", "s2"] * 2


def test_no_target_is_flooded_at_the_start():
    first = interleave(probes(100, 100), 8)[:400]
    assert max(Counter(probe.address for probe in first).values()) <= 8


def test_attended_time_passes_in_short_steps_and_a_long_gap_counts_as_a_short_one():
    clock = AttendedClock(100.0, gap=0.1)
    for step in range(1, 11):
        clock.tick(100.0 + step * 0.05)
    assert clock.seconds == pytest.approx(0.5)
    clock.tick(160.0)
    clock.tick(160.05)
    assert clock.seconds == pytest.approx(0.65)


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
def test_each_errno_has_its_own_status(number, status):
    assert describe_failure(OSError(number, "text"), "connect", 1.0)[0] == status


def test_an_error_that_is_not_a_sockets_is_named():
    failure = describe_failure(CannotProbeError("no such place"), "start", 1.0)
    assert failure == ("error", "no such place")
    assert describe_failure(TypeError("odd"), "start", 1.0) == ("error", "start: TypeError: odd")


def probed(
    monkeypatch: pytest.MonkeyPatch, count: int, shortage: int, times: int
) -> dict[int, Outcome]:
    """Outcomes of so many probes, the last of which meets the shortage so many times."""
    met: list[int] = []

    def steps(flight: InFlight, open_: Open, _resolver: object) -> Steps:
        open_(flight, socket.SOCK_DGRAM)
        if flight.probe.key == count - 1 and len(met) < times:
            met.append(shortage)
            raise OSError(shortage, "short")
        yield EPOLLOUT  # of an idle socket: comes at once

    monkeypatch.setattr(prober, "exchange_steps", steps)
    probes = [Probe(key, "a", "udp", "small", "127.0.0.1", 9, 1500) for key in range(count)]
    return prober.probe(lambda _: None, probes, ProbeSettings(5.0, 8), lambda _: None)


@pytest.mark.parametrize("shortage", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_a_shortage_is_waited_out_while_others_are_under_way(monkeypatch, shortage):
    outcomes = probed(monkeypatch, count=4, shortage=shortage, times=1)
    assert [outcomes[key].status for key in range(4)] == ["ok"] * 4


@pytest.mark.parametrize(
    ("shortage", "status"), [(errno.EMFILE, "error"), (errno.ENOBUFS, "timeout")]
)
def test_a_shortage_that_nobody_can_end_is_an_error_but_a_full_queue_loses_packets(
    monkeypatch, shortage, status
):
    outcomes = probed(monkeypatch, count=4, shortage=shortage, times=99)
    assert [outcomes[key].status for key in range(4)] == ["ok", "ok", "ok", status]


def test_a_full_queue_that_others_fill_is_waited_out(monkeypatch):
    """As long as probes ahead of it in the line have not been asked, it is asked after them."""
    sent: list[int] = []

    def steps(flight: InFlight, open_: Open, _resolver: object) -> Steps:
        open_(flight, socket.SOCK_DGRAM)
        if flight.probe.key == 5 and len(sent) < 40:
            raise OSError(errno.ENOBUFS, "full")
        sent.append(flight.probe.key)
        yield EPOLLOUT

    monkeypatch.setattr(prober, "exchange_steps", steps)
    probes = [Probe(key, "a", "udp", "small", "127.0.0.1", 9, 1500) for key in range(60)]
    outcomes = prober.probe(lambda _: None, probes, ProbeSettings(5.0, 8), lambda _: None)
    assert {outcome.status for outcome in outcomes.values()} == {"ok"}


def test_each_round_of_datagrams_has_the_whole_timeout(monkeypatch):
    """A machine that is busy answers the first late; the second is not lost for that."""
    now = 0.0

    def steps(flight: InFlight, open_: Open, _resolver: object) -> Steps:
        nonlocal now
        open_(flight, socket.SOCK_DGRAM)
        for flight.rounds in (1, 2):
            for _ in range(14):
                now += 0.05
                yield EPOLLOUT

    monkeypatch.setattr(prober, "monotonic", lambda: now)
    monkeypatch.setattr(prober, "exchange_steps", steps)
    probes = [Probe(0, "a", "udp", "large", "127.0.0.1", 9, 1500)]
    outcomes = prober.probe(lambda _: None, probes, ProbeSettings(1.0, 8), lambda _: None)
    assert outcomes[0].status == "ok"


@pytest.mark.parametrize(
    ("responder", "seconds"), [("silent", 4.0), ("answers", 1.0), ("has ended", 1.0)]
)
def test_a_timeout_is_longer_by_what_a_responder_is_late_up_to_a_limit(
    monkeypatch, tmp_path, responder, seconds
):
    now = 0.0
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(path)

        def clock() -> float:
            nonlocal now
            now += 0.05
            if responder == "answers":
                with suppress(BlockingIOError):
                    other.sendto(*other.recvfrom(16, socket.MSG_DONTWAIT))
            return now

        def steps(flight: InFlight, open_: Open, _resolver: object) -> Steps:
            open_(flight, socket.SOCK_DGRAM)
            if responder == "has ended":
                other.close()
            yield EPOLLIN  # nothing comes

        monkeypatch.setattr(prober, "monotonic", clock)
        pulse = Pulse(path)
        monkeypatch.setattr(prober, "exchange_steps", steps)
        monkeypatch.setattr(prober, "_TICK_SECONDS", 0.0)
        monkeypatch.setattr(prober, "_HELD_SECONDS", 3.0)
        probes = [Probe(0, "a", "udp", "small", "127.0.0.1", 9, 1500)]
        settings = ProbeSettings(1.0, 8)
        outcomes = prober.probe(lambda _: None, probes, settings, lambda _: None, pulse=pulse)
        pulse.close()
    assert outcomes[0].status == "timeout"
    assert now == pytest.approx(seconds, abs=0.5)


def test_another_failure_is_not_repeated(monkeypatch):
    outcomes = probed(monkeypatch, count=4, shortage=errno.ECONNREFUSED, times=1)
    assert outcomes[3].status == "refused"


COUNT = LAST - FIRST + 1


def test_a_source_has_every_port_once_before_one_comes_again():
    ports = SourcePorts(1234.5)
    had = list(ports.take_next("worker1-p1", COUNT))
    assert sorted(had) == list(range(FIRST, LAST + 1))
    assert list(ports.take_next("worker1-p1", 3)) == had[:3]


def test_sources_do_not_take_each_others_ports():
    ports = SourcePorts(1234.5)
    mine = list(ports.take_next("worker1-p1", 5))
    list(ports.take_next("worker1-p2", 500))
    assert list(ports.take_next("worker1-p1", 1)) == [mine[-1] + 1]


@pytest.mark.parametrize("gap", [0.5, 2.0, 50.0])
@pytest.mark.parametrize("began", [0.0, 59.9, 1_000_000.25])
def test_another_process_goes_on_where_the_one_before_ended_at_most(began, gap):
    rate = COUNT / CYCLE_SECONDS
    before = set(SourcePorts(began).take_next("win1-p1", int(rate * gap)))
    after = set(
        SourcePorts(began + gap).take_next("win1-p1", int(rate * (CYCLE_SECONDS - gap)) - 1)
    )
    assert not before & after


def _ports_had(monkeypatch: pytest.MonkeyPatch, taken: int) -> list[int]:
    """The source ports of three probes, where somebody else has so many from the first on."""
    seen: list[int] = []

    def steps(flight: InFlight, open_: Open, _resolver: object) -> Steps:
        seen.append(open_(flight, socket.SOCK_DGRAM).getsockname()[1])
        yield EPOLLOUT

    monkeypatch.setattr(prober, "exchange_steps", steps)
    monkeypatch.setattr(prober, "SourcePorts", lambda _: SourcePorts(7.0))
    probes = [Probe(key, "a", "udp", "small", "127.0.0.1", 9, 1500) for key in range(3)]
    others = []
    try:
        for port in SourcePorts(7.0).take_next("a", taken):
            others.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            others[-1].bind(("", port))
        prober.probe(lambda _: None, probes, ProbeSettings(5.0, 8), lambda _: None)
    finally:
        for one in others:
            one.close()
    return seen


def test_each_probe_has_the_next_port_that_nobody_has(monkeypatch):
    ports = list(SourcePorts(7.0).take_next("a", 10))
    assert _ports_had(monkeypatch, 0) == ports[:3]
    assert _ports_had(monkeypatch, 5) == ports[5:8]
    first, *others = _ports_had(monkeypatch, 8)
    assert others == ports[8:]
    assert first not in ports[:8], "the kernel chooses where too many are taken"


def test_a_bind_that_fails_otherwise_is_the_probes_failure(monkeypatch):
    class Refusing(socket.socket):
        def bind(self, _address: object) -> None:  # type: ignore[override]
            raise OSError(errno.EMFILE, "short")

    monkeypatch.setattr(prober.socket, "socket", Refusing)
    probes = [Probe(0, "a", "tcp", "small", "127.0.0.1", 9, 1500)]
    outcomes = prober.probe(lambda _: None, probes, ProbeSettings(5.0, 8), lambda _: None)
    assert outcomes[0].status == "error"
