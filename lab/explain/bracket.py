"""The two points between which a probe is lost, and what that means for each difference. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lab.explain.capture.conclusion import Conclusion
from lab.explain.capture.files import Captured
from lab.explain.capture.trace import Change, Point, Row
from lab.explain.kernel import KernelReport
from lab.explain.topics import Topic, alters
from lab.facts.difference import DEVIATION, Difference
from lab.topology.intent import Intent
from lab.topology.routing import bare, own_addresses
from lab.topology.subject import IpSetSubject, SettingSubject

AT, NEXT, BEFORE, BEYOND = range(4)
_OF_MACS: frozenset[Topic] = frozenset(
    {"addresses", "macs", "neighbours", "entries", "forwarding", "arp"}
)
UNREPORTED = 2


@dataclass(frozen=True, slots=True)
class Bracket:
    """The two points of a loss, and which places of the path are before and after them."""

    sentence: str
    path_index: int
    """Index of the intended path."""
    loss_places: frozenset[str]
    """The pods and machines of the two points. If nothing was lost, every place that was passed; if
    the loss begins at a place without capture, every such place."""
    next_places: frozenset[str] = frozenset()
    """Where the packet would have come next: a silent machine there does not answer ARP first."""
    passed_places: tuple[str, ...] = ()
    """Places that were passed unharmed, the last first."""
    silent: bool = False
    """Whether an ARP request remained unanswered."""
    answer: bool = False
    """Whether the answer is lost instead of the request."""
    last: Point | None = None
    missing: Point | None = None
    change: Change | None = None
    """A change of the packets before that."""
    kernel: tuple[KernelReport, ...] = ()
    """What the kernel reported about the probe where it passed."""
    untraced: tuple[tuple[str, str], ...] = ()
    """Places where the kernel could not be asked, each with the reason."""

    def rank(self, difference: Difference) -> int:
        """How near a difference is: ``AT`` or ``NEXT`` to the loss, ``BEFORE`` or ``BEYOND`` it.

        A rule that drops the probe's own packets is at the loss.
        """
        if any(word.traced and word.drops and word.names(difference) for word in self.kernel):
            return AT
        if difference.kind == DEVIATION:
            return self._rank(difference.place)
        return min(self._rank(difference.place), self._rank(difference.node))

    def _rank(self, place: str) -> int:
        if place in self.loss_places:
            return AT
        if place in self.next_places:
            return NEXT
        return BEFORE if place in self.passed_places else BEYOND

    def kernel_rank(self, difference: Difference) -> int:
        """0 if the kernel reports that it drops the probe, 1 that it changes it.

        ``UNREPORTED`` if the kernel reports nothing of it.

        A rule that lets the probe pass counts only if packets were seen to be changed.
        """
        words = [word for word in self.kernel if word.names(difference)]
        if any(word.drops for word in words):
            return 0
        return 1 if words and self.change else UNREPORTED

    def dropping(self) -> frozenset[str]:
        """The places where a rule drops the probe's own packets."""
        return frozenset(word.place for word in self.kernel if word.traced and word.drops)

    def dropped(self) -> tuple[str, ...]:
        """Packets that the kernel reports as dropped where the probe was."""
        near = self.loss_places | self.next_places | {*self.passed_places}
        words = sorted(
            (word for word in self.kernel if word.drops and word.place in near),
            key=lambda word: word.place not in self.loss_places,
        )
        return tuple(dict.fromkeys(word.sentence for word in words))

    def allows(self, difference: Difference) -> bool:
        """Whether the loss can be due to a difference, as far as the packets show."""
        rank = self.rank(difference)
        if difference.kind != DEVIATION:
            return True
        subject = difference.subject
        if isinstance(subject, SettingSubject) and subject.name.startswith("arp_"):
            if not self.silent:
                return False  # it decides which machine answers such a request
        elif isinstance(subject, IpSetSubject) and not subject.entry and difference.change == "new":
            return False  # the rule that uses it is a difference of its own
        return rank in {AT, NEXT} or (rank == BEFORE and alters(difference))


def find_bracket(captured: Captured, intent: Intent) -> Bracket:
    """The bracket of a probe with an unexpected result."""
    conclusion, trace = captured.conclusion, captured.trace
    rows = [*trace.request, *trace.reply]
    everywhere = frozenset(row.tap.place for row in (*rows, *trace.rows))
    sentence, change = conclusion.sentence, conclusion.change
    kernel = (*captured.kernel, *_strangers(conclusion, rows))
    points = [conclusion.missing, conclusion.last]
    if captured.onward is not None and conclusion.kind == "unanswered":
        sentence += f"; of what its DNS server asked in turn: {captured.onward.sentence}"
        points += [captured.onward.last, captured.onward.missing]
    lost = frozenset(point.tap.place for point in points if point)
    if conclusion.kind == "answered":
        lost = everywhere
    elif conclusion.kind == "unknown":
        lost = frozenset(row.tap.place for row in rows if row.blind)
    elif conclusion.kind == "unsent":
        lost |= {captured.cell.source.name}
    at, following = lost, frozenset[str]()
    if change is not None:
        at = frozenset(point.tap.place for point in (change.last, change.first) if point)
        following = lost
    bracket = Bracket(
        sentence,
        trace.path_index,
        at,
        following - at,
        answer=conclusion.lost == "answer",
        last=conclusion.last,
        missing=conclusion.missing,
        change=change,
        kernel=kernel,
        untraced=captured.untraced,
    )
    if conclusion.missing is None:
        return replace(
            bracket, next_places=frozenset() if conclusion.kind == "unknown" else everywhere - at
        )
    begin = len(trace.request) if bracket.answer else 0
    missing = conclusion.missing.tap
    begin += next((n for n, row in enumerate(rows[begin:]) if row.tap == missing), 0)
    unanswered = {request.address for request in captured.matched.unanswered}
    beyond = [row.tap.place for row in rows[begin:] if row.tap.place not in lost][:1]
    before = dict.fromkeys(row.tap.place for row in reversed(rows[:begin]))
    near = frozenset({*following, *beyond, *_owners(intent, unanswered)}) - at
    passed = tuple(place for place in before if place not in at | near)
    return replace(bracket, next_places=near, passed_places=passed, silent=bool(unanswered))


def _strangers(conclusion: Conclusion, rows: Sequence[Row]) -> Iterator[KernelReport]:
    """Places that drop frames for another MAC: the sender or the receiver has a wrong one."""
    for row in rows:
        sight = row.answer if conclusion.lost == "answer" else row.question
        if conclusion.missing and row.tap == conclusion.missing.tap and sight.strangers_mac:
            sentence = f"{row.tap} drops frames for another MAC"
            for place in {conclusion.last.tap.place if conclusion.last else "", row.tap.place}:
                yield KernelReport(place, sentence, _OF_MACS)
            return


def _owners(intent: Intent, addresses: set[str]) -> Iterator[str]:
    for machine in intent.everything():
        if own_addresses(machine) & addresses:
            yield machine.name
        yield from (pod.name for pod in machine.pods if bare(pod.address) in addresses)
