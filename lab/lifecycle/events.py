"""What happened to labs: read from the journal, which keeps what there is and when it came."""

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
    """In words, and from one moment to the next the same."""


def read(store: Store, lab: str | None = None) -> tuple[LabEvent, ...]:
    """The events that the journal still has, of one lab or of all, oldest first.

    The journal keeps no history: of a state only the last is known, of a fault only that it is in.

    Raises UsageError when there never was a lab of that name; names the nearest.
    """
    if lab and store.lab(lab) is None:
        raise unknown_lab(f"reading events of lab '{lab}'", lab, [row.name for row in store.labs()])
    found = [event for row in store.labs() if lab in {None, row.name} for event in _of(row, store)]
    names = [lab] if lab else store.labs_with_runs()
    found += [_test(run) for name in names for run in store.runs(name)]
    return tuple(sorted(found, key=lambda one: one.at))


def follow(store: Store, lab: str | None = None) -> Iterator[LabEvent]:
    """The same, and then what happens from now on, without end."""
    seen: tuple[LabEvent, ...] = ()
    for _ in Deadline(math.inf).tries(_EVERY_SECONDS):
        now = read(store, lab)
        yield from since(seen, now, time.time())
        seen = now


def since(before: tuple[LabEvent, ...], now: tuple[LabEvent, ...], at: float) -> Iterator[LabEvent]:
    """What is new, and who is gone: a lab is down, a fault of one that stands is healed. Pure."""
    known, there = set(before), set(now)
    standing = {one.lab for one in now if one.kind == "created"}
    for one in before:
        if one.kind == "fault" and one not in there and one.lab in standing:
            yield LabEvent(at, one.lab, "healed", one.what)
        if one.kind == "created" and one.lab not in standing:
            yield LabEvent(at, one.lab, "state", "down")
    yield from (one for one in now if one not in known)


def _of(row: LabRow, store: Store) -> Iterator[LabEvent]:
    yield LabEvent(row.created, row.name, "created", f"of {row.scenario}, on {row.provider}")
    for step in store.steps(row.name):
        begun = "" if step.state == "done" else " begun"
        yield LabEvent(step.at, row.name, "step", f"{step.name}{begun}")
    detail = f": {row.detail}" if row.detail else ""
    yield LabEvent(row.updated, row.name, "state", f"{row.status}{detail}")
    yield from (_fault(row.name, one) for one in store.live_faults(row.name, row.token))


def _fault(lab: str, one: FaultRow) -> LabEvent:
    peer = f", peer {one.peer}" if one.peer else ""
    return LabEvent(one.at, lab, "fault", f"{one.name} on {one.node}{peer}")


def _test(run: RunRow) -> LabEvent:
    counts = ", ".join(f"{number:,} {name}" for name, number in run.counts.items() if number)
    ended = datetime.fromisoformat(run.started).timestamp() + run.seconds
    return LabEvent(ended, run.lab, "test", f"{'green' if run.green else 'red'}: {counts}")
