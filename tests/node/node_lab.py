"""A lab on guests, for the tests."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from guest_world import Guest, World

from lab._deadline import Deadline
from lab.lifecycle.compilation import Compiled
from lab.machines.agents.control import NodeControl
from lab.machines.agents.fleet import Fleet
from lab.matrix.cell import Cell
from lab.matrix.cells import cells
from lab.matrix.run import RunPace, run
from lab.matrix.verdict import CellResult
from lab.providers.provider import Outcome, Probe, ProbeSettings

SECONDS = 60.0
_QUICK = RunPace(ProbeSettings(0.5, 256), ProbeSettings(0.5, 64), budget=5.0, settle=0.0)
"""Short timeouts for a broken lab: what fails stays broken."""


class NodeLab:
    """Guests, their fleet, and probes by it."""

    def __init__(self, drawn: Compiled, world: World) -> None:
        self.intent, self.plan, self.limits = drawn.intent, drawn.plan, drawn.limits
        self.world = world
        self.controls = {name: NodeControl(name, guest) for name, guest in world.guests.items()}
        self.fleet = Fleet(self.controls)

    def guest(self, name: str) -> Guest:
        return self.world.guests[name]

    def up(self) -> None:
        self.fleet.up_all(self.intent, Deadline(SECONDS))

    def up_one(self, name: str, phase: Callable[[str], None] = lambda _: None) -> None:
        control = self.controls[name]
        control.up(self.intent.machine(name), self.intent, Deadline(SECONDS), phase)

    def ailments(self) -> dict[str, str]:
        return self.fleet.ailments(self.intent, Deadline(SECONDS))

    def cells(self) -> tuple[Cell, ...]:
        return cells(self.plan, self.intent)

    def matrix(self, *, broken: bool = False) -> tuple[CellResult, ...]:
        def send(probes: Sequence[Probe], settings: ProbeSettings) -> Mapping[int, Outcome]:
            return self.fleet.probe_all(self.intent, probes, settings, lambda _: None)

        pace = _QUICK if broken else RunPace()
        return run(self.cells(), self.limits, send, time.monotonic, lambda cell: cell.id, pace=pace)


def verdicts(results: Sequence[CellResult]) -> Counter[str]:
    return Counter(result.verdict for result in results)


def failed(results: Sequence[CellResult]) -> set[frozenset[str | None]]:
    """Pairs of nodes between whose pods cells have failed."""
    return {
        frozenset((result.cell.source.node, result.cell.target.node))
        for result in results
        if result.verdict == "fail" and result.cell.family == "pod-pod"
    }


NewLab = Callable[..., NodeLab]
"""Creates a lab of a scenario; see the fixture of this name."""
