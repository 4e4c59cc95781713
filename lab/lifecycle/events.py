"""Events of labs, derived from the journal, which has the current state and its times."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from lab._deadline import Deadline
from lab.lifecycle.names import unknown_lab
from lab.state.rows import FaultRow, LabRow, RunRow
from lab.state.store import Store

EventKind = Literal["created", "step", "state", "fault", "healed", "test"]
_EVERY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LabEvent:
    """One thing that happened to a lab."""

    at: float
    """Seconds since 1970."""
    lab: str
    kind: EventKind
    what: str
    """Description; the same at every reading."""


def read(store: Store, lab: str | None = None) -> tuple[LabEvent, ...]:
    """The events of one lab or of all labs that the journal still has, oldest first.

    The journal keeps no history: only the last state of a lab and its current faults are known.

    Raises UsageError, with the nearest name, when there never was a lab of that name.
    """
    if lab and store.lab(lab) is None:
        raise unknown_lab(f"reading events of lab '{lab}'", lab, [row.name for row in store.labs()])
    events = [
        event for row in store.labs() if lab in {None, row.name} for event in _events_of(row, store)
    ]
    names = [lab] if lab else store.labs_with_runs()
    events += [_test(run) for name in names for run in store.runs(name)]
    return tuple(sorted(events, key=lambda event: event.at))


def follow(store: Store, lab: str | None = None) -> Iterator[LabEvent]:
    """The events of :func:`read`, and then new ones, without end."""
    before: tuple[LabEvent, ...] = ()
    for _ in Deadline(math.inf).tries(_EVERY_SECONDS):
        now = read(store, lab)
        yield from compare_events(before, now, time.time())
        before = now


def compare_events(
    before: tuple[LabEvent, ...], now: tuple[LabEvent, ...], at: float
) -> Iterator[LabEvent]:
    """New events, and events for what has gone: a lab is down, a fault is healed. Pure."""
    known, still = set(before), set(now)
    standing = {event.lab for event in now if event.kind == "created"}
    for event in before:
        if event.kind == "fault" and event not in still and event.lab in standing:
            yield LabEvent(at, event.lab, "healed", event.what)
        if event.kind == "created" and event.lab not in standing:
            yield LabEvent(at, event.lab, "state", "down")
    yield from (event for event in now if event not in known)


def _events_of(row: LabRow, store: Store) -> Iterator[LabEvent]:
    yield LabEvent(row.created, row.name, "created", f"of {row.scenario}, on {row.provider}")
    for step in store.steps(row.name):
        begun = "" if step.state == "done" else " begun"
        yield LabEvent(step.at, row.name, "step", f"{step.name}{begun}")
    detail = f": {row.detail}" if row.detail else ""
    yield LabEvent(row.updated, row.name, "state", f"{row.status}{detail}")
    yield from (
        _event_of_fault(row.name, fault) for fault in store.live_faults(row.name, row.token)
    )


def _event_of_fault(lab: str, row: FaultRow) -> LabEvent:
    peer = f", peer {row.peer}" if row.peer else ""
    return LabEvent(row.at, lab, "fault", f"{row.name} on {row.node}{peer}")


def _test(run: RunRow) -> LabEvent:
    counts = ", ".join(f"{number:,} {name}" for name, number in run.counts.items() if number)
    ended = datetime.fromisoformat(run.started).timestamp() + run.seconds
    return LabEvent(ended, run.lab, "test", f"{'green' if run.green else 'red'}: {counts}")
