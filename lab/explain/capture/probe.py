"""Sends one cell's probe while its packets are captured at every hop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from lab._deadline import Deadline
from lab.explain.capture.files import Captured
from lab.explain.capture.packets import Matched, match
from lab.explain.capture.plan import CapturePoint, listening
from lab.explain.capture.trace import Conclusion, Trace, by_time, conclude, trace
from lab.explain.kernel import kernel_words, route_questions, trace_table
from lab.matrix.cell import Cell
from lab.matrix.judge import expect, judge
from lab.matrix.run import probe
from lab.matrix.verdict import GREEN
from lab.providers.capture import Capturing, KernelSaid, KernelTracing, Taken
from lab.providers.provider import (
    CAPTURE,
    KERNEL_TRACE,
    LabHandle,
    Outcome,
    ProbeSettings,
    Provider,
)
from lab.scenario.scenario import Limit
from lab.topology.intent import Intent

LIMIT_BYTES = 8 << 20
"""Bytes captured per device; a large probe is 128 KiB, and other traffic shares the space."""
_SECONDS = 120.0
"""Seconds for one probe: a name is tried with up to five domains, each with its own timeout."""
_TRIES = 3


def capture_probe(  # noqa: PLR0913  a lab, a cell of it, and how to ask
    provider: Provider,
    lab: LabHandle,
    intent: Intent,
    cell: Cell,
    limits: Sequence[Limit],
    *,
    timeout: float,
    number: int = 1,
    traced: bool = False,
) -> Captured:
    """Probe one cell once, and capture its packets wherever they should pass.

    ``traced``: also trace them in the kernel, if the provider can.

    Raises BrokenError when the lab's machines are not there.
    """
    where = listening(intent, cell)
    expectation = expect(cell, limits)
    asked = probe(0, cell)
    if asked.dialect == "throughput":  # the packets of a stream take the same path as others
        asked, cell = replace(asked, dialect="lab"), replace(cell, min_throughput=None)
    if not cell.sticky:  # one connection; any of several backends is fine
        asked, cell = replace(asked, tries=1), replace(cell, sticky=len(cell.backends) > 1)
    outcomes: list[Outcome] = []

    def ask() -> None:
        found = provider.probe(lab, intent, [asked], ProbeSettings(timeout, 1), lambda _: None)
        outcomes.append(found[0])

    said: list[KernelSaid] = []

    def ask_traced() -> None:
        routes = route_questions(where.ways)
        places = {tap.place: routes.get(tap.place, ()) for tap, _ in where.taps}
        said.extend(
            cast(KernelTracing, provider).trace_kernel(
                lab, intent, places, trace_table(cell.protocol, where.addresses), ask,
                Deadline(_SECONDS),
            )
        )  # fmt: skip

    during = ask_traced if traced and KERNEL_TRACE in provider.abilities else ask
    taken = cast(Capturing, provider).capture(
        lab, intent, [tap for tap, _ in where.taps], LIMIT_BYTES, during, Deadline(_SECONDS)
    )
    judged = judge(cell, expectation, (outcomes[0],))
    answered = judged.verdict in GREEN and outcomes[0].status == "ok"
    heard = outcomes[0].status not in {"timeout", "error"}
    matched, seen, conclusion = _seen(where, taken, answered=answered, heard=heard)
    return Captured(
        cell=cell,
        expectation=expectation,
        verdict=judged.verdict,
        detail=judged.detail,
        tried=number,
        outcome=outcomes[0],
        trace=seen,
        conclusion=conclusion,
        taken=taken,
        matched=matched,
        end=where.end,
        kernel=kernel_words(said),
        onward=_seen(where.onward, taken, answered=answered, heard=True)[2]
        if where.onward
        else None,
    )


def _seen(
    where: CapturePoint, taken: Sequence[Taken], *, answered: bool, heard: bool
) -> tuple[Matched, Trace, Conclusion]:
    matched = match(taken, where.asked)
    seen = trace(where.ways, matched) if where.ways else by_time(where.taps, where.ends, matched)
    return matched, seen, conclude(seen, well=answered, owners=where.owners, heard=heard)


def follow_loss(  # noqa: PLR0913  a lab, a cell of it, and how long to ask
    provider: Provider,
    lab: LabHandle,
    intent: Intent,
    cell: Cell,
    limits: Sequence[Limit],
    *,
    timeout: float,
) -> Captured | None:
    """A probe of the cell with an unexpected result; None if a few attempts give none.

    A Service is probed often enough for each of its backends to answer at least once most likely.

    Raises BrokenError when the lab's machines are not there.
    """
    if CAPTURE not in provider.abilities:
        return None
    for number in range(_TRIES * max(1, len(cell.backends))):
        found = capture_probe(
            provider, lab, intent, cell, limits, timeout=timeout, number=number + 1, traced=True
        )
        if not found.well:
            return found
    return None
