"""One lab under test: its cells, the items chosen, and the run that judges them all at once."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from lab._log import say
from lab.matrix.cell import Cell
from lab.matrix.cells import cells
from lab.matrix.run import run
from lab.matrix.verdict import CellResult, RunResult
from lab.providers.provider import Outcome, Probe, ProbeSettings
from lab.suites.open_lab import OpenLab

Progress = Callable[[int, int], None]
"""Told how many of how many probes of a pass have ended."""

REAL_MACHINES = frozenset({"libvirt"})
"""Providers whose Windows nodes run Windows; all others emulate them."""


class LabSession:
    """A lab between pytest's start and end.

    ``found`` (results by cell id) is empty and ``run`` None until :meth:`probe` has judged the
    chosen cells; ``directory`` is None until the run is stored.

    Raises
    ------
    MatrixError
        If the lab has no cells, or none in a family that its scenario asks for.

    """

    def __init__(self, lab: OpenLab) -> None:
        self.lab = lab
        self.cells: tuple[Cell, ...] = cells(lab.plan, lab.intent)
        self.found: Mapping[str, CellResult] = {}
        self.run: RunResult | None = None
        self.directory: Path | None = None

    def probe(self, chosen: Sequence[Cell], progress: Progress) -> RunResult:
        """Judge the chosen cells, in bulk, while no other command changes the lab.

        Raises
        ------
        LabError
            When the lab's machines are not there, or went while they were probed, or another
            command works on them.

        """
        with self.lab.used("test", say):
            self.lab.require_running()
            started, begun = datetime.now(UTC), time.monotonic()
            results = run(
                chosen, self.lab.limits, self._send(progress), time.monotonic, self._repeat
            )
            self.lab.require_running()  # silence of a lab that died meanwhile says nothing
        self.found = {result.cell.id: result for result in results}
        self.run = self._as_run(results, started, time.monotonic() - begun)
        return self.run

    def _repeat(self, cell: Cell) -> str:
        return f"lab test {shlex.quote(self.lab.name)} -k {shlex.quote(cell.id)}"

    def _send(
        self, progress: Progress
    ) -> Callable[[Sequence[Probe], ProbeSettings], Mapping[int, Outcome]]:
        lab = self.lab

        def send(probes: Sequence[Probe], settings: ProbeSettings) -> Mapping[int, Outcome]:
            total = len(probes)
            progress(0, total)
            return lab.provider.probe(
                lab.handle, lab.intent, probes, settings, lambda done: progress(done, total)
            )

        return send

    def _as_run(
        self, results: tuple[CellResult, ...], started: datetime, seconds: float
    ) -> RunResult:
        plan, provider = self.lab.plan, self.lab.provider.name
        emulated = () if provider in REAL_MACHINES else self._windows()
        return RunResult(
            run=f"{started:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
            lab=self.lab.name,
            scenario=plan.scenario,
            summary=plan.summary,
            topology=plan.topology,
            provider=provider,
            banner=self.lab.banner,
            emulated_nodes=emulated,
            version=plan.version,
            started=started.isoformat(timespec="seconds"),
            seconds=seconds,
            results=results,
            windows_rules_off=tuple(self.lab.windows_rules_off),
        )

    def _windows(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.lab.plan.nodes if node.os == "windows")
