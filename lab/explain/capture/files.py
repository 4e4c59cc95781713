"""One probe of a cell with everything that was captured of it, and its pcapng files. Pure.

Blocks and options: draft-ietf-opsawg-pcapng, which Wireshark, tshark and tcpdump read. Times are
nanoseconds; each interface has a name, and each packet a direction and possibly a comment, by which
tshark filters (``frame.comment``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lab.explain.capture.conclusion import Conclusion
from lab.explain.capture.packets import Leg, Matched
from lab.explain.capture.trace import Trace
from lab.explain.kernel import KernelReport
from lab.matrix.cell import Cell, Expectation
from lab.matrix.verdict import GREEN, Verdict
from lab.providers.capture import SNAP_BYTES, Frame, Taken, Tap
from lab.providers.provider import Outcome

WHOLE = "path.pcapng"
"""Name of the file with all hops."""
_COMMENTS: dict[Leg, str] = {"request": "the probe's question", "reply": "the probe's answer"}
_ERROR = "an error about the probe"


@dataclass(frozen=True, slots=True)
class Captured:
    """One probe, and what was captured of it."""

    cell: Cell
    expectation: Expectation
    verdict: Verdict
    detail: str
    outcome: Outcome
    trace: Trace
    conclusion: Conclusion
    taken: tuple[Taken, ...]
    matched: Matched
    end: str
    """Where the Intent itself leads no further; empty if the answer comes back."""
    tried: int = 1
    """Number of the probe within its cell; those before it were as expected."""
    kernel: tuple[KernelReport, ...] = ()
    """What the kernel reported about it; empty if it was not traced."""
    untraced: tuple[tuple[str, str], ...] = ()
    """Places where the kernel could not be asked, each with the reason."""
    onward: Conclusion | None = None
    """The result of the query that the DNS server itself sends before it answers."""

    @property
    def well(self) -> bool:
        """Whether the result was as expected."""
        return self.verdict in GREEN

    def taps(self) -> tuple[Tap, ...]:
        """Every tap: those of the taken path in order, then the others."""
        every = (*(row.tap for row in self.trace.rows), *(capture.tap for capture in self.taken))
        return tuple(dict.fromkeys(every))

    def file_of(self, tap: Tap) -> str:
        """``05-worker1-eth0.pcapng``: the packets at the tap."""
        number = self.taps().index(tap) + 1
        return f"{number:02}-{tap.place}-{tap.device}.pcapng".replace("/", "_")


def files(captured: Captured) -> Iterator[tuple[str, bytes]]:
    """A file for each tap, in order, and one with all of them: name and content."""
    interfaces = {tap: _interface_of(captured, tap) for tap in captured.taps()}
    for tap, interface in interfaces.items():
        yield captured.file_of(tap), pcapng([interface])
    yield WHOLE, pcapng(list(interfaces.values()))


def _interface_of(captured: Captured, tap: Tap) -> CaptureInterface:
    taken = next(capture for capture in captured.taken if capture.tap == tap)
    matched = captured.matched
    comments = {
        id(packet.frame): _COMMENTS[packet.leg] for packet in matched.passed if packet.tap == tap
    }
    comments |= {id(error.frame): _ERROR for error in matched.errors if error.tap == tap}
    return CaptureInterface(
        *_names(tap),
        [Noted(frame, comments.get(id(frame), "")) for frame in taken.frames],
        taken.missed,
    )


def _names(tap: Tap) -> tuple[str, str]:
    """Name and description of the tap's interface."""
    return (
        f"{tap.place}:{tap.device}",
        f"device {tap.device} in the network namespace of {tap.place}",
    )


_SECTION, _INTERFACE, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 5, 6
_ORDER_MARK, _MAJOR, _MINOR, _UNKNOWN_LENGTH = 0x1A2B3C4D, 1, 0, -1
_ETHERNET = 1
_COMMENT, _APPLICATION, _NAME, _TEXT, _RESOLUTION = 1, 4, 2, 3, 9
_NANOSECONDS = 9
_FLAGS, _DROPPED = 2, 5
_INBOUND, _OUTBOUND = 1, 2
_PROMISCUOUS = 4 << 2
"""Reception type of a packet for another MAC."""


@dataclass(frozen=True, slots=True)
class Noted:
    """One packet with a comment."""

    frame: Frame
    comment: str = ""


@dataclass(frozen=True, slots=True)
class CaptureInterface:
    """The packets captured on one device."""

    name: str
    text: str
    """Description of the device."""
    packets: Sequence[Noted]
    missed: int = 0


def pcapng(interfaces: Sequence[CaptureInterface]) -> bytes:
    """One file with all interfaces, its packets in the order of time."""
    packets = sorted(
        (
            (noted.frame.at, number, noted)
            for number, interface in enumerate(interfaces)
            for noted in interface.packets
        ),
        key=lambda row: row[:2],
    )
    return b"".join(
        (
            _section(),
            *(_interface(interface) for interface in interfaces),
            *(_packet(number, noted) for _, number, noted in packets),
            *(_statistics(number, interface) for number, interface in enumerate(interfaces)),
        )
    )


class PcapngStream:
    """A file that is written while packets are captured."""

    def __init__(self) -> None:
        self._numbers: dict[Tap, int] = {}

    def add(self, taken: Taken) -> bytes:
        """The packets, after the beginning of the file and the block of their device if missing."""
        head = b"" if self._numbers else _section()
        if taken.tap not in self._numbers:
            self._numbers[taken.tap] = len(self._numbers)
            head += _interface(CaptureInterface(*_names(taken.tap), ()))
        number = self._numbers[taken.tap]
        return head + b"".join(_packet(number, Noted(frame)) for frame in taken.frames)


def _section() -> bytes:
    body = struct.pack("<IHHq", _ORDER_MARK, _MAJOR, _MINOR, _UNKNOWN_LENGTH)
    return _block(_SECTION, body, [(_APPLICATION, b"hybridlab")])


def _interface(interface: CaptureInterface) -> bytes:
    body = struct.pack("<HHI", _ETHERNET, 0, SNAP_BYTES)
    options = [
        (_NAME, interface.name.encode()),
        (_TEXT, interface.text.encode()),
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


def _statistics(number: int, interface: CaptureInterface) -> bytes:
    last = max((noted.frame.at for noted in interface.packets), default=0)
    body = struct.pack("<I", number) + _moment(last)
    return _block(_STATISTICS, body, [(_DROPPED, struct.pack("<Q", interface.missed))])


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
