"""Which source port each probe has: one that its source has not had for a minute.

Two connections to one backend, one of them by way of a Service, differ on the backend's side in
nothing but their source port. Left to the kernel, which chooses a port by the address that is
asked, they may have the same one. The kernel's own NAT then gives the second another; a data
path that does not (Open vSwitch 3.1 in user space, conntrack.c) takes the answers of the second
for the first's until that is forgotten, and the probe is lost to nobody's fault.

Pure; the clock is the caller's.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from zlib import crc32

from lab.providers.netns import dns
from lab.providers.netns.exchange import (
    Expired,
    InFlight,
    describe_failure,
    exchange_steps,
)
from lab.providers.netns.protocol import CannotProbeError
from lab.providers.provider import Outcome, Probe, ProbeSettings

FIRST, LAST = 32_768, 60_999
"""The kernel's own range, as net.ipv4.ip_local_port_range begins."""
CYCLE_SECONDS = 60.0
"""A port comes again after so long, where its source makes less than 470 connections a second.
Open vSwitch 3.1 remembers a closed TCP connection for 45 s and a UDP one for 60 s at most
(lib/conntrack-tp.c)."""

_COUNT = LAST - FIRST + 1


class SourcePorts:
    """The next port of each source.

    Where a source begins follows the clock, so that it goes on where another process, which did
    the batch before, can have ended at most.

    Parameters
    ----------
    now
        Seconds, by a clock that all processes of the machine share.

    """

    def __init__(self, now: float) -> None:
        self._begin = int(now * _COUNT / CYCLE_SECONDS)
        self._used: defaultdict[str, int] = defaultdict(int)

    def of(self, source: str, tries: int) -> Iterator[int]:
        """So many ports of the source, each the next one."""
        for _ in range(tries):
            used = self._used[source]
            self._used[source] += 1
            yield FIRST + (self._begin + crc32(source.encode()) + used) % _COUNT


_RESOLV_DIRECTORY = Path("/run/resolv")

_BATCH = 8
"""Probes of one source in a row: a namespace entered once for eight sockets costs next to
nothing, and no target has many more than its share at once."""
_BURST = 16
"""Probes started before answers are looked at again."""
_EVENTS = 256
_TICK_SECONDS = 0.02
_GAP_SECONDS = 0.1
"""A round takes some 30 ms at most (256 large answers); a longer gap is somebody else's."""
_REPORT_SECONDS = 0.05
_DATAGRAMS_A_TARGET = 32
"""Large UDP probes at one address at once: they take 8 KiB of its receive buffer each, which
on an untuned machine holds 416 KiB."""
_PORTS_TRIED = 8
"""Of a source, before the kernel is left to choose one: somebody else may have some."""
_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Shortage of descriptors, memory or kernel queues: says nothing of the network."""
_REFUSALS, _FEWEST = 8, 16
"""A queue that refuses a probe's packets this often is its source's own and full: the probe fails,
and others go on, at least this many at once. A queue that many probes share drains between."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class AttendedClock:
    """Seconds in which somebody looked: a gap longer than ``gap`` counts as ``gap``.

    Deadlines on this clock do not pass while the process is kept from running.
    """

    def __init__(self, now: float, gap: float) -> None:
        self.seconds = 0.0
        self._last = now
        self._gap = gap

    def tick(self, now: float) -> None:
        """Take note of the monotonic clock; to be called once a round."""
        self.seconds += min(now - self._last, self._gap)
        self._last = now


def interleave(probes: Sequence[Probe], batch: int) -> list[Probe]:
    """Put probes in an order in which sources take turns and targets differ.

    Each source has ``batch`` probes at its turn, and starts at another place of its list:
    lists that all begin with one target would flood it.
    """
    lists: dict[str, list[Probe]] = defaultdict(list)
    for probe in probes:
        lists[probe.source].append(probe)
    turned = []
    for place, own in enumerate(lists.values()):
        start = place * len(own) // len(lists)
        turned.append(own[start:] + own[:start])
    longest = max(map(len, turned), default=0)
    return [
        probe
        for start in range(0, longest, batch)
        for own in turned
        for probe in own[start : start + batch]
    ]


def probe(
    enter: Callable[[str], None],
    probes: Sequence[Probe],
    settings: ProbeSettings,
    progress: Callable[[int], None],
    *,
    resolver: Callable[[str], Path] = _RESOLV_DIRECTORY.joinpath,
) -> dict[int, Outcome]:
    """Try every probe and return an outcome for every key; never raises for a probe.

    Parameters
    ----------
    enter
        Puts the calling thread into the network namespace of the pod or machine of that name.
        The thread is left in the last one.
    probes
        What to try; keys differ.
    settings
        Seconds for one exchange, and how many probes may be under way at once.
    progress
        Told now and then, and at the end, how many probes have ended so far.
    resolver
        Path of a source's resolver file, by the source's name.

    """
    loop = _Loop(enter, settings, progress, resolver)
    loop.run(interleave(probes, _BATCH))
    return loop.outcomes


class _Loop:
    def __init__(
        self,
        enter: Callable[[str], None],
        settings: ProbeSettings,
        progress: Callable[[int], None],
        resolver: Callable[[str], Path],
    ) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self._enter = enter
        self._here: str | None = None
        self._timeout = settings.timeout
        self._limit = max(1, settings.in_flight)
        self._progress = progress
        self._reported = 0.0
        self._resolver_file = resolver
        self._known: dict[str, dns.ResolverFile] = {}
        self._epoll = select.epoll()
        self._clock = AttendedClock(monotonic(), _GAP_SECONDS)
        self._ports = SourcePorts(monotonic())
        self._queue: deque[Probe] = deque()
        self._active = 0
        self._refusals: dict[int, int] = defaultdict(int)
        """How often a queue has taken nothing of a probe, by its key."""
        self._flights: dict[int, InFlight] = {}
        """By descriptor: those whose socket epoll watches."""
        self._deadlines: deque[tuple[float, InFlight]] = deque()
        """In order, as all exchanges have one timeout; an entry of an exchange that has
        ended differs from its flight's deadline."""
        self._large: dict[str, int] = defaultdict(int)
        self._waiting: dict[str, deque[Probe]] = defaultdict(deque)

    def run(self, probes: Sequence[Probe]) -> None:
        self._queue.extend(probes)
        with self._epoll:
            while self._queue or self._active:
                for _ in range(_BURST):
                    if not self._queue or self._active >= self._limit:
                        break
                    self._start(self._queue.popleft())
                self._round()
        self._progress(len(self.outcomes))

    def _round(self) -> None:
        wait = 0.0
        if self._deadlines and (not self._queue or self._active >= self._limit):
            left = self._deadlines[0][0] - self._clock.seconds
            wait = min(max(left, 0.0), _TICK_SECONDS)
        self._answer(wait)
        now = monotonic()
        self._clock.tick(now)
        self._expire()
        if now - self._reported > _REPORT_SECONDS:
            self._reported = now
            self._progress(len(self.outcomes))

    def _answer(self, wait: float) -> bool:
        events = self._epoll.poll(wait, _EVENTS)
        for descriptor, _ in events:
            self._advance(self._flights[descriptor], expired=False)
        return bool(events)

    def _expire(self) -> None:
        """End what is overdue, after all that has come by now has been taken."""
        drained = False
        while self._deadlines:
            deadline, flight = self._deadlines[0]
            if flight.deadline == deadline:
                if deadline > self._clock.seconds:
                    return
                if not drained:
                    while self._answer(0.0):
                        pass
                    drained = True
                    continue
            self._deadlines.popleft()
            if flight.deadline == deadline:
                flight.deadline = 0.0
                self._advance(flight, expired=True)

    def _start(self, probe: Probe) -> None:
        if probe.protocol == "udp" and probe.size == "large":
            if self._large[probe.address] >= _DATAGRAMS_A_TARGET:
                self._waiting[probe.address].append(probe)
                return
            self._large[probe.address] += 1
        self._active += 1
        flight = InFlight(probe)
        try:
            socket.inet_pton(socket.AF_INET, probe.address)  # a name here would be looked up
            resolver = None if probe.name is None else self._resolver(probe.source)
        except (OSError, CannotProbeError) as error:
            self._fail(flight, error)
            return
        flight.steps = exchange_steps(flight, self._open, resolver)
        self._advance(flight, expired=False)

    def _resolver(self, source: str) -> dns.ResolverFile:
        if source not in self._known:
            path = self._resolver_file(source)
            try:
                self._known[source] = dns.read_resolver(path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError) as error:
                raise CannotProbeError(f"cannot read the resolver file '{path}': {error}") from None
        return self._known[source]

    def _advance(self, flight: InFlight, *, expired: bool) -> None:
        try:
            rounds = flight.rounds
            mask = flight.steps.throw(Expired()) if expired else next(flight.steps)
            if flight.rounds != rounds:
                self._set_deadline(flight)
            if mask != flight.mask:
                self._watch(flight, mask)
        except StopIteration:
            self._finish(flight)
        except Exception as error:  # noqa: BLE001  whatever it is, it is this probe's outcome
            self._fail(flight, error)

    def _watch(self, flight: InFlight, mask: int) -> None:
        assert flight.sock is not None
        descriptor = flight.sock.fileno()
        if flight.mask:
            self._epoll.modify(descriptor, mask)
        else:
            self._epoll.register(descriptor, mask)
            self._flights[descriptor] = flight
        flight.mask = mask

    def _open(self, flight: InFlight, kind: int) -> socket.socket:
        """Begin an exchange: see :data:`lab.providers.netns.exchange.Open`."""
        self._close(flight)
        source = flight.probe.source
        if source != self._here:
            self._here = None
            self._go(source)
            self._here = source
        sock = socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        flight.sock = sock
        self._bind(sock, source)
        self._set_deadline(flight)
        return sock

    def _set_deadline(self, flight: InFlight) -> None:
        flight.deadline = self._clock.seconds + self._timeout
        self._deadlines.append((flight.deadline, flight))

    def _bind(self, sock: socket.socket, source: str) -> None:
        for port in self._ports.of(source, _PORTS_TRIED):
            try:
                sock.bind(("", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return

    def _go(self, source: str) -> None:
        try:
            self._enter(source)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _SHORT:
                raise
            raise CannotProbeError(f"cannot enter the namespace of '{source}': {error}") from error

    def _close(self, flight: InFlight) -> None:
        if flight.sock is not None:
            self._flights.pop(flight.sock.fileno(), None)
            flight.sock.close()
            flight.sock, flight.mask = None, 0

    def _fail(self, flight: InFlight, error: Exception) -> None:
        if isinstance(error, OSError) and error.errno in _SHORT and self._try_later(flight, error):
            self._end(flight)
            self._queue.append(flight.probe)
            return
        flight.status, flight.detail = describe_failure(error, flight.phase, self._timeout)
        if flight.sock is not None and flight.probe.protocol == "tcp":
            # Else the kernel would go on sending for minutes what nobody waits for.
            flight.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._finish(flight)

    def _try_later(self, flight: InFlight, error: OSError) -> bool:
        """Whether there is something to wait for: the others will give theirs back."""
        if self._active <= 1:
            return False
        key, queue = flight.probe.key, error.errno == errno.ENOBUFS
        self._refusals[key] += queue
        fewest = min(self._limit, _FEWEST if queue else 1)
        self._limit = max(fewest, self._active - 1)
        return self._refusals[key] < _REFUSALS

    def _finish(self, flight: InFlight) -> None:
        self.outcomes[flight.probe.key] = flight.outcome()
        self._end(flight)

    def _end(self, flight: InFlight) -> None:
        self._close(flight)
        flight.deadline = 0.0
        self._active -= 1
        probe = flight.probe
        if probe.protocol == "udp" and probe.size == "large":
            self._large[probe.address] -= 1
            if self._waiting[probe.address]:
                self._queue.appendleft(self._waiting[probe.address].popleft())
