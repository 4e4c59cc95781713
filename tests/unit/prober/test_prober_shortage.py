"""What the loop does when the kernel is short of something, with steps made for it."""

from __future__ import annotations

import errno
import socket
from select import EPOLLOUT

import pytest

from lab.providers.netns import prober
from lab.providers.netns.exchange import InFlight, Open, Steps
from lab.providers.provider import Outcome, Probe, ProbeSettings


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
def test_a_shortage_is_waited_out_while_others_are_under_way(
    monkeypatch: pytest.MonkeyPatch, shortage: int
) -> None:
    outcomes = probed(monkeypatch, count=4, shortage=shortage, times=1)
    assert [outcomes[key].status for key in range(4)] == ["ok"] * 4


def test_a_shortage_that_nobody_can_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = probed(monkeypatch, count=4, shortage=errno.ENOBUFS, times=99)
    assert [outcomes[key].status for key in range(4)] == ["ok", "ok", "ok", "error"]


def test_another_failure_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = probed(monkeypatch, count=4, shortage=errno.ECONNREFUSED, times=1)
    assert outcomes[3].status == "refused"
