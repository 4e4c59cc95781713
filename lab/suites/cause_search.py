"""What is wrong where a run of a lab has failures, and where their packets are lost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cache

from lab._deadline import Deadline
from lab._errors import LabError
from lab._log import listed, say
from lab.explain.bracket import Bracket
from lab.explain.causes import with_causes, with_marginal, with_places
from lab.explain.lab_queries import compare_or_errors, unread_parts
from lab.facts.difference import CLUSTER_NAME, Difference
from lab.matrix.cell import Cell
from lab.matrix.verdict import CellResult
from lab.shells.parallel import run_jobs
from lab.suites.running_lab import BoundLab

_FOLLOWED = 0.6
"""Seconds for one exchange that is followed: a retransmission would show nothing new."""
_PLACES_SECONDS = 15.0
"""For all failures that are followed."""
_LOOK_SECONDS = 30.0
"""A machine that hangs costs a run no more than this; over SSH to emulated ones it takes ten."""


def add_causes(results: tuple[CellResult, ...], view: BoundLab) -> tuple[CellResult, ...]:
    """The results; failures with what is wrong on their paths, where anything is."""
    return with_causes(
        results,
        view.intent,
        lambda places: view.look(places, _LOOK_SECONDS),
        lambda places: _compare(view, places, _LOOK_SECONDS),
    )


def _compare(
    view: BoundLab, places: Sequence[str], seconds: float
) -> Mapping[str, Sequence[Difference] | LabError]:
    """The differences of the places. Places that did not answer are reported, with the reason."""
    answers = compare_or_errors(lambda names: view.compare(names, seconds), places)
    silent: dict[str, list[str]] = {}
    for place, answer in answers.items():
        reasons = [answer.cause] if isinstance(answer, LabError) else unread_parts(answer)
        for reason in reasons:
            silent.setdefault(reason, []).append(place or CLUSTER_NAME)
    for reason, names in silent.items():
        say(f"cannot look for causes at {listed(names)}: {reason}")
    return answers


def add_places(
    results: tuple[CellResult, ...], view: BoundLab, seconds: float
) -> tuple[CellResult, ...]:
    """The results; for failures without a cause, with the place where packets are lost.

    Passed cells get what drops some of their packets.

    The last one is followed no later than ``seconds`` after the first.
    """
    followed: set[str] = set()

    @cache
    def ends() -> Deadline:
        return Deadline(_PLACES_SECONDS)  # from the first one on

    def follow(cell: Cell) -> Bracket | None:
        if not ends().left():
            return None
        followed.add(cell.id)
        job = {cell.id: lambda: view.follow(cell, _FOLLOWED)}
        try:
            return run_jobs({"": job}, {}, ends())[cell.id]
        except LabError:
            return None

    def compare(places: Sequence[str]) -> Mapping[str, Sequence[Difference] | LabError]:
        return _compare(view, places, ends().left())

    with_place = with_places(results, view.intent, compare, follow, time.monotonic, seconds)
    left = sum(result.unexplained and result.cell.id not in followed for result in with_place)
    if left:
        say(f"no time to follow {left} failures")
    return with_marginal(with_place, view.intent)
