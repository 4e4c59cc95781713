"""How far a probe came, and its answer: what each device on the path saw, in order. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lab.explain.capture.frames import InnerPacket
from lab.explain.capture.matching import Matched, Passed, Refused, Unanswered, Way
from lab.providers.capture import Tap
from lab.topology.path import Passing, Station


@dataclass(frozen=True, slots=True)
class Sight:
    """What one device saw of one way, in one direction."""

    packets: int = 0
    covered: int = 0
    """Bytes of TCP's stream or of UDP datagrams that were seen, whatever was sent twice; the
    beginning and the end of a stream count as one each."""
    first: int = 0
    """Nanoseconds since 1970."""
    ends: str = ""
    """Addresses and ports of the first packet, as it is there."""
    tunnels: str = ""
    """The tunnels' own, from the outside in."""
    strangers_mac: str = ""
    """The MAC that it all came in for, where that is not the device's own: nobody took it."""

    @property
    def seen(self) -> bool:
        """Whether a packet passed."""
        return bool(self.packets) and not self.strangers_mac


NOTHING = Sight()


@dataclass(frozen=True, slots=True)
class Row:
    """One passing of one device: by the question and, the other way round, by its answer."""

    tap: Tap
    machine: str
    passing: Passing | None
    """The question's; the answer goes the other way. None where neither was seen nor expected."""
    there: bool
    """Whether the question is to pass; True of all that passed where no path is intended."""
    back: bool
    """The same of the answer."""
    question: Sight
    answer: Sight
    tunnelled: bool = False
    """Whether a tunnel of the Intent carries it here."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One probe from device to device."""

    rows: tuple[Row, ...]
    there: tuple[Row, ...]
    """The rows that the question passes, in its order."""
    back: tuple[Row, ...]
    """Those that the answer passes, in its order."""
    began: int
    """When the first packet was seen, nanoseconds since 1970; 0 where none was."""
    reset: Row | None
    """Where a TCP refusal was seen first; None where none was, or one only after an answer."""
    errors: tuple[Refused, ...]
    """ICMP errors, the first one first."""
    unanswered: tuple[Unanswered, ...]
    known: bool = True
    """Whether the path is the Intent's; else it is where packets were seen, in time's order."""
    arrived: bool = True
    """Where the path is not known: whether the question was seen where it is answered."""


Ways = tuple[Sequence[Station], Sequence[Station]]
"""The question's and the answer's."""


def trace(ways: Sequence[Ways], matched: Matched) -> Trace:
    """Of several intended paths, the one on which the probe came furthest.

    Parameters
    ----------
    ways
        At least one path, there and back.
    matched
        The probe's packets.

    """
    sights = _sights(matched.passed)
    traces = [_along(there, back, sights, matched) for there, back in ways]
    return max(traces, key=_distance)


def by_time(taps: Sequence[tuple[Tap, str]], ends: frozenset[str], matched: Matched) -> Trace:
    """Where no path is known: every tap that saw the question, in that order; then the others.

    Parameters
    ----------
    taps
        With their machines.
    ends
        Names of pods and machines of which one answers.
    matched
        The probe's packets.

    """
    machines = dict(taps)
    sights = {key: replace(one, strangers_mac="") for key, one in _sights(matched.passed).items()}
    rows = []
    for (tap, passing, way), sight in sorted(sights.items(), key=lambda one: one[1].first):
        if way == "there":
            answer = sights.get((tap, _turned(passing), "back"), NOTHING)
            rows.append(Row(tap, machines[tap], passing, True, True, sight, answer))
    back = sorted((one for one in rows if one.answer.seen), key=lambda one: one.answer.first)
    shown = {row.tap for row in rows}
    others = [
        Row(tap, machine, None, False, False, NOTHING, NOTHING)
        for tap, machine in taps
        if tap not in shown
    ]
    found = _whole([*rows, *others], tuple(rows), tuple(back), matched)
    return replace(found, known=False, arrived=any(tap.place in ends for tap in shown))


_Sights = Mapping[tuple[Tap, Passing, Way], Sight]


def _along(
    there: Sequence[Station], back: Sequence[Station], sights: _Sights, matched: Matched
) -> Trace:
    rows: dict[tuple[Tap, Passing], Row] = {}
    for station in there:
        key = Tap(station.place, station.device), station.passing
        question = _sight(sights, station, "there")
        rows[key] = Row(
            key[0], station.machine, key[1], True, False, question, NOTHING, station.tunnelled
        )
    asked = [(Tap(one.place, one.device), one.passing) for one in there]
    answered = []
    for station in back:
        key = Tap(station.place, station.device), _turned(station.passing)
        answer = _sight(sights, station, "back")
        row = rows.get(key) or Row(key[0], station.machine, key[1], False, False, NOTHING, NOTHING)
        rows[key] = replace(row, back=True, answer=answer, tunnelled=station.tunnelled)
        answered.append(key)
    return _whole(
        list(rows.values()),
        tuple(rows[key] for key in asked),
        tuple(rows[key] for key in answered),
        matched,
    )


def _whole(
    rows: Sequence[Row], there: tuple[Row, ...], back: tuple[Row, ...], matched: Matched
) -> Trace:
    began = min((one.frame.at for one in matched.passed), default=0)
    return Trace(
        tuple(rows),
        there,
        back,
        began,
        _reset(rows, matched.passed),
        matched.errors,
        matched.unanswered,
    )


def _distance(one: Trace) -> tuple[int, int]:
    return (
        sum(1 for row in one.there if row.question.seen),
        sum(1 for row in one.back if row.answer.seen),
    )


def _turned(passing: Passing) -> Passing:
    return "in" if passing == "out" else "out"


def _sight(sights: _Sights, station: Station, way: Way) -> Sight:
    """At a port everything comes in for another's MAC: it is no end of anything."""
    found = sights.get((Tap(station.place, station.device), station.passing, way), NOTHING)
    return replace(found, strangers_mac="") if station.kind == "port" else found


def _sights(passed: Iterable[Passed]) -> _Sights:
    groups: dict[tuple[Tap, Passing, Way], list[Passed]] = defaultdict(list)
    for one in passed:
        passing: Passing = "out" if one.frame.direction == "out" else "in"
        groups[one.tap, passing, one.way].append(one)
    return {key: _seen(found) for key, found in groups.items()}


def _seen(found: Sequence[Passed]) -> Sight:
    mine = [one for one in found if one.frame.direction != "other"]
    stranger = "" if mine else found[0].decoded.target_mac
    first = (mine or found)[0]
    return Sight(
        packets=len(mine or found),
        covered=_covered(one.inside for one in mine or found),
        first=first.frame.at,
        ends=str(first.inside.flow),
        tunnels=" in ".join(str(one) for one in reversed(first.decoded.outers)),
        strangers_mac=stranger,
    )


def _covered(packets: Iterable[InnerPacket]) -> int:
    """Bytes that were seen, each counted once; what ends by force and what confirms has none."""
    pieces: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for one in packets:
        if one.flags:
            length = one.data + one.opens + one.ends
            pieces["stream"].append((one.sequence, one.sequence + length))
        else:
            key = one.ident or ("digest", one.digest)
            pieces[key].append((one.offset, one.offset + one.length))
    return sum(_union(spans) for spans in pieces.values())


def _union(spans: Sequence[tuple[int, int]]) -> int:
    total, reached = 0, -1
    for begin, end in sorted(spans):
        total += max(end - max(begin, reached), 0)
        reached = max(reached, end)
    return total


def _reset(rows: Sequence[Row], passed: Sequence[Passed]) -> Row | None:
    """The row where the first refusal that answers the question came first."""
    answers = [one for one in passed if one.way == "back"]
    if not answers or not answers[0].inside.reset:
        return None
    first = answers[0]
    return next((row for row in rows if row.tap == first.tap), None)
