"""Explain why a cell of a running lab is not as expected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lab._deadline import Deadline
from lab._errors import LabError
from lab.explain.bracket import Bracket
from lab.explain.explainer import Explainer
from lab.explain.objects import of_objects
from lab.explain.question import LOOK_SECONDS, Explanation, Witnesses, explain
from lab.facts.objects import CLUSTER
from lab.facts.ruleset import StateDifference
from lab.lifecycle.session import OpenLab
from lab.matrix.cell import Cell
from lab.matrix.cells import Product, product
from lab.matrix.choose import choose_cells
from lab.matrix.verdict import Finding
from lab.providers.provider import Evidence
from lab.suites.session import LabView, bound

Say = Callable[[str], None]

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

    def cells(self, matrix: Product, doing: str) -> tuple[Cell, ...]:
        """Its cells. Raises UsageError, with the nearest name, if there are none."""
        return choose_cells(
            matrix, self.source, self.target, protocol=self.protocol, size=self.size, doing=doing
        )


def explain_cell(opened: OpenLab, question: ExplainQuestion, say: Say) -> Explanation:
    """Probe again, inspect the path, and say what is wrong there.

    The record of injected faults is not read: the explanation uses only observations.

    Raises UsageError, with the nearest name, when the matrix has no such cell. Raises BrokenError
    when the lab is not running.
    """
    doing = f"explaining '{question}' in lab '{opened.name}'"
    with opened.used(f"lab explain {opened.name}", say):
        opened.require_running(well=False)
        with bound(opened) as intent:
            cells = question.cells(product(opened.plan, intent), doing)
            view = LabView(opened, intent)

            def compare(places: Sequence[str]) -> Mapping[str, Sequence[StateDifference]]:
                try:
                    found = view.compare(places)
                except LabError as error:
                    say(f"cannot compare with the intended state: {error.cause}")
                    raise
                if missing := [
                    one or "objects of the cluster" for one in places if one not in found
                ]:
                    say(f"not compared with the state that 'lab up' made: {', '.join(missing)}")
                return found

            def follow(cell: Cell) -> Bracket | None:
                try:
                    return view.follow(cell, _SECONDS)
                except LabError as error:
                    say(f"cannot tell where packets are lost: {error.cause}")
                    return None

            def read(places: Collection[str]) -> Iterable[Evidence]:
                deadline = Deadline(LOOK_SECONDS)
                return opened.provider.logs(opened.handle, intent, places, deadline)

            return explain(
                cells,
                opened.limits,
                intent,
                Witnesses(view.send, view.look, read, compare, follow),
                opened.worked(),
            )


def find_differences(opened: OpenLab, say: Say) -> tuple[Finding, ...]:
    """Observe every machine and pod of a lab; return every difference from the Intent.

    Raises BrokenError when the lab is not running.
    """
    with opened.used(f"lab status {opened.name}", say):
        opened.require_running(well=False)
        with bound(opened) as intent:
            machines = {
                machine.name: tuple(pod.name for pod in machine.pods)
                for machine in intent.everything()
            }
            view = LabView(opened, intent)
            found = Explainer(intent, view.look(machines)).everything()
            if intent.kubernetes is None:
                return found
            objects = view.compare([CLUSTER]).get(CLUSTER, ())
            return (*found, *of_objects(None, objects, intent.control_plane())[1])
