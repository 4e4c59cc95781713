"""How far a probe and its answer came: what each device on the path saw, in order. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab.explain.capture.packets import (
    Leg,
    Matched,
    PacketEnds,
    Passed,
    Refused,
    Unanswered,
    covered,
    repeated,
)
from lab.providers.capture import Tap
from lab.topology.path import Packet, Passing, Station


@dataclass(frozen=True, slots=True)
class Sight:
    """What one device saw in one direction of one leg."""

    packets: int = 0
    covered: int = 0
    """Bytes of the TCP stream or the UDP datagrams, without duplicates; the beginning and the end
    of a stream count as one byte each.
    """
    first: int = 0
    """Nanoseconds since 1970."""
    flow: PacketEnds | None = None
    """Addresses and ports of the first packet at this device."""
    ttl: int = 0
    """TTL of the first packet; 0 if there was none."""
    data: bool = False
    """Whether a packet had content, beyond opening and closing a TCP connection."""
    confirms: bool = False
    """Whether a TCP packet acknowledged data."""
    repeated: bool = False
    """Whether TCP data was sent more than once."""
    tunnels: str = ""
    """The tunnels around it, from the outside in."""
    depth: int = 0
    """Number of tunnels around it."""
    strangers_mac: str = ""
    """The target MAC of all packets if it is not the device's own, so that no packet was
    accepted."""

    @property
    def seen(self) -> bool:
        """Whether any packet passed."""
        return bool(self.packets) and not self.strangers_mac


NOTHING = Sight()


@dataclass(frozen=True, slots=True)
class Row:
    """One passing of one device: by the request and, in the opposite direction, by its answer."""

    tap: Tap
    machine: str
    passing: Passing | None
    """The request's direction; the answer's is the opposite. None if neither was seen nor
    expected."""
    on_request: bool
    """Whether the request should pass; without an intended path, True for every device that it
    passed."""
    on_reply: bool
    """The same for the answer."""
    question: Sight
    answer: Sight
    tunnelled: bool = False
    """Whether the Intent has it in a tunnel here."""
    asks: Packet | None = None
    """The request as the Intent has it here; None if it should not pass."""
    answers: Packet | None = None
    """The answer as the Intent has it here."""
    exact: bool = False
    """Whether the capture shows the packet as the Intent has it at this device. A bridge may
    translate before its device shows a packet, and shows packets that are not translated yet.
    """
    blind: bool = False
    """Whether nothing can be captured there."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One probe from device to device."""

    rows: tuple[Row, ...]
    request: tuple[Row, ...]
    """The rows that the request passes, in order."""
    reply: tuple[Row, ...]
    """The rows that the answer passes, in order."""
    began: int
    """Time of the first packet, nanoseconds since 1970; 0 if there was none."""
    reset: Row | None
    """Where a TCP RST was first seen; None if there was none, or only after an answer."""
    errors: tuple[Refused, ...]
    """ICMP errors in the order of time."""
    unanswered: tuple[Unanswered, ...]
    known: bool = True
    """Whether the path is the Intent's; otherwise it is where packets were seen, in the order of
    time."""
    arrived: bool = True
    """If the path is not known: whether the request was seen where it is answered."""
    path_index: int = 0
    """Index of the intended path."""


Ways = tuple[Sequence[Station], Sequence[Station]]
"""The captured packets of the request and of the answer."""


def trace(
    ways: Sequence[Ways], matched: Matched, *, well: bool, blind: Collection[Tap] = ()
) -> Trace:
    """Among several intended paths, the one on which the probe came furthest.

    Parameters
    ----------
    ways
        At least one path, of request and reply.
    matched
        The probe's packets.
    well
        Whether it was answered as expected; else a path on which something is lost comes before
        one on which another try of it was answered.

    """
    # a path that ends at a card that is down has no stations
    ends = [request[-1].packet.target if request else "" for request, _ in ways]
    traces = [
        replace(_along(request, reply, _of_end(matched, end, ends), blind), path_index=number)
        for number, ((request, reply), end) in enumerate(zip(ways, ends, strict=True))
    ]
    return max(
        traces, key=lambda candidate: (not well and _is_lost(candidate), _distance(candidate))
    )


def _of_end(matched: Matched, end: str, ends: Collection[str]) -> Matched:
    """Without the packets of connections that translation led to another of the ends."""
    ports: dict[str, set[int | None]] = defaultdict(set)
    for packet in matched.passed:
        if packet.leg == "request" and packet.inside.flow.target in ends:
            ports[packet.inside.flow.target].add(packet.inside.flow.source_port)
    others = {port for other in ends if other != end for port in ports[other]} - ports[end]

    def is_own(packet: Passed) -> bool:
        flow = packet.inside.flow
        port = flow.source_port if packet.leg == "request" else flow.target_port
        return port is None or port not in others

    return replace(matched, passed=tuple(filter(is_own, matched.passed)))


def _is_lost(trace: Trace) -> bool:
    """Whether the probe was on this path, and something of it or its answer is missing there."""
    sights = [[row.question for row in trace.request], [row.answer for row in trace.reply]]
    if not any(sight.seen for sight in sights[0]):
        return False
    return any(
        not any(sight.seen for sight in each) or find_loss(each) is not None for each in sights
    )


def by_time(taps: Sequence[tuple[Tap, str]], ends: frozenset[str], matched: Matched) -> Trace:
    """Without a known path: every tap that saw the request, in that order; then the others.

    Parameters
    ----------
    taps
        Taps with their machines.
    ends
        Names of pods and machines of which one answers.
    matched
        The probe's packets.

    """
    machines = dict(taps)
    sights = {
        key: replace(sight, strangers_mac="") for key, sight in _sights(matched.passed).items()
    }
    rows = []
    for (tap, passing, leg), sight in sorted(sights.items(), key=lambda pair: pair[1].first):
        if leg == "request":
            answer = sights.get((tap, _turned(passing), "reply"), NOTHING)
            rows.append(Row(tap, machines[tap], passing, True, True, sight, answer))
    reply = sorted((row for row in rows if row.answer.seen), key=lambda row: row.answer.first)
    shown = {row.tap for row in rows}
    others = [
        Row(tap, machine, None, False, False, NOTHING, NOTHING)
        for tap, machine in taps
        if tap not in shown
    ]
    trace = _whole([*rows, *others], tuple(rows), tuple(reply), matched)
    return replace(trace, known=False, arrived=any(tap.place in ends for tap in shown))


_Sights = Mapping[tuple[Tap, Passing, Leg], Sight]


def _along(
    request: Sequence[Station], reply: Sequence[Station], matched: Matched, blind: Collection[Tap]
) -> Trace:
    sights = _sights(matched.passed)
    rows: dict[tuple[Tap, Passing], Row] = {}
    for station in request:
        key = Tap(station.place, station.device), station.passing
        question = _sight(sights, station, "request")
        rows[key] = Row(
            *(key[0], station.machine, key[1], True, False, question, NOTHING, station.tunnelled),
            asks=station.packet,
            exact=station.kind in _EXACT,
        )
    request_keys = [(Tap(station.place, station.device), station.passing) for station in request]
    answered = []
    for station in reply:
        key = Tap(station.place, station.device), _turned(station.passing)
        answer = _sight(sights, station, "reply")
        row = rows.get(key) or Row(key[0], station.machine, key[1], False, False, NOTHING, NOTHING)
        rows[key] = replace(
            row, on_reply=True, answer=answer, tunnelled=station.tunnelled, answers=station.packet,
            exact=station.kind in _EXACT,
        )  # fmt: skip
        answered.append(key)
    rows = {key: replace(row, blind=row.tap in blind) for key, row in rows.items()}
    bridges = {
        Tap(station.place, station.device)
        for station in (*request, *reply)
        if station.kind == "bridge"
    }
    return _whole(
        list(rows.values()),
        _shown([(rows[key], rows[key].question) for key in request_keys], bridges),
        _shown([(rows[key], rows[key].answer) for key in answered], bridges),
        matched,
    )


def _shown(rows: Sequence[tuple[Row, Sight]], bridges: Collection[Tap]) -> tuple[Row, ...]:
    """The rows without those of a bridge's own device that packets bypass from port to port.

    A packet that a Service's translation sends back to the same bridge is forwarded between ports.
    """
    unseen = [
        row.tap in bridges
        and not sight.packets
        and any(row.tap == other.tap for other, _ in beside)
        for at, (row, sight) in enumerate(rows)
        for beside in [[*rows[max(at - 1, 0) : at], *rows[at + 1 : at + 2]]]
    ]
    return tuple(row for (row, _), left_out in zip(rows, unseen, strict=True) if not left_out)


def _whole(
    rows: Sequence[Row], request: tuple[Row, ...], reply: tuple[Row, ...], matched: Matched
) -> Trace:
    began = min((packet.frame.at for packet in matched.passed), default=0)
    return Trace(
        tuple(rows),
        request,
        reply,
        began,
        _reset(rows, matched.passed),
        matched.errors,
        matched.unanswered,
    )


def _distance(trace: Trace) -> tuple[int, int, int]:
    return (
        sum(1 for row in trace.request if row.question.seen),
        sum(1 for row in trace.reply if row.answer.seen),
        -(find_change(trace) is not None),
    )


def _turned(passing: Passing) -> Passing:
    return "in" if passing == "out" else "out"


def _sight(sights: _Sights, station: Station, leg: Leg) -> Sight:
    """At a port, all packets are for other devices' MACs, since it is no end point."""
    sight = sights.get((Tap(station.place, station.device), station.passing, leg), NOTHING)
    return replace(sight, strangers_mac="") if station.kind == "port" else sight


def _sights(passed: Iterable[Passed]) -> _Sights:
    groups: dict[tuple[Tap, Passing, Leg], list[Passed]] = defaultdict(list)
    for packet in passed:
        passing: Passing = "out" if packet.frame.direction == "out" else "in"
        groups[packet.tap, passing, packet.leg].append(packet)
    return {key: _seen(packets) for key, packets in groups.items()}


def _seen(packets: Sequence[Passed]) -> Sight:
    own = [packet for packet in packets if packet.frame.direction != "other"]
    stranger = "" if own else packets[0].decoded.target_mac
    first = (own or packets)[0]
    return Sight(
        packets=len(own or packets),
        covered=covered(packet.inside for packet in own or packets),
        first=first.frame.at,
        flow=first.inside.flow,
        ttl=first.inside.ttl,
        data=any(packet.inside.data or not packet.inside.flags for packet in own or packets),
        confirms=any(packet.inside.confirms for packet in own or packets),
        repeated=repeated(packet.inside for packet in own or packets),
        tunnels=" in ".join(str(outer) for outer in reversed(first.decoded.outers)),
        depth=len(first.decoded.outers),
        strangers_mac=stranger,
    )


def _reset(rows: Sequence[Row], passed: Sequence[Passed]) -> Row | None:
    """The row where the first RST that answers the request was seen first."""
    answers = [packet for packet in passed if packet.leg == "reply"]
    if not answers or not answers[0].inside.reset:
        return None
    first = answers[0]
    return next((row for row in rows if row.tap == first.tap), None)


Message = Literal["question", "answer"]


@dataclass(frozen=True, slots=True)
class Point:
    """One passing of one device by the request or the answer."""

    tap: Tap
    passing: Passing | None

    def __str__(self) -> str:
        return f"{'leaving' if self.passing == 'out' else 'arriving at'} {self.tap}"


@dataclass(frozen=True, slots=True)
class Change:
    """A property of the packets that differs from the Intent from one point on."""

    last: Point | None
    """Where it was last right; None if it is wrong from the beginning."""
    first: Point
    sentence: str


def find_change(trace: Trace) -> Change | None:
    """The first property of the packets that differs from the Intent."""
    shown: dict[str, list[Packet]] = defaultdict(list)
    for row in trace.rows:
        for packet in filter(None, (row.asks, row.answers)):
            shown[row.tap.place] += (packet, packet.answered())
    requests = [(row, row.question, row.asks) for row in trace.request]
    reply = [(row, row.answer, row.answers) for row in trace.reply]
    begins = trace.request[0].tap.place if trace.request else ""
    return _changed(requests, "question", shown, "") or _changed(reply, "answer", shown, begins)


_EXACT = frozenset({"endpoint", "card"})


_LEAST_TTL = 32
"""Lowest TTL without an intended one: after few hops, as senders start with 64 or more."""


def _changed(
    rows: Sequence[tuple[Row, Sight, Packet | None]],
    message: Message,
    shown: Mapping[str, Sequence[Packet]],
    begins: str,
) -> Change | None:
    """``begins``: the place where a machine's own request never shows as before translation."""
    last: Point | None = None
    ttl = 0
    for row, sight, packet in rows:
        if not sight.seen or packet is None:
            continue
        here, place = make_point(row, message), row.tap.place
        wrong = ""
        if (row.exact or place != begins) and sight.depth <= row.tunnelled:
            packets = [packet, *(() if row.exact else shown[place])]
            wrong = _wrong_ends(sight, packets)
        if not wrong and sight.ttl < (ttl - 1 if ttl else _LEAST_TTL):
            wrong = f"TTL is {sight.ttl}"
        if wrong:
            since = f", last right {last}" if last else ""
            return Change(last, here, f"the {message}'s {wrong}, {here}{since}")
        last, ttl = here, sight.ttl
    return None


def _wrong_ends(sight: Sight, packets: Sequence[Packet]) -> str:
    """The address or port that is in none of the Intent's packets at this device."""
    flow, answer = sight.flow, packets[0].answer
    if flow is None:
        return ""
    port = flow.source_port if answer else flow.target_port
    for field, observed, wanted in (
        ("source", flow.source, [packet.source for packet in packets]),
        ("target", flow.target, [packet.target for packet in packets]),
        ("port", port, [packet.port for packet in packets]),
    ):
        if observed is not None and observed not in wanted:
            return f"{field} is {observed}, which should be {wanted[0]}"
    return ""


def find_loss(sights: Sequence[Sight]) -> int | None:
    """The first device that, like all after it, saw less than was sent, or None."""
    covered = [sight.covered if sight.seen else 0 for sight in sights]
    most = max(covered)
    return next((at for at in range(1, len(covered)) if max(covered[at:]) < most), None)


def find_passing(row: Row, message: Message) -> Passing | None:
    """Whether the request or the answer arrives at the device or leaves it; None if unknown."""
    if message == "question" or row.passing is None:
        return row.passing
    return _turned(row.passing)


def make_point(row: Row, message: Message) -> Point:
    """Where the request or the answer passes the device."""
    return Point(row.tap, find_passing(row, message))
