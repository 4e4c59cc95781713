"""Packets taken down at devices of many namespaces, by one process with a socket at each.

Runs inside a lab's holder. A packet socket stays at its device in whatever namespace, sees what
comes in before any rule and what goes out after all of them, and is gone with its process.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Self

from lab._errors import BrokenError
from lab.providers.capture import SNAP_BYTES, Direction, Frame, Taken, Tap

_EVERY_PROTOCOL = 0x0003
"""ETH_P_ALL of linux/if_ether.h."""
_TIMESTAMPS = 35
"""SO_TIMESTAMPNS of asm-generic/socket.h; also the kind of the control message."""
_TIMESPEC = struct.Struct("@ll")
_FORCE_BUFFER = 33
"""SO_RCVBUFFORCE of asm-generic/socket.h: beyond net.core.rmem_max, for who administers the
whole machine; anybody else's buffer is as long as that allows."""
_SOL_PACKET, _STATISTICS = 263, 6
_COUNTS = struct.Struct("=II")
"""tpacket_stats: packets and, among them, those dropped."""
_OUTGOING, _OTHER_HOST = 4, 3
"""Kinds of packets, of linux/if_packet.h."""
_QUIET_SECONDS = 0.05
_LINGER_SECONDS = 0.5
"""After the probe, wait for packets under way: until it is quiet, or at most this long."""

READY = "ready"
"""Told once every socket is open."""


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


def take_packets(
    enter: Callable[[str], None],
    taps: Sequence[Tap],
    limit: int,
    tell: Callable[[str], None],
    stop: int,
) -> list[Taken]:
    """Take down all that passes the taps until something can be read from ``stop``.

    Parameters
    ----------
    enter
        Puts the calling thread into the network namespace of the pod or machine of that name.
        The thread is left in the last one.
    taps
        Where to listen.
    limit
        Bytes kept of each tap.
    tell
        Called with ``READY`` once every tap is open.
    stop
        The descriptor of a pipe's reading end.

    """
    buffer = bytearray(SNAP_BYTES)
    listeners = [_Listener(tap, limit) for tap in taps]
    with ExitStack() as opened, select.epoll() as epoll:
        by_descriptor: dict[int, _Listener] = {}
        for one in listeners:
            _open(one, enter)
            if one.sock is not None:
                opened.enter_context(one.sock)
                by_descriptor[one.sock.fileno()] = one
                epoll.register(one.sock, select.EPOLLIN)
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
        return [one.taken() for one in listeners]


def _open(listener: _Listener, enter: Callable[[str], None]) -> None:
    tap = listener.tap
    sock = None
    try:
        enter(tap.place)
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        sock.setsockopt(socket.SOL_SOCKET, _TIMESTAMPS, 1)
        _lengthen(sock, listener.limit)
        sock.setblocking(False)
        sock.bind((tap.device, _EVERY_PROTOCOL))
    except (BrokenError, OSError) as error:
        if sock is not None:
            sock.close()
        listener.trouble = _why(tap, error)
        return
    listener.sock = sock


def _lengthen(sock: socket.socket, limit: int) -> None:
    """Have the kernel hold so many bytes for a reader that is late."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _FORCE_BUFFER, limit)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limit)


def _why(tap: Tap, error: BrokenError | OSError) -> str:
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
            Frame(_moment(extra), _direction(sender[2]), bytes(buffer[:kept]), length)
        )


def _next_packet(sock: socket.socket, buffer: bytearray) -> _Received | None:
    try:
        return sock.recvmsg_into([buffer], socket.CMSG_SPACE(_TIMESPEC.size), socket.MSG_TRUNC)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno != errno.ENETDOWN:
            raise
        return None  # reported once when a device is or goes down; it may come up again


def _moment(extra: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, _TIMESTAMPS):
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    raise AssertionError("the kernel gives every packet of such a socket its time")


def _direction(kind: int) -> Direction:
    if kind == _OUTGOING:
        return "out"
    return "other" if kind == _OTHER_HOST else "in"


class Stop:
    """A pipe that tells a listening child to end: made before the child is."""

    def __enter__(self) -> Self:
        self.reader, self._writer = os.pipe()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.reader)
        os.close(self._writer)

    def after(self, work: Callable[[], None]) -> None:
        """Do the work, and tell the child to end."""
        work()
        self.now()

    def now(self) -> None:
        """Tell the child to end."""
        os.write(self._writer, b".")
