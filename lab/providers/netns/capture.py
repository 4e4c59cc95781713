"""Capture packets on devices, or trace them through the kernel, in many namespaces at once.

Runs in one child inside a lab's holder. A packet socket stays bound to its device after the process
changes namespace, sees incoming packets before any rule and outgoing packets after all rules, and
closes with its process. Every ``nft`` of a trace ends with the process that starts it, and owns the
table that it loads: the kernel removes the table when its socket closes.
"""

from __future__ import annotations

import errno
import os
import re
import select
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic, sleep
from typing import IO, Any, NoReturn, Self

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab._log import one_line
from lab.providers.capture import (
    SNAP_BYTES,
    Direction,
    Frame,
    KernelTrace,
    RouteQuestion,
    Taken,
    Tap,
)
from lab.providers.netns import isolation
from lab.providers.netns.machine import run_captured
from lab.shells.shell import Completed

_EVERY_PROTOCOL = 0x0003
"""ETH_P_ALL of linux/if_ether.h."""
_TIMESTAMPS = 35
"""SO_TIMESTAMPNS of asm-generic/socket.h; also the kind of the control message."""
_TIMESPEC = struct.Struct("@ll")
_FORCE_BUFFER = 33
"""SO_RCVBUFFORCE of asm-generic/socket.h: exceeds net.core.rmem_max; needs CAP_NET_ADMIN in the
initial user namespace. Without it the buffer is limited by net.core.rmem_max."""
_SOL_PACKET, _STATISTICS = 263, 6
_COUNTS = struct.Struct("=II")
"""tpacket_stats: all packets, and how many of them were dropped."""
_DIRECTIONS: Mapping[int, Direction] = {4: "out", 3: "other"}
"""By packet type of linux/if_packet.h: PACKET_OUTGOING and PACKET_OTHERHOST."""
_QUIET_SECONDS = 0.05
_LINGER_SECONDS = 0.5
"""After the probe, wait for packets in flight: until none arrives for ``_QUIET_SECONDS``, or at
most this long."""

_IDLE_SECONDS = 1.0
_STREAMED_BYTES = 16 << 20
"""Bytes of a device's packets that are held until they are passed on."""

READY = "ready"
"""Sent once every socket is open, or every place is traced."""


@dataclass(slots=True)
class _Listener:
    tap: Tap
    limit: int
    sock: socket.socket | None = None
    trouble: str = ""
    frames: list[Frame] = field(default_factory=list)
    size: int = 0
    missed: int = 0

    def taken(self) -> Taken:
        if self.sock is not None:
            counts = self.sock.getsockopt(_SOL_PACKET, _STATISTICS, _COUNTS.size)
            self.missed += _COUNTS.unpack(counts)[1]
        return Taken(self.tap, tuple(self.frames), self.missed, self.trouble)

    def taken_so_far(self) -> Taken:
        """What was captured since the last call."""
        taken = self.taken()
        self.frames, self.size, self.missed = [], 0, 0
        return taken


def take_packets(
    enter: Callable[[str], None],
    taps: Sequence[Tap],
    limit: int,
    tell: Callable[[str], None],
    stop: int,
) -> list[Taken]:
    """Capture all packets at the taps until ``stop`` becomes readable.

    Parameters
    ----------
    enter
        Moves the calling thread into the network namespace of the named pod or machine. The
        thread stays in the last one.
    taps
        Where to listen.
    limit
        Bytes kept per tap.
    tell
        Called with ``READY`` once every tap is open.
    stop
        File descriptor of a pipe's read end.

    """
    buffer = bytearray(SNAP_BYTES)
    listeners = [_Listener(tap, limit) for tap in taps]
    with _opened(listeners, enter) as (by_descriptor, epoll):
        epoll.register(stop, select.EPOLLIN)
        tell(READY)
        ends: float | None = None
        while ends is None or monotonic() < ends:
            events = epoll.poll(None if ends is None else _QUIET_SECONDS)
            if not events:
                break
            for descriptor, _ in events:
                if descriptor == stop:
                    epoll.unregister(stop)
                    ends = monotonic() + _LINGER_SECONDS
                else:
                    _drain(by_descriptor[descriptor], buffer)
        return [listener.taken() for listener in listeners]


def stream_packets(
    enter: Callable[[str], None], tap: Tap, tell: Callable[[Taken], None]
) -> NoReturn:
    """Capture all packets at a tap, or at all devices of its place, until the process is killed.

    Parameters
    ----------
    enter
        As for :func:`take_packets`.
    tap
        Where to listen; an empty device is every one that the place has now.
    tell
        Called once for each device when its tap is open, then with the packets since the last
        call, at least every second.

    """
    buffer = bytearray(SNAP_BYTES)
    listeners = [_Listener(device, _STREAMED_BYTES) for device in _list_devices(enter, tap)]
    with _opened(listeners, enter) as (by_descriptor, epoll):
        for listener in listeners:
            tell(listener.taken())
        while True:
            events = epoll.poll(_IDLE_SECONDS)
            for descriptor, _ in events:
                _drain(by_descriptor[descriptor], buffer)
                tell(by_descriptor[descriptor].taken_so_far())
            if not events:
                tell(listeners[0].taken_so_far())


def _list_devices(enter: Callable[[str], None], tap: Tap) -> list[Tap]:
    if tap.device:
        return [tap]
    enter(tap.place)
    return [Tap(tap.place, name) for _, name in socket.if_nameindex()]


@contextmanager
def _opened(
    listeners: Sequence[_Listener], enter: Callable[[str], None]
) -> Iterator[tuple[Mapping[int, _Listener], select.epoll]]:
    """The listeners by the descriptors of their sockets, and an epoll of these, for the block."""
    with ExitStack() as opened, select.epoll() as epoll:
        by_descriptor: dict[int, _Listener] = {}
        for listener in listeners:
            _open(listener, enter)
            if listener.sock is not None:
                opened.enter_context(listener.sock)
                by_descriptor[listener.sock.fileno()] = listener
                epoll.register(listener.sock, select.EPOLLIN)
        yield by_descriptor, epoll


def _open(listener: _Listener, enter: Callable[[str], None]) -> None:
    tap = listener.tap
    sock = None
    try:
        enter(tap.place)
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        sock.setsockopt(socket.SOL_SOCKET, _TIMESTAMPS, 1)
        _set_buffer(sock, listener.limit)
        sock.setblocking(False)
        sock.bind((tap.device, _EVERY_PROTOCOL))
    except (BrokenError, OSError) as error:
        if sock is not None:
            sock.close()
        listener.trouble = _describe_error(tap, error)
        return
    listener.sock = sock


def _set_buffer(sock: socket.socket, limit: int) -> None:
    """Set the receive buffer to ``limit`` bytes, so that a slow reader loses nothing."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _FORCE_BUFFER, limit)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limit)


def _describe_error(tap: Tap, error: BrokenError | OSError) -> str:
    if isinstance(error, BrokenError):
        return f"{error.doing}: {error.happened}"
    if error.errno == errno.ENODEV:
        return f"there is no device '{tap.device}' in '{tap.place}'"
    return f"listening at '{tap.device}' in '{tap.place}': {error.strerror}"


_Received = tuple[int, list[tuple[int, int, bytes]], int, Any]
"""Length, ancillary data, flags and sender of a packet."""


def _drain(listener: _Listener, buffer: bytearray) -> None:
    sock = listener.sock
    assert sock is not None, "epoll knows it by its descriptor"
    while (packet := _next_packet(sock, buffer)) is not None:
        length, extra, _, sender = packet
        kept = min(length, len(buffer))
        if listener.size + kept > listener.limit:
            listener.missed += 1
            continue
        listener.size += kept
        listener.frames.append(
            Frame(
                _read_timestamp(extra),
                _DIRECTIONS.get(sender[2], "in"),
                bytes(buffer[:kept]),
                length,
            )
        )


def _next_packet(sock: socket.socket, buffer: bytearray) -> _Received | None:
    try:
        return sock.recvmsg_into([buffer], socket.CMSG_SPACE(_TIMESPEC.size), socket.MSG_TRUNC)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno != errno.ENETDOWN:
            raise
        return None  # reported once per device that is or goes down; it may come up again


def _read_timestamp(extra: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, _TIMESTAMPS):
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    raise AssertionError("the kernel gives every packet of such a socket its time")


class Stop:
    """A pipe that signals a capturing child to stop; create it before the fork."""

    def __enter__(self) -> Self:
        self.reader, self._writer = os.pipe()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.reader)
        os.close(self._writer)

    def after(self, work: Callable[[], None]) -> None:
        """Do the work, then signal the child to stop."""
        work()
        self.now()

    def now(self) -> None:
        """Signal the child to stop."""
        os.write(self._writer, b".")


_COUNTERS = ("snmp", "netstat", "xfrm_stat", "dev")
_NETFILTER, _TRACE_GROUP = "12", 1 << 8
"""NETLINK_NETFILTER of linux/netlink.h, and the bit of NFNLGRP_NFTRACE."""
_READY_SECONDS = 5.0
_MARKED = re.compile(r"meta mark set (0x[0-9a-f]+)")
"""The mark in a traced rule; routes are then looked up with it."""
_NFT = "nft"
_TRACER = ("setpriv", "--pdeathsig", "KILL", "--", _NFT, "-a", "-i")
_QUEUES = ("tc", "-statistics", "qdisc", "show")
_SCHEDULER = Path("/proc/thread-self/net/psched")
"""Made by the part of the kernel that schedules packets (net/sched/sch_api.c)."""


@dataclass(slots=True)
class _Tracer:
    place: str
    output: IO[str]
    process: subprocess.Popen[str] | None = None
    before: str = ""
    troubles: list[str] = field(default_factory=list)
    """What cannot be asked there, and why."""


def trace_apart(
    enter: Callable[[str], None],
    places: Mapping[str, Sequence[RouteQuestion]],
    table: str,
    tell: Callable[[str], None],
    stop: int,
) -> list[KernelTrace]:
    """:func:`trace_kernel` as process 1 of a pid namespace."""
    isolation.mount("proc", "/proc", "proc", isolation.MS_NOSUID | isolation.MS_NODEV)
    os.environ["PATH"] = isolation.search_path()
    return trace_kernel(enter, places, table, tell, stop)


def trace_kernel(
    enter: Callable[[str], None],
    places: Mapping[str, Sequence[RouteQuestion]],
    table: str,
    tell: Callable[[str], None],
    stop: int,
) -> list[KernelTrace]:
    """Trace in every place until ``stop`` becomes readable.

    Parameters
    ----------
    enter
        Moves the calling thread into the named network namespace.
    places
        Pods and machines, each with the routes to query there after tracing.
    table
        The nftables table to load; it marks the packets to trace.
    tell
        Called with ``READY`` once every place is traced.
    stop
        File descriptor of a pipe's read end.

    """
    with ExitStack() as files:
        tracers = [_Tracer(place, files.enter_context(TemporaryFile("w+"))) for place in places]
        for tracer in tracers:
            _begin(tracer, enter, table)
        for tracer in tracers:
            _wait_until_traced(tracer, enter)
        tell(READY)
        select.select([stop], [], [])
        _wait_until_quiet(tracers)
        return [_end(tracer, enter, places[tracer.place]) for tracer in tracers]


def _begin(tracer: _Tracer, enter: Callable[[str], None], table: str) -> None:
    try:
        enter(tracer.place)
        tracer.before = _read_counters(tracer.troubles)
        if shutil.which(_NFT) is None:
            tracer.troubles.append(f"there is no '{_NFT}'")
            return
        tracer.process = subprocess.Popen(  # noqa: S603  a system program
            [*_TRACER],
            stdin=subprocess.PIPE,
            stdout=tracer.output,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert tracer.process.stdin is not None, "it is a pipe"
        tracer.process.stdin.write(f"{table}\nmonitor trace\n")
        tracer.process.stdin.flush()
    except (BrokenError, OSError) as error:
        tracer.troubles.append(str(error))


def _wait_until_traced(tracer: _Tracer, enter: Callable[[str], None]) -> None:
    if tracer.process is None:
        return
    enter(tracer.place)
    try:
        Deadline(_READY_SECONDS).wait(f"nft to trace in '{tracer.place}'", _is_traced)
    except DeadlineError as error:
        tracer.troubles.append(_stop(tracer).strip() or str(error))


def _stop(tracer: _Tracer) -> str:
    """End a tracer's process, if it has one; what it printed."""
    if tracer.process is None:
        return ""
    tracer.process.kill()
    with suppress(BrokenPipeError):  # it may have read nothing
        tracer.process.communicate()
    tracer.process = None
    tracer.output.seek(0)
    return tracer.output.read()


def _is_traced() -> bool:
    rows = Path("/proc/thread-self/net/netlink").read_text(encoding="ascii").splitlines()[1:]
    fields = [row.split() for row in rows]
    return any(words[1] == _NETFILTER and int(words[3], 16) & _TRACE_GROUP for words in fields)


def _read_counters(troubles: list[str]) -> str:
    """The counters of the current namespace; why queues have none is appended to ``troubles``."""
    texts = []
    for name in _COUNTERS:
        path = Path(f"/proc/thread-self/net/{name}")
        if path.exists():  # not every kernel has IPsec counters
            texts.append(path.read_text(encoding="ascii"))
    if _SCHEDULER.exists():  # else there are no queues, and no drops of theirs
        trouble = ""
        if shutil.which(_QUEUES[0]) is None:
            trouble = f"there is no '{_QUEUES[0]}'"
        elif (done := run_captured(_QUEUES)).code:
            trouble = f"reading counters by '{' '.join(_QUEUES)}': {_describe_exit(done)}"
        else:
            texts.append(done.stdout)
        if trouble and trouble not in troubles:
            troubles.append(trouble)
    return "".join(texts)


def _describe_exit(done: Completed) -> str:
    return one_line(done.stderr.strip()) or f"exit code {done.code}"


def _wait_until_quiet(tracers: Sequence[_Tracer]) -> None:
    ends, size = monotonic() + _LINGER_SECONDS, -1
    while monotonic() < ends:
        now = sum(
            Path(f"/proc/self/fd/{tracer.output.fileno()}").stat().st_size for tracer in tracers
        )
        if now == size:
            return
        size = now
        sleep(_QUIET_SECONDS)


def _end(
    tracer: _Tracer, enter: Callable[[str], None], routes: Sequence[RouteQuestion]
) -> KernelTrace:
    traced, after = _stop(tracer), ""
    try:
        enter(tracer.place)
        after = _read_counters(tracer.troubles)
    except (BrokenError, OSError) as error:
        trouble = "; ".join((*tracer.troubles, str(error)))
        return KernelTrace(tracer.place, traced, trouble=trouble)
    mark = _MARKED.search(traced)
    answers = [(route, run_captured(route.command(mark[1] if mark else ""))) for route in routes]
    lookups = tuple(
        (question, (done.stdout or done.stderr).strip() or _describe_exit(done))
        for question, done in answers
    )
    trouble = "; ".join(tracer.troubles)
    return KernelTrace(tracer.place, traced, tracer.before, after, lookups, trouble)
