"""What happened to a probe: whether it was lost, and between which two points. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab._log import quantity
from lab.explain.capture.packets import Quoted
from lab.explain.capture.trace import (
    Change,
    Message,
    Point,
    Row,
    Sight,
    Trace,
    find_change,
    find_loss,
    find_passing,
    make_point,
)

Kind = Literal[
    "unknown",
    "unsent",
    "question-lost",
    "question-cut",
    "refused",
    "unanswered",
    "answer-lost",
    "answer-cut",
    "untaken",
    "answered",
]
"""``unknown``: nothing can be captured where it begins; ``cut``: only a part was forwarded;
``unanswered``: the request arrived, but no answer or only a part of it was sent; ``untaken``: the
answer was not accepted.
"""


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


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What happened to one probe."""

    kind: Kind
    sentence: str
    last: Point | None = None
    """Where it was last seen completely."""
    missing: Point | None = None
    """Where it should have been seen next, but was missing or incomplete."""
    lost: Message = "question"
    """Which of the two is lost."""
    change: Change | None = None
    """The first change on the way before that, or None."""


def conclude(
    trace: Trace,
    *,
    well: bool,
    owners: Mapping[str, str],
    heard: bool = False,
    refusal: bool = False,
) -> Conclusion:
    """What happened to the probe.

    Parameters
    ----------
    trace
        Its captured packets.
    well
        Whether it was answered as expected; retransmissions are then no loss.
    owners
        Owner of each MAC, as text.
    heard
        Whether the source got an answer nevertheless, even if not the expected one.
    refusal
        Whether an ICMP error is the answer that is expected.

    """
    conclusion = _conclude(trace, well=well, owners=owners, heard=heard)
    if refusal and not heard and conclusion.lost == "question":
        conclusion = _lost_error(trace, conclusion) or conclusion
    change = None if well else find_change(trace)
    if change is None:
        return conclusion
    return replace(conclusion, sentence=f"{change.sentence}; {conclusion.sentence}", change=change)


def _conclude(trace: Trace, *, well: bool, owners: Mapping[str, str], heard: bool) -> Conclusion:
    errors = _errors(trace)
    if not any(row.question.seen for row in trace.request):
        return _unsent(trace, errors)
    answered = any(row.answer.seen for row in trace.reply)
    lost = None if well else find_loss([row.question for row in trace.request])
    if lost is not None and answered and all(row.blind for row in trace.request[lost:]):
        lost = None  # it arrived, or there would be no answer
    if lost is not None:
        return _broken(trace, "question", lost, errors, owners)
    if not answered:
        return _unanswered(trace, errors)
    if trace.reset is not None:
        last, missing = (
            make_point(trace.request[-1], "question"),
            make_point(trace.reply[0], "answer"),
        )
        return Conclusion("refused", f"{_refusal(trace)}{errors}", last, missing)
    lost = None if well else find_loss([row.answer for row in trace.reply])
    if lost is not None:
        return _broken(trace, "answer", lost, errors, owners)
    return _answered(trace, errors, well=well or heard)


def _unsent(trace: Trace, errors: str) -> Conclusion:
    if not trace.request:
        return Conclusion("unsent", f"no packet of it was seen{errors}")
    first = make_point(trace.request[0], "question")
    if trace.request[0].blind:
        sentence = f"nothing can be captured at {first.tap}, where it begins{errors}"
        return Conclusion("unknown", sentence)
    sentence = f"no packet of it was seen at {first.tap}, where it begins{errors}"
    return Conclusion("unsent", sentence, None, first)


def _unanswered(trace: Trace, errors: str) -> Conclusion:
    end = trace.request[-1]
    last = make_point(end, "question")
    if not trace.arrived:
        sentence = f"last seen {last}, and nowhere after that{errors}"
        return Conclusion("question-lost", sentence, last)
    kind: Kind = "refused" if trace.errors else "unanswered"
    missing = make_point(trace.reply[0], "answer") if trace.reply else last
    return Conclusion(kind, f"last seen {last}; no answer came from there{errors}", last, missing)


def _lost_error(trace: Trace, conclusion: Conclusion) -> Conclusion | None:
    """Where an ICMP error that was sent back got lost; None if there is none, or it came back."""
    error_at = {error.tap: error for error in trace.errors if error.frame.direction != "other"}
    back = [at for at, row in enumerate(trace.request) if row.tap in error_at]
    if not back or back[0] == 0:
        return None
    error = error_at[trace.request[back[0]].tap]
    last = Point(error.tap, "out" if error.frame.direction == "out" else "in")
    missing = Point(trace.request[back[0] - 1].tap, None)
    sentence = f"{conclusion.sentence}, last seen {last}; it was not seen at {missing.tap}"
    return replace(conclusion, sentence=sentence, last=last, missing=missing, lost="answer")


def _answered(trace: Trace, errors: str, *, well: bool) -> Conclusion:
    home = make_point(trace.reply[-1], "answer")
    after = (trace.reply[-1].answer.first - trace.began) / 1e6
    came = f"the answer was seen {home} after {after:.2f} ms"
    if well:
        return Conclusion("answered", f"{came}{errors}", home)
    sent = max(row.question.covered for row in trace.request)
    back = max(row.answer.covered for row in trace.reply)
    went = f"{quantity(sent, 'byte')} went there and {back:,} came back"
    begins, ends = trace.request[0], trace.request[-1]
    asks, answers = begins.question, trace.reply[-1].answer
    source, target = begins.tap.place, ends.tap.place
    arrived, leaves = make_point(ends, "question"), make_point(begins, "question")
    echoes = begins.asks is not None and begins.asks.protocol == "udp"
    taken = asks.confirms and not (answers.repeated and answers.data)
    waits = taken and _at_target(asks, answers)
    if trace.known and (back < sent if echoes else waits):
        answered = make_point(trace.reply[0], "answer")
        sentence = f"{went}, last seen {arrived}; what should follow never left {target}{errors}"
        return Conclusion("unanswered", sentence, arrived, answered, "answer")
    sentence = f"{came}, and {source} did not continue; {went}{errors}"
    return Conclusion("untaken", sentence, home, leaves, "answer")


def _at_target(asks: Sight, answers: Sight) -> bool:
    """Whether the server got the request but sends nothing, or accepts nothing."""
    return asks.repeated or (asks.data and not answers.data)


def _broken(
    trace: Trace, message: Message, lost: int, errors: str, owners: Mapping[str, str]
) -> Conclusion:
    """The request or the answer is lost, or only a part of it goes on."""
    kind: Kind
    came, reset = "", ""
    if message == "question":
        rows, sights = trace.request, [row.question for row in trace.request]
        kind = "question-cut" if _some(sights, lost) else "question-lost"
        if kind == "question-lost" and (trace.reset or trace.errors):
            kind = "refused"
        reset = f"; {_refusal(trace)}" if trace.reset else ""
    else:
        rows, sights = trace.reply, [row.answer for row in trace.reply]
        kind = "answer-cut" if _some(sights, lost) else "answer-lost"
        came = f"it came to {trace.request[-1].tap}, and its answer was "
    sentence = came + _words(owners, message, rows, sights, lost)
    last, missing = (make_point(row, message) for row in rows[lost - 1 : lost + 1])
    return Conclusion(kind, f"{sentence}{reset}{errors}", last, missing, message)


def _words(
    owners: Mapping[str, str],
    message: Message,
    rows: Sequence[Row],
    sights: Sequence[Sight],
    lost: int,
) -> str:
    """Where the packet was last seen, and where it was missing."""
    last, missing = rows[lost - 1], rows[lost]
    sighting = f"last seen {make_point(last, message)}{_carried(last, sights[lost - 1])}"
    does = "left" if find_passing(missing, message) == "out" else "arrived at"
    mac = sights[lost].strangers_mac
    if mac:
        whose = owners.get(mac, "").replace(" ", "'s ")
        whose = f"is {whose}" if whose else "no device of the lab has"
        return f"{sighting}; at {missing.tap} it came in for the MAC {mac}, which {whose}"
    if not _some(sights, lost):
        if missing.blind:
            return f"{sighting}; nothing can be captured at {missing.tap}, where it goes next"
        return f"{sighting}; it never {does} {missing.tap}"
    whole = max(sight.covered for sight in sights)
    part = max(sight.covered for sight in sights[lost:])
    return f"{sighting}: of {quantity(whole, 'byte')} only {part:,} {does} {missing.tap}"


def _carried(row: Row, sight: Sight) -> str:
    if sight.tunnels:
        return f" (in {sight.tunnels})"
    return " (not in a tunnel, but it should be)" if row.tunnelled else ""


def _some(sights: Sequence[Sight], lost: int) -> bool:
    return any(sight.seen for sight in sights[lost:])


def _refusal(trace: Trace) -> str:
    row = trace.reset
    assert row is not None, "it is asked for where there is one"
    return f"refused by a TCP RST, first seen {make_point(row, 'answer')}"


def _errors(trace: Trace) -> str:
    if not trace.errors:
        return ""
    first = trace.errors[0]
    words = icmp_words(first.error)
    passing = "leaving" if first.frame.direction == "out" else "arriving at"
    return f"; ICMP '{words}' from {first.inside.flow.source}, first seen {passing} {first.tap}"


def icmp_words(error: Quoted) -> str:
    """The meaning of an ICMP error."""
    if error.kind == _REDIRECT:
        return "redirect"
    return _ICMP.get((error.kind, error.code), f"type {error.kind}, code {error.code}")
