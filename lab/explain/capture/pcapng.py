"""Packets as a pcapng file, which Wireshark, tshark and tcpdump read. Pure.

Blocks and options: draft-ietf-opsawg-pcapng. Times are nanoseconds; each interface has a
name and each packet its direction and, where there is one, a comment, which tshark filters by
(``frame.comment``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lab.providers.capture import SNAP_BYTES, Frame

_SECTION, _INTERFACE, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 5, 6
_ORDER_MARK, _MAJOR, _MINOR, _UNKNOWN_LENGTH = 0x1A2B3C4D, 1, 0, -1
_ETHERNET = 1
_COMMENT, _APPLICATION, _NAME, _TEXT, _RESOLUTION = 1, 4, 2, 3, 9
_NANOSECONDS = 9
_FLAGS, _DROPPED = 2, 5
_INBOUND, _OUTBOUND = 1, 2
_PROMISCUOUS = 4 << 2
"""Kind of reception: it was for another MAC."""


@dataclass(frozen=True, slots=True)
class Noted:
    """One packet, and what is known of it."""

    frame: Frame
    comment: str = ""


@dataclass(frozen=True, slots=True)
class CaptureInterface:
    """What was taken down at one device."""

    name: str
    text: str
    """What it is, in words."""
    packets: Sequence[Noted]
    missed: int = 0


def pcapng(interfaces: Sequence[CaptureInterface]) -> bytes:
    """One file with all of the interfaces, its packets in the order of time."""
    packets = sorted(
        (
            (noted.frame.at, number, noted)
            for number, one in enumerate(interfaces)
            for noted in one.packets
        ),
        key=lambda one: one[:2],
    )
    return b"".join(
        (
            _section(),
            *(_interface(one) for one in interfaces),
            *(_packet(number, noted) for _, number, noted in packets),
            *(_statistics(number, one) for number, one in enumerate(interfaces)),
        )
    )


def _section() -> bytes:
    body = struct.pack("<IHHq", _ORDER_MARK, _MAJOR, _MINOR, _UNKNOWN_LENGTH)
    return _block(_SECTION, body, [(_APPLICATION, b"hybridlab")])


def _interface(one: CaptureInterface) -> bytes:
    body = struct.pack("<HHI", _ETHERNET, 0, SNAP_BYTES)
    options = [
        (_NAME, one.name.encode()),
        (_TEXT, one.text.encode()),
        (_RESOLUTION, bytes([_NANOSECONDS])),
    ]
    return _block(_INTERFACE, body, options)


def _packet(number: int, noted: Noted) -> bytes:
    frame = noted.frame
    body = struct.pack("<I", number) + _moment(frame.at)
    body += struct.pack("<II", len(frame.data), frame.length) + _padded(frame.data)
    flags = _OUTBOUND if frame.direction == "out" else _INBOUND
    if frame.direction == "other":
        flags |= _PROMISCUOUS
    options = [(_FLAGS, struct.pack("<I", flags))]
    if noted.comment:
        options.append((_COMMENT, noted.comment.encode()))
    return _block(_PACKET, body, options)


def _statistics(number: int, one: CaptureInterface) -> bytes:
    last = max((noted.frame.at for noted in one.packets), default=0)
    body = struct.pack("<I", number) + _moment(last)
    return _block(_STATISTICS, body, [(_DROPPED, struct.pack("<Q", one.missed))])


def _moment(at: int) -> bytes:
    return struct.pack("<II", at >> 32, at & 0xFFFF_FFFF)


def _block(kind: int, body: bytes, options: Iterable[tuple[int, bytes]]) -> bytes:
    body += b"".join(
        struct.pack("<HH", code, len(value)) + _padded(value) for code, value in options
    )
    body += struct.pack("<HH", 0, 0)
    length = len(body) + 12
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
