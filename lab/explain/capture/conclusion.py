"""Where the probe or its answer was last seen, in one sentence. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lab._log import quantity
from lab.explain.capture.frames import Quoted
from lab.explain.capture.trace import Row, Sight, Trace
from lab.providers.capture import Tap
from lab.topology.path import Passing

Kind = Literal[
    "unsent",
    "question-lost",
    "question-cut",
    "refused",
    "unanswered",
    "answer-lost",
    "answer-cut",
    "answered",
]
"""``cut``: a part of it went on; ``unanswered``: it arrived, and nobody said anything."""

_ICMP = {
    (3, 0): "network unreachable",
    (3, 1): "host unreachable",
    (3, 2): "protocol unreachable",
    (3, 3): "port unreachable",
    (3, 4): "fragmentation needed",
    (3, 9): "network prohibited",
    (3, 10): "host prohibited",
    (3, 13): "prohibited by a filter",
    (11, 0): "time to live exceeded",
    (11, 1): "fragments did not all come",
}
_REDIRECT = 5
_Way = Literal["question", "answer"]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What became of one probe."""

    kind: Kind
    sentence: str
    last: Tap | None = None
    """Where it was last seen, whole."""
    missing: Tap | None = None
    """Where it should have been seen next, and was not, or not whole."""


def conclude(trace: Trace, *, well: bool, owners: Mapping[str, str]) -> Conclusion:
    """What became of the probe.

    Parameters
    ----------
    trace
        What was seen of it.
    well
        Whether it was answered as it should be; then what was sent twice on the way is no loss.
    owners
        Whose each MAC is, in words.

    """
    words = _Words(owners)
    errors = _errors(trace)
    if not any(row.question.seen for row in trace.there):
        return _unsent(trace, errors)
    lost = None if well else _lost([row.question for row in trace.there])
    if lost is not None:
        return _broken(trace, lost, errors, words)
    if not any(row.answer.seen for row in trace.back):
        return _unanswered(trace, errors)
    if trace.reset is not None:
        return Conclusion("refused", f"{_refusal(trace)}{errors}", trace.there[-1].tap)
    lost = None if well else _lost([row.answer for row in trace.back])
    if lost is not None:
        return _broken_back(trace, lost, errors, words)
    return _answered(trace, errors, well=well)


def _unsent(trace: Trace, errors: str) -> Conclusion:
    if not trace.there:
        return Conclusion("unsent", f"no packet of it was seen{errors}")
    first = trace.there[0].tap
    sentence = f"no packet of it was seen at {first}, where it begins{errors}"
    return Conclusion("unsent", sentence, None, first)


def _unanswered(trace: Trace, errors: str) -> Conclusion:
    end = trace.there[-1]
    seen = f"last seen {_verb(end, 'question')} {end.tap}"
    if not trace.arrived:
        return Conclusion("question-lost", f"{seen}, and nowhere after that{errors}", end.tap)
    kind: Kind = "refused" if trace.errors else "unanswered"
    return Conclusion(kind, f"{seen}; no answer came from there{errors}", end.tap, end.tap)


def _answered(trace: Trace, errors: str, *, well: bool) -> Conclusion:
    home = trace.back[-1]
    after = (home.answer.first - trace.began) / 1e6
    came = f"the answer was seen {_verb(home, 'answer')} {home.tap} after {after:.2f} ms"
    if not well:
        there = max(row.question.covered for row in trace.there)
        back = max(row.answer.covered for row in trace.back)
        came += (
            f"; nothing was lost on the way: {quantity(there, 'byte')} went there and "
            f"{back:,} came back"
        )
    return Conclusion("answered", f"{came}{errors}", home.tap)


def _broken(trace: Trace, lost: int, errors: str, words: _Words) -> Conclusion:
    rows, sights = trace.there, [row.question for row in trace.there]
    kind: Kind = "question-cut" if _some(sights, lost) else "question-lost"
    if kind == "question-lost" and (trace.reset or trace.errors):
        kind = "refused"
    reset = f"; {_refusal(trace)}" if trace.reset else ""
    sentence = words.lost("", "question", rows, sights, lost)
    return Conclusion(kind, f"{sentence}{reset}{errors}", rows[lost - 1].tap, rows[lost].tap)


def _broken_back(trace: Trace, lost: int, errors: str, words: _Words) -> Conclusion:
    rows, sights = trace.back, [row.answer for row in trace.back]
    kind: Kind = "answer-cut" if _some(sights, lost) else "answer-lost"
    came = f"it came to {trace.there[-1].tap}, and its answer was "
    sentence = words.lost(came, "answer", rows, sights, lost)
    return Conclusion(kind, f"{sentence}{errors}", rows[lost - 1].tap, rows[lost].tap)


@dataclass(frozen=True, slots=True)
class _Words:
    """What is said of a loss."""

    owners: Mapping[str, str]

    def lost(
        self, before: str, way: _Way, rows: Sequence[Row], sights: Sequence[Sight], lost: int
    ) -> str:
        """Where it was last seen, and where not any more."""
        last, missing = rows[lost - 1], rows[lost]
        seen = f"{before}last seen {_verb(last, way)} {last.tap}{_carried(last, sights[lost - 1])}"
        does = "left" if _passing(missing, way) == "out" else "arrived at"
        mac = sights[lost].strangers_mac
        if mac:
            whose = self.owners.get(mac, "nobody")
            return (
                f"{seen}; at {missing.tap} it came in for the MAC {mac}, which the intent gives "
                f"to {whose}"
            )
        if not _some(sights, lost):
            return f"{seen}; it never {does} {missing.tap}"
        whole = max(one.covered for one in sights)
        part = max(one.covered for one in sights[lost:])
        return f"{seen}: of {quantity(whole, 'byte')} only {part:,} {does} {missing.tap}"


def _carried(row: Row, sight: Sight) -> str:
    if sight.tunnels:
        return f" (in {sight.tunnels})"
    return " (in no tunnel, which it should be in)" if row.tunnelled else ""


def _lost(sights: Sequence[Sight]) -> int | None:
    """The first device that, with all behind it, saw less than was sent; None where none did."""
    covered = [one.covered if one.seen else 0 for one in sights]
    most = max(covered)
    return next((at for at in range(1, len(covered)) if max(covered[at:]) < most), None)


def _some(sights: Sequence[Sight], lost: int) -> bool:
    return any(one.seen for one in sights[lost:])


def _refusal(trace: Trace) -> str:
    row = trace.reset
    assert row is not None, "it is asked for where there is one"
    return f"refused by a TCP RST, first seen {_verb(row, 'answer')} {row.tap}"


def _errors(trace: Trace) -> str:
    if not trace.errors:
        return ""
    first = trace.errors[0]
    words = icmp_words(first.error)
    passing = "leaving" if first.frame.direction == "out" else "arriving at"
    return f"; ICMP '{words}' from {first.inside.flow.source}, first seen {passing} {first.tap}"


def icmp_words(error: Quoted) -> str:
    """What an ICMP error says."""
    if error.kind == _REDIRECT:
        return "redirect"
    return _ICMP.get((error.kind, error.code), f"type {error.kind}, code {error.code}")


def _passing(row: Row, way: _Way) -> Passing | None:
    if way == "question" or row.passing is None:
        return row.passing
    return "in" if row.passing == "out" else "out"


def _verb(row: Row, way: _Way) -> str:
    passing = _passing(row, way)
    return "leaving" if passing == "out" else "arriving at"
