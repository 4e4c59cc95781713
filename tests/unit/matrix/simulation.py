"""A network that exists on paper: answers probes as a faultless lab would, save where told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lab.matrix.cell import Cell
from lab.matrix.judge import expect
from lab.providers.provider import Outcome, Probe, ProbeSettings
from lab.scenario.scenario import Limit

Fault = Callable[[Cell, int, Outcome], Outcome]
"""Given a cell, the number of the attempt at it (from 1) and the faultless outcome."""


def faultless(cell: Cell, limits: Sequence[Limit], key: int = 0) -> Outcome:
    """What a lab without faults makes of the cell."""
    expected = expect(cell, limits)
    if not expected.works:
        return Outcome(key, expected.refusal, "as documented", None, (), None, 0.0)  # type: ignore[arg-type]
    if cell.family == "dns":
        return Outcome(key, "ok", "", None, (), cell.answer, 0.2)
    source = min(cell.sources, default="192.0.2.1")
    return Outcome(key, "ok", "", source, cell.backends, None, 0.2)


def silent(outcome: Outcome) -> Outcome:
    """The same probe without any reply."""
    detail = "connect: no reply in 1.0 s"
    return replace(
        outcome, status="timeout", detail=detail, source_seen=None, backends=(), answer=None
    )


class Network:
    """Sends probes for cells; counts attempts, and how long they would have taken.

    Timeouts cost their seconds, shared by as many probes as may be in flight.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        limits: Sequence[Limit] = (),
        fault: Fault = lambda _cell, _attempt, outcome: outcome,
    ) -> None:
        self.fault = fault
        self.limits = limits
        self.seconds = 0.0
        self.sent: list[tuple[tuple[str, ...], ProbeSettings]] = []
        self._cells = {_address(cell): cell for cell in cells}
        self._attempts: dict[str, int] = {}

    def clock(self) -> float:
        return self.seconds

    def send(self, probes: Sequence[Probe], settings: ProbeSettings) -> Mapping[int, Outcome]:
        outcomes = {}
        asked = []
        waiting = 0
        for probe in probes:
            cell = self._cells[
                probe.source,
                probe.address,
                probe.port,
                probe.protocol,
                probe.size,
                probe.name,
                probe.dialect == "throughput",
            ]
            attempt = self._attempts[cell.id] = self._attempts.get(cell.id, 0) + 1
            asked.append(cell.id)
            outcome = self.fault(cell, attempt, faultless(cell, self.limits, probe.key))
            outcomes[probe.key] = outcome
            waiting += outcome.status == "timeout"
        self.seconds += -(-waiting // settings.in_flight) * settings.timeout
        self.sent.append((tuple(asked), settings))
        return outcomes


def _address(cell: Cell) -> tuple[str, str, int, str, str, str | None, bool]:
    return (
        cell.source.name,
        cell.target.address,
        cell.target.port,
        cell.protocol,
        cell.size,
        cell.target.name if cell.family == "dns" else None,
        cell.family == "throughput",
    )
