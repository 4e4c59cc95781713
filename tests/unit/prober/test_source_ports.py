"""A source has a port again after a minute only, whichever process asks."""

from __future__ import annotations

import errno
import socket
from select import EPOLLOUT

import pytest

from lab.providers.netns import prober
from lab.providers.netns.exchange import InFlight, Open, Steps
from lab.providers.netns.prober import CYCLE_SECONDS, FIRST, LAST, SourcePorts
from lab.providers.provider import Probe, ProbeSettings

COUNT = LAST - FIRST + 1


def test_a_source_has_every_port_once_before_one_comes_again() -> None:
    ports = SourcePorts(1234.5)
    had = list(ports.of("worker1-p1", COUNT))
    assert sorted(had) == list(range(FIRST, LAST + 1))
    assert list(ports.of("worker1-p1", 3)) == had[:3]


def test_sources_do_not_take_each_others_ports() -> None:
    ports = SourcePorts(1234.5)
    mine = list(ports.of("worker1-p1", 5))
    list(ports.of("worker1-p2", 500))
    assert list(ports.of("worker1-p1", 1)) == [mine[-1] + 1]


@pytest.mark.parametrize("gap", [0.5, 2.0, 50.0])
@pytest.mark.parametrize("began", [0.0, 59.9, 1_000_000.25])
def test_another_process_goes_on_where_the_one_before_ended_at_most(
    began: float, gap: float
) -> None:
    rate = COUNT / CYCLE_SECONDS
    before = set(SourcePorts(began).of("win1-p1", int(rate * gap)))
    after = set(SourcePorts(began + gap).of("win1-p1", int(rate * (CYCLE_SECONDS - gap)) - 1))
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
        for port in SourcePorts(7.0).of("a", taken):
            others.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            others[-1].bind(("", port))
        prober.probe(lambda _: None, probes, ProbeSettings(5.0, 8), lambda _: None)
    finally:
        for one in others:
            one.close()
    return seen


def test_each_probe_has_the_next_port(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _ports_had(monkeypatch, 0) == list(SourcePorts(7.0).of("a", 3))


def test_a_port_that_somebody_else_has_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _ports_had(monkeypatch, 5) == list(SourcePorts(7.0).of("a", 8))[5:]


def test_the_kernel_chooses_where_too_many_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _ports_had(monkeypatch, 8)
    assert seen[1:] == list(SourcePorts(7.0).of("a", 10))[8:]
    assert seen[0] not in SourcePorts(7.0).of("a", 8)


def test_a_bind_that_fails_otherwise_is_the_probes_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(socket.socket):
        def bind(self, _address: object) -> None:  # type: ignore[override]
            raise OSError(errno.ENOBUFS, "short")

    monkeypatch.setattr(prober.socket, "socket", Refusing)
    probes = [Probe(0, "a", "tcp", "small", "127.0.0.1", 9, 1500)]
    found = prober.probe(lambda _: None, probes, ProbeSettings(5.0, 8), lambda _: None)
    assert found[0].status == "error"
