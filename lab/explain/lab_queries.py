"""What a running lab is asked for an explanation, and what it did not answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lab._errors import LabError
from lab._log import listed
from lab.explain.bracket import Bracket
from lab.facts.difference import NOT_ASKED, SILENT, Difference
from lab.facts.node import NodeFacts
from lab.matrix.cell import Cell
from lab.matrix.run import Send
from lab.providers.provider import Evidence

Observe = Callable[[Mapping[str, Sequence[str]]], Mapping[str, NodeFacts | LabError]]
"""Observes machines, and the named pods on them."""
Follow = Callable[[Cell], Bracket | None]
"""Probes a cell once more while capturing its packets; None if no loss was observed."""
Compare = Callable[[Sequence[str]], Mapping[str, Sequence[Difference] | LabError]]
"""Compares the complete state of machines and pods with how the lab makes them; the error of a
place that did not answer, and nothing for one whose state as made is not recorded."""
Read = Callable[[Collection[str]], Iterable[Evidence]]
"""Reads the logs of machines."""
Witness = Literal["where", "difference", "kernel"]
"""Where the probe is lost, what differs there, and what the kernel says of it."""


@dataclass(frozen=True, slots=True)
class LabQueries:
    """The functions that query a running lab: they send probes, and read its machines."""

    send: Send
    look: Observe
    read: Read
    compare: Compare = lambda places: dict.fromkeys(places, ())
    follow: Follow = lambda _: None


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A source of evidence that gave no answer."""

    witness: Witness
    places: tuple[str, ...]
    """The machines and pods, or the cluster's objects; empty for the probe that is followed."""
    reason: str


@dataclass(frozen=True, slots=True)
class NotAsked:
    """Queries that machines were not asked, as they lack what it takes: no sign of a fault."""

    queries: tuple[str, ...]
    places: tuple[str, ...]
    reason: str
    """``"there is no 'tc'"``."""

    @property
    def line(self) -> str:
        """``queues at worker1, win1: there is no 'tc'``."""
        return f"{', '.join(self.queries)} at {listed(self.places)}: {self.reason}"


def group_not_asked(differences: Iterable[tuple[str, Difference]]) -> tuple[NotAsked, ...]:
    """What the differences of the kind ``NOT_ASKED``, each with its place, have in common."""
    by_reason: dict[str, list[tuple[str, str]]] = {}
    for place, difference in differences:
        if difference.kind == NOT_ASKED:
            by_reason.setdefault(difference.observed, []).append((difference.object, place))
    return tuple(
        NotAsked(
            tuple(dict.fromkeys(query for query, _ in pairs)),
            tuple(dict.fromkeys(place for _, place in pairs)),
            reason,
        )
        for reason, pairs in by_reason.items()
    )


def compare_places(compare: Compare, places: Sequence[str]) -> Mapping[str, Sequence[Difference]]:
    """The differences of the state of those places that could be compared."""
    return {
        place: [difference for difference in answer if difference.kind not in {NOT_ASKED, SILENT}]
        for place, answer in compare_or_errors(compare, places).items()
        if not isinstance(answer, LabError)
    }


def compare_or_errors(
    compare: Compare, places: Sequence[str]
) -> Mapping[str, Sequence[Difference] | LabError]:
    """The answers of the places; if nothing could be compared, the error of each."""
    try:
        return compare(places)
    except LabError as error:
        return dict.fromkeys(places, error)


def unread_parts(differences: Iterable[Difference]) -> Iterator[str]:
    """What could not be read of a state, and why."""
    for difference in differences:
        if difference.kind == SILENT:
            yield f"{difference.object}: {difference.observed}"


class NotedQueries:
    """Compares states and follows packets, and records which of these got no answer."""

    def __init__(self, lab: LabQueries) -> None:
        self._lab = lab
        self._silent: dict[tuple[Witness, str], list[str]] = {}
        self._not_asked: dict[tuple[str, Difference], None] = {}
        self._unrecorded: dict[str, None] = {}

    def compare(self, places: Sequence[str]) -> Mapping[str, Sequence[Difference]]:
        """The differences of those places that could be compared."""
        answers = compare_or_errors(self._lab.compare, places)
        for place in places:
            answer = answers.get(place)
            if answer is None:
                self._unrecorded[place] = None
            elif isinstance(answer, LabError):
                self._silent.setdefault(("difference", answer.cause), []).append(place)
            else:
                self._not_asked |= {
                    (place, difference): None
                    for difference in answer
                    if difference.kind == NOT_ASKED
                }
                for reason in unread_parts(answer):
                    self._silent.setdefault(("difference", reason), []).append(place)
        return compare_places(lambda _: answers, places)

    def follow(self, cell: Cell) -> Bracket | None:
        """The two points of the loss; None if the packets could not be followed."""
        try:
            bracket = self._lab.follow(cell)
        except LabError as error:
            self._silent["where", error.cause] = []
            return None
        for place, reason in bracket.untraced if bracket else ():
            self._silent.setdefault(("kernel", reason), []).append(place)
        return bracket

    def unanswered(self) -> tuple[NoAnswer, ...]:
        """Every witness that did not answer."""
        return tuple(
            NoAnswer(witness, tuple(dict.fromkeys(places)), reason)
            for (witness, reason), places in self._silent.items()
        )

    def not_asked(self) -> tuple[NotAsked, ...]:
        """The queries that machines lack what it takes for."""
        return group_not_asked(self._not_asked)

    def unrecorded(self) -> tuple[str, ...]:
        """The places whose state as made is not recorded."""
        return tuple(self._unrecorded)
