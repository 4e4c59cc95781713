"""Cells that cannot be probed because a pod that they need does not run. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lab.facts.difference import OBJECT, Difference
from lab.matrix.cell import Cell
from lab.matrix.verdict import CellResult
from lab.topology.intent import Intent, Obstacle
from lab.topology.subject import OtherSubject


class Obstructions:
    """The pods of a lab that do not run, and what depends on them."""

    def __init__(self, intent: Intent) -> None:
        self.pods = intent.obstacles()
        self._plane = intent.control_plane()
        self._nodes = {
            name: machine.name
            for machine in intent.machines
            for name in (machine.name, *(pod.name for pod in machine.pods))
        }
        self._behind = {
            service.name: tuple(backend.pod for backend in service.backends)
            for service in intent.headless
        }
        self._at = {
            (service.name, machine.name): tuple(
                backend.pod for backend in service.backends if backend.node == machine.name
            )
            for machine in intent.machines
            if machine.translation
            for service in machine.translation.services
        }

    def of(self, cell: Cell) -> tuple[str, Obstacle] | None:
        """The first pod that the cell needs and that does not run, with the obstacle."""
        return next(((pod, self.pods[pod]) for pod in self._needs(cell) if pod in self.pods), None)

    def _needs(self, cell: Cell) -> Iterator[str]:
        yield cell.source.name
        yield cell.target.name
        yield from (name.partition(":")[0] for name in cell.backends)
        if cell.family == "headless":
            first = cell.target.name.partition(".")[0]
            yield from (first,) if first in self._nodes else self._behind.get(first, ())
        elif cell.family == "health-check":
            service = cell.target.name.split(":")[1]
            yield from self._at.get((service, str(cell.entry)), ())

    def reason(self, cell: Cell) -> str:
        """Why a cell cannot be probed; empty if it can."""
        obstructed = self.of(cell)
        if obstructed is None:
            return ""
        whose = "the pod of node" if obstructed[0] == cell.source.node else "pod"
        return f"{whose} '{obstructed[0]}' cannot run: {obstructed[1].sentence}"

    def finding(self, cell: Cell) -> Difference | None:
        """What keeps the pod from running, as a cause; None if the cell can be probed."""
        obstructed = self.of(cell)
        return self._finding(*obstructed) if obstructed else None

    def findings(self) -> tuple[Difference, ...]:
        """Everything that keeps pods from running."""
        return tuple(dict.fromkeys(self._finding(*item) for item in self.pods.items()))

    def _finding(self, pod: str, obstacle: Obstacle) -> Difference:
        return Difference(
            *(OBJECT, "", self._nodes[pod], obstacle.object, "", obstacle.observed),
            *(obstacle.shows, obstacle.mends, self._plane),
            subject=OtherSubject(obstacle.object),
        )

    def add_finding(self, result: CellResult) -> CellResult:
        """The result, with the finding if its cell could not be probed."""
        finding = self.finding(result.cell) if result.verdict == "probe-error" else None
        return replace(result, finding=finding) if finding else result
