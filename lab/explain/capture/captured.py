"""One probe of a cell with all that was seen of it, and its files. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lab.explain.capture.conclusion import Conclusion
from lab.explain.capture.matching import Matched, Way
from lab.explain.capture.pcapng import CaptureInterface, Noted, pcapng
from lab.explain.capture.trace import Trace
from lab.matrix.cell import Cell, Expectation
from lab.matrix.verdict import GREEN, Verdict
from lab.providers.capture import Taken, Tap
from lab.providers.provider import Outcome

WHOLE = "path.pcapng"
"""Every hop in one file."""
_COMMENTS: dict[Way, str] = {"there": "the probe's question", "back": "the probe's answer"}
_ERROR = "an error about the probe"


@dataclass(frozen=True, slots=True)
class Captured:
    """One probe, and what was seen of it."""

    cell: Cell
    expectation: Expectation
    verdict: Verdict
    detail: str
    tried: int
    """The how manieth probe of the cell it is; those before were as expected."""
    outcome: Outcome
    trace: Trace
    conclusion: Conclusion
    taken: tuple[Taken, ...]
    matched: Matched
    end: str
    """Where the Intent itself leads no further; empty where the answer comes back."""
    onward: Conclusion | None = None
    """What became of the question that the DNS server asks another one before it answers."""

    @property
    def well(self) -> bool:
        """Whether what was expected came of it."""
        return self.verdict in GREEN

    def taps(self) -> tuple[Tap, ...]:
        """Every tap: those of the path that was taken in its order, then the others."""
        every = (*(row.tap for row in self.trace.rows), *(one.tap for one in self.taken))
        return tuple(dict.fromkeys(every))

    def file_of(self, tap: Tap) -> str:
        """``05-worker1-eth0.pcapng``: what passed the tap."""
        number = self.taps().index(tap) + 1
        return f"{number:02}-{tap.place}-{tap.device}.pcapng".replace("/", "_")


def files(captured: Captured) -> Iterator[tuple[str, bytes]]:
    """A file for each tap, in order, and one with all of them: name and content."""
    interfaces = {tap: _interface(captured, tap) for tap in captured.taps()}
    for tap, interface in interfaces.items():
        yield captured.file_of(tap), pcapng([interface])
    yield WHOLE, pcapng(list(interfaces.values()))


def _interface(captured: Captured, tap: Tap) -> CaptureInterface:
    taken = next(one for one in captured.taken if one.tap == tap)
    matched = captured.matched
    comments = {id(one.frame): _COMMENTS[one.way] for one in matched.passed if one.tap == tap}
    comments |= {id(one.frame): _ERROR for one in matched.errors if one.tap == tap}
    return CaptureInterface(
        f"{tap.place}:{tap.device}",
        f"device {tap.device} in the network namespace of {tap.place}",
        [Noted(frame, comments.get(id(frame), "")) for frame in taken.frames],
        taken.missed,
    )
