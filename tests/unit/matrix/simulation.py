"""A simulated network: answers probes like a faultless lab, except for scripted faults."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lab.matrix.cell import Cell
from lab.matrix.judge import expect
from lab.providers.provider import Outcome, Probe, ProbeSettings
from lab.scenario.scenario import Limit

Fault = Callable[[Cell, int, Outcome], Outcome]
"""Maps a cell, the number of the attempt (from 1) and the faultless outcome to the outcome."""


def faultless(cell: Cell, limits: Sequence[Limit], key: int = 0) -> Outcome:
    """The outcome of the cell in a lab without faults."""
    expected = expect(cell, limits)
    if not expected.works:
        return Outcome(key, expected.refusal, "as documented", None, (), None, 0.0)  # type: ignore[arg-type]
    if cell.family == "dns":
        return Outcome(key, "ok", "", None, (), cell.answer, 0.2)
    source = min(cell.sources, default="192.0.2.1")
    return Outcome(key, "ok", "", source, cell.backends, None, 0.2)


def silent(outcome: Outcome) -> Outcome:
    """The outcome of the probe without a reply."""
    detail = "connect: no reply in 1.0 s"
    return replace(
        outcome, status="timeout", detail=detail, source_seen=None, backends=(), answer=None
    )


class Network:
    """Sends probes for cells; counts attempts and the time that they would take.

    A timeout costs its seconds once for all probes in flight.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        limits: Sequence[Limit] = (),
        fault: Fault = lambda _cell, _attempt, outcome: outcome,
    ) -> None:
        self.cells = cells
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
