"""One probe under way: what it has learnt so far, and what its failure says of the network."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Generator, Mapping
from time import perf_counter

from lab.providers.netns.protocol import WireError
from lab.providers.provider import Outcome, Probe, ProbeStatus

Steps = Generator[int, None, None]
"""Yields the epoll events waited for; see :mod:`lab.providers.netns.exchange`."""

_STATUS: Mapping[int, ProbeStatus] = {
    errno.ECONNREFUSED: "refused",
    errno.EHOSTUNREACH: "no-route",
    errno.ENETUNREACH: "no-route",
    errno.ENETDOWN: "no-route",
    errno.EACCES: "no-route",  # a 'prohibit' route
    errno.EINVAL: "no-route",  # a 'blackhole' route
    errno.ETIMEDOUT: "timeout",
    errno.EPERM: "timeout",  # a packet filter of the source's own dropped it
    errno.ECONNRESET: "wrong",
    errno.EPIPE: "wrong",
    errno.EMSGSIZE: "wrong",
}
"""What an errno of connect, send or receive says of the network; any other says nothing."""


class Expired(Exception):  # noqa: N818  it is told, not raised by mistake
    """The exchange's time is up."""


class CannotProbeError(Exception):
    """The probe cannot be made at all; the text says why, a clause without a full stop."""


class Flight:
    """One probe under way, and what has been learnt so far."""

    __slots__ = (
        "address",
        "answer",
        "backends",
        "began",
        "deadline",
        "detail",
        "latency",
        "mask",
        "phase",
        "probe",
        "sock",
        "sources",
        "status",
        "steps",
    )

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.address = probe.address
        self.steps: Steps
        self.sock: socket.socket | None = None
        self.mask = 0
        """What epoll watches the socket for; 0 before it is registered."""
        self.deadline = 0.0
        self.began = 0.0
        """When the first packet was sent, by ``perf_counter``; 0 before."""
        self.phase = "start"
        """What is under way, the first word of a failure's detail."""
        self.status: ProbeStatus = "ok"
        self.detail = ""
        self.sources: dict[str, None] = {}
        self.backends: dict[str, None] = {}
        self.answer: str | None = None
        self.latency = -1.0

    def answered(self) -> None:
        """Note the latency of the first answer."""
        if self.latency < 0:
            self.latency = perf_counter() - self.began

    def seen(self, endpoint: str, client: str | None) -> None:
        """Note who answered, and the source that it saw if it says so."""
        self.answered()
        if client is not None:
            self.sources[client.rpartition(":")[0]] = None
        self.backends[endpoint] = None

    def outcome(self) -> Outcome:
        """What came of it."""
        latency = self.latency
        if latency < 0:
            latency = perf_counter() - self.began if self.began else 0.0
        first, *others = self.sources or (None,)
        return Outcome(
            self.probe.key,
            self.status,
            self.detail,
            first,
            tuple(self.backends),
            self.answer,
            latency * 1000,
            tuple(source for source in others if source is not None),
        )


def failure(error: Exception, phase: str, timeout: float) -> tuple[ProbeStatus, str]:
    """The status and the detail that an exception stands for."""
    match error:
        case Expired():
            return "timeout", f"{phase}: no reply in {timeout:g} s"
        case CannotProbeError():
            return "error", str(error)
        case WireError():
            return "wrong", f"{phase}: {error}"
        case OSError(errno=int(number)):
            what = os.strerror(number).lower()
            if number == errno.EPERM:
                what = "dropped by a packet filter on the way out"
            return _STATUS.get(number, "error"), f"{phase}: {what}"
    return "error", f"{phase}: {type(error).__name__}: {error}"
