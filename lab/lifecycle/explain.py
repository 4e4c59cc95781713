"""Explain why a cell of a running lab is not as expected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lab._deadline import Deadline
from lab._errors import LabError, UsageError
from lab._log import listed, quantity
from lab.explain.bracket import Bracket
from lab.explain.explainer import Explainer
from lab.explain.explanation import Explanation
from lab.explain.lab_queries import LabQueries
from lab.explain.objects import split_by_path
from lab.explain.stages import explain_cells, explain_obstructed
from lab.facts.difference import CLUSTER, CLUSTER_NAME, Difference
from lab.facts.node import NodeFacts
from lab.lifecycle.open_lab import OpenLab
from lab.matrix.cell import Cell
from lab.matrix.cells import Matrix, every_pair, make_matrix
from lab.matrix.choose import choose_cells
from lab.matrix.obstructed import Obstructions
from lab.matrix.pairs import EveryEndpoint, ends_of
from lab.plan.plan import Plan
from lab.providers.provider import LOOK_SECONDS, Evidence, Outcome, Probe, ProbeSettings
from lab.shells.parallel import run_jobs
from lab.suites.running_lab import BoundLab, bind_intent
from lab.topology.intent import Intent

Say = Callable[[str], None]

EXPLAIN_SECONDS = 300.0
"""For all questions together; on idle namespaces they take less than a second."""
_SECONDS = 1.5
"""For one exchange that is followed: TCP retransmits its first packet after one second."""


@dataclass(frozen=True, slots=True)
class ExplainQuestion:
    """Source, target, protocol and size; None for every one in the matrix."""

    source: str
    """Name of the source; the id of a cell if ``target`` is None."""
    target: str | None
    protocol: str | None = None
    size: str | None = None

    def __str__(self) -> str:
        return self.source if self.target is None else f"{self.source} to {self.target}"

    def cells(self, plan: Plan, intent: Intent, action: str) -> tuple[Cell, ...]:
        """Its cells in the lab's matrix, or else of any two endpoints that exist.

        Raises UsageError, with the nearest name, if there are none.
        """
        try:
            return self._of(make_matrix(plan, intent), action)
        except UsageError:
            return self._of(self._whole(plan, intent, action), action)

    def _whole(self, plan: Plan, intent: Intent, action: str) -> Matrix:
        """Every pair that a family can have, and this one if none can."""
        every = every_pair(plan, intent)
        named = ends_of(self.source) if self.target is None else (self.source, self.target)
        if named is None or every.joins(*named):
            return every
        grid = EveryEndpoint.of(plan, intent, every).grid(*named, action)
        return Matrix((*every.grids, grid))

    def _of(self, matrix: Matrix, action: str) -> tuple[Cell, ...]:
        return choose_cells(
            matrix, self.source, self.target, protocol=self.protocol, size=self.size, action=action
        )


def explain_cell(
    opened: OpenLab, question: ExplainQuestion, say: Say, show: Say = lambda _: None
) -> Explanation:
    """Probe again, inspect the path, and say what is wrong there.

    ``show`` is called with each thing that is being done. The record of injected faults is not
    read: the explanation uses only observations.

    Raises UsageError, with the nearest name, when the matrix has no such cell. Raises BrokenError
    when the lab is not running.
    """
    action = f"explaining '{question}' in lab '{opened.name}'"
    with opened.in_use(f"lab explain {opened.name}", say):
        opened.require_running(healthy=False)
        with bind_intent(opened) as whole:
            cells = question.cells(opened.plan, whole, action)
            if obstructed := explain_obstructed(cells, opened.limits, whole):
                return obstructed
            intent = whole.running()
            view = BoundLab(opened, intent)
            case = _AnnouncedQueries(opened, view, show)
            queries = LabQueries(case.send, case.look, case.read, case.compare, case.follow)
            return explain_cells(cells, opened.limits, intent, queries, opened.last_success())


class _AnnouncedQueries:
    """The queries to a lab, within :data:`EXPLAIN_SECONDS` in all; each question is announced."""

    def __init__(self, opened: OpenLab, view: BoundLab, show: Say) -> None:
        self._opened = opened
        self._view = view
        self._show = show
        self._deadline = Deadline(EXPLAIN_SECONDS)

    def send(self, probes: Sequence[Probe], settings: ProbeSettings) -> Mapping[int, Outcome]:
        self._show(f"sending {quantity(len(probes), 'probe')}")
        return self._view.send(probes, settings)

    def look(self, places: Mapping[str, Sequence[str]]) -> Mapping[str, NodeFacts | LabError]:
        self._show(f"looking at {quantity(len(places), 'machine')}")
        return self._view.look(places, self._seconds())

    def compare(self, places: Sequence[str]) -> Mapping[str, Sequence[Difference] | LabError]:
        named = [place or CLUSTER_NAME for place in places]
        self._show(f"comparing {listed(named)} with how 'lab up' made it")
        return self._view.compare(places, self._seconds())

    def follow(self, cell: Cell) -> Bracket | None:
        self._show(f"following the packets of {cell.id}")
        job = {cell.id: lambda: self._view.follow(cell, _SECONDS)}
        return run_jobs({"": job}, {}, Deadline(self._seconds()))[cell.id]

    def read(self, places: Collection[str]) -> Iterable[Evidence]:
        self._show(f"reading the logs of {listed([*places])}")
        provider, handle = self._opened.provider, self._opened.handle
        return provider.logs(handle, self._view.intent, places, Deadline(self._seconds()))

    def _seconds(self) -> float:
        return min(LOOK_SECONDS, self._deadline.left())


def find_differences(opened: OpenLab, say: Say) -> tuple[Difference, ...]:
    """Observe every machine and pod of a lab; return every difference from the Intent.

    Raises BrokenError when the lab is not running.
    """
    with opened.in_use(f"lab status {opened.name}", say):
        opened.require_running(healthy=False)
        with bind_intent(opened) as whole:
            missing = Obstructions(whole).findings()
            intent = whole.running()
            machines = {
                machine.name: tuple(pod.name for pod in machine.pods)
                for machine in intent.everything()
            }
            view = BoundLab(opened, intent)
            explainer = Explainer(intent, view.look(machines))
            findings = (*explainer.everything(), *explainer.list_not_asked())
            if intent.kubernetes is None:
                return findings
            objects = view.compare([CLUSTER]).get(CLUSTER, ())
            if isinstance(objects, LabError):
                raise objects
            known = {finding.object for finding in missing}
            others = split_by_path(None, objects, intent.control_plane())[1]
            return (
                *missing,
                *findings,
                *(finding for finding in others if finding.object not in known),
            )
