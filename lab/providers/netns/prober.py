"""The prober: run many probes at once from one thread, with one epoll loop.

Each probe gets a source port that its source has not used for a minute. Two connections to one
backend, one of them through a Service, differ at the backend only in their source port, and the
kernel, which chooses a port per destination, may choose the same one for both. The kernel's NAT
then changes the second. A data path that does not (Open vSwitch 3.1 in user space, conntrack.c)
assigns the second's answers to the first connection until that entry expires, and the probe fails
although nothing is wrong.
"""

from __future__ import annotations

import errno
import select
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from zlib import crc32

from lab.providers.netns import dns
from lab.providers.netns.exchange import (
    RESET_ON_CLOSE,
    Expired,
    InFlight,
    describe_failure,
    exchange_steps,
)
from lab.providers.netns.protocol import CannotProbeError
from lab.providers.provider import Outcome, Probe, ProbeSettings

FIRST, LAST = 32_768, 60_999
"""The kernel's default net.ipv4.ip_local_port_range."""
CYCLE_SECONDS = 60.0
"""A port is reused after this long, if its source opens fewer than 470 connections per second.
Open vSwitch 3.1 keeps a closed TCP connection for 45 s and a UDP one for at most 60 s
(lib/conntrack-tp.c)."""

_COUNT = LAST - FIRST + 1


class SourcePorts:
    """The next port of each source.

    A source's first port follows the clock, so that it continues after the last port that an
    earlier process can have used.

    Parameters
    ----------
    now
        Seconds of a clock that all processes on the machine share.

    """

    def __init__(self, now: float) -> None:
        self._begin = int(now * _COUNT / CYCLE_SECONDS)
        self._used: defaultdict[str, int] = defaultdict(int)

    def take_next(self, source: str, tries: int) -> Iterator[int]:
        """The next ``tries`` ports of the source."""
        for _ in range(tries):
            used = self._used[source]
            self._used[source] += 1
            yield FIRST + (self._begin + crc32(source.encode()) + used) % _COUNT


_RESOLV_DIRECTORY = Path("/run/resolv")

_BATCH = 8
"""Consecutive probes from one source: entering a namespace once for eight sockets costs almost
nothing, and no target gets many more probes at once than its share."""
_BURST = 16
"""Probes started before answers are read again."""
_EVENTS = 256
_TICK_SECONDS = 0.02
_GAP_SECONDS = 0.1
"""A round takes at most about 30 ms (256 large answers); a longer gap has another cause."""
_REPORT_SECONDS = 0.05
_PULSE, _PULSE_SECONDS = b"pulse", 0.05
_HELD_SECONDS = 30.0
"""Most seconds that deadlines wait for a responder that does not keep up."""
_DATAGRAMS_A_TARGET = 32
"""Large UDP probes to one address at once: each takes 8 KiB of its receive buffer, which
holds 416 KiB on an untuned machine."""
_PORTS_TRIED = 8
"""Ports to try, in case other programs use some, before the kernel chooses one."""
_SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Shortage of descriptors, memory or kernel queues: says nothing about the network."""
_REFUSALS, _FEWEST = 8, 16
"""After this many ENOBUFS the queue is the source's and permanently full, as a shared queue would
have drained in between: the probe fails. Others continue, at least ``_FEWEST`` at once."""


class Pulse:
    """Datagrams to the lab's responder, one at a time, which show whether it keeps up.

    It answers in turn: after a pulse, it has served everything that had arrived before. On a busy
    machine this can take longer than a probe's timeout, with nothing wrong in the network.

    Raises OSError if no responder listens at ``path``. Create it in the network namespace in which
    the responder was started, where the kernel names its sockets.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._sock.bind("")
        self._sent, self._answered = 0.0, True
        self._send(monotonic())

    def _send(self, now: float) -> None:
        self._sock.connect(self._path)  # refused once it has ended
        if self._answered:
            self._sock.send(_PULSE)
            self._sent, self._answered = now, False

    def is_late(self, now: float) -> bool:
        """Whether the last pulse has been under way for longer than a round; sends the next one."""
        with suppress(BlockingIOError):
            self._sock.recv(len(_PULSE))
            self._answered = True
        if now - self._sent < _PULSE_SECONDS:
            return False
        try:
            self._send(now)
        except OSError:
            return False
        return now - self._sent > _GAP_SECONDS

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


class AttendedClock:
    """A clock that counts a gap between two ticks as at most ``gap`` seconds.

    Deadlines on this clock do not expire while the process cannot run.
    """

    def __init__(self, now: float, gap: float) -> None:
        self.seconds = 0.0
        self._last = now
        self._gap = gap

    def tick(self, now: float, *, counts: bool = True) -> float:
        """Advance to ``now`` of the monotonic clock; call once per round.

        Returns the seconds by which it stands still because they do not count.
        """
        passed, self._last = now - self._last, now
        if not counts:
            return passed
        self.seconds += min(passed, self._gap)
        return 0.0


def interleave(probes: Sequence[Probe], batch: int) -> list[Probe]:
    """Order probes so that sources take turns and targets vary.

    Each source sends ``batch`` probes per turn and starts at a different place in its list:
    lists that all start with the same target would flood it.
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


def probe(  # noqa: PLR0913  where, what, how, and whom to tell
    enter: Callable[[str], None],
    probes: Sequence[Probe],
    settings: ProbeSettings,
    report: Callable[[Sequence[Outcome]], None],
    *,
    resolver: Callable[[str], Path] = _RESOLV_DIRECTORY.joinpath,
    pulse: Pulse | None = None,
) -> dict[int, Outcome]:
    """Run every probe and return an outcome for every key; never raises for a probe.

    Parameters
    ----------
    enter
        Moves the calling thread into the network namespace of the named pod or machine. The
        thread stays in the last one.
    probes
        The probes; keys must be unique.
    settings
        Seconds per exchange, and the number of probes in flight.
    report
        Called periodically, and once at the end, with the outcomes since the last call.
    resolver
        Returns the path of a source's resolver file.
    pulse
        To a responder that answers all probes; the time by which it is late does not count.

    """
    loop = _Loop(enter, settings, report, resolver, pulse)
    loop.run(interleave(probes, _BATCH))
    return loop.outcomes


class _Loop:
    def __init__(
        self,
        enter: Callable[[str], None],
        settings: ProbeSettings,
        report: Callable[[Sequence[Outcome]], None],
        resolver: Callable[[str], Path],
        pulse: Pulse | None,
    ) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self._enter = enter
        self._here: str | None = None
        self._timeout = settings.timeout
        self._limit = max(1, settings.in_flight)
        self._report = report
        self._reported = 0.0
        self._fresh: list[Outcome] = []
        """The outcomes that are not reported yet."""
        self._resolver_file = resolver
        self._known: dict[str, dns.ResolverFile] = {}
        self._epoll = select.epoll()
        self._clock = AttendedClock(monotonic(), _GAP_SECONDS)
        self._pulse = pulse
        self._held = 0.0
        self._ports = SourcePorts(monotonic())
        self._queue: deque[Probe] = deque()
        self._active = 0
        self._refusals: dict[int, int] = defaultdict(int)
        """The number of ENOBUFS errors, by probe key."""
        self._flights: dict[int, InFlight] = {}
        """Probes whose socket epoll watches, by file descriptor."""
        self._deadlines: deque[tuple[float, InFlight]] = deque()
        """In order, as all exchanges have the same timeout. An entry is stale if it differs from
        its flight's deadline."""
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
        self._report(self._fresh)

    def _round(self) -> None:
        wait = 0.0
        if self._deadlines and (not self._queue or self._active >= self._limit):
            left = self._deadlines[0][0] - self._clock.seconds
            wait = min(max(left, 0.0), _TICK_SECONDS)
        self._answer(wait)
        now = monotonic()
        late = self._pulse is not None and self._held < _HELD_SECONDS and self._pulse.is_late(now)
        self._held += self._clock.tick(now, counts=not late)
        self._expire()
        if now - self._reported > _REPORT_SECONDS:
            self._reported = now
            self._report(self._fresh)
            self._fresh = []

    def _answer(self, wait: float) -> bool:
        events = self._epoll.poll(wait, _EVENTS)
        for descriptor, _ in events:
            self._advance(self._flights[descriptor], expired=False)
        return bool(events)

    def _expire(self) -> None:
        """Expire overdue exchanges, after reading every answer that has arrived."""
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
            socket.inet_pton(socket.AF_INET, probe.address)  # connect would look up a name
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
        except Exception as error:  # noqa: BLE001  any error is this probe's outcome
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
        """Start an exchange; see :data:`lab.providers.netns.exchange.Open`."""
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
        for port in self._ports.take_next(source, _PORTS_TRIED):
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
            if isinstance(error, OSError) and error.errno in _SHORTAGE:
                raise
            raise CannotProbeError(f"cannot enter the namespace of '{source}': {error}") from error

    def _close(self, flight: InFlight) -> None:
        if flight.sock is not None:
            self._flights.pop(flight.sock.fileno(), None)
            flight.sock.close()
            flight.sock, flight.mask = None, 0

    def _fail(self, flight: InFlight, error: Exception) -> None:
        if (
            isinstance(error, OSError)
            and error.errno in _SHORTAGE
            and self._try_later(flight, error)
        ):
            self._end(flight)
            self._queue.append(flight.probe)
            return
        flight.status, flight.detail = describe_failure(error, flight.phase, self._timeout)
        if flight.sock is not None and flight.probe.protocol == "tcp":
            # Otherwise the kernel would retransmit for minutes.
            flight.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._finish(flight)

    def _try_later(self, flight: InFlight, error: OSError) -> bool:
        """True if the probe can be retried once others release their resources."""
        if self._active <= 1:
            return False
        key, queue = flight.probe.key, error.errno == errno.ENOBUFS
        self._refusals[key] += queue
        fewest = min(self._limit, _FEWEST if queue else 1)
        self._limit = max(fewest, self._active - 1)
        return self._refusals[key] < _REFUSALS

    def _finish(self, flight: InFlight) -> None:
        outcome = flight.outcome()
        self.outcomes[flight.probe.key] = outcome
        self._fresh.append(outcome)
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
