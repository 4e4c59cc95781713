"""A cell of a run that is kept, made to happen again in the smallest lab that has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lab._errors import UsageError
from lab.lifecycle.blueprint import keep_only
from lab.lifecycle.names import LONGEST, check_name
from lab.matrix.cell import Cell
from lab.matrix.reduce import reduce
from lab.matrix.verdict import GREEN, CellResult, RunResult, Verdict
from lab.scenario.loader import HeldText, load
from lab.scenario.scenario import Scenario
from lab.scenario.write import to_yaml
from lab.state.directory import make_own, make_private
from lab.state.failure import guarded_files
from lab.state.files import open_output
from lab.suites.session import LabSession
from lab.topology import registry

SHELF = "repro"
"""Where in the state directory the scenarios of small labs are."""


@dataclass(frozen=True, slots=True)
class Small:
    """A small lab, decided and written down."""

    run: RunResult
    then: CellResult
    scenario: Scenario
    file: Path
    lab: str


def cell_of(run: RunResult, wanted: str) -> CellResult:
    """The cell of that id.

    Raises
    ------
    UsageError
        When the run has none; names the nearest.

    """
    for found in run.results:
        if found.cell.id == wanted:
            return found
    raise UsageError(
        f"looking for cell '{wanted}' in run '{run.run}'",
        "it has no such cell",
        _nearest(wanted, (found.cell.id for found in run.results)),
    )


def _nearest(wanted: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  only for a wrong name

    near = get_close_matches(wanted, list(known), n=1)
    return f"did you mean '{near[0]}'?" if near else "its report has the ids of all its cells"


def make_small(
    run: RunResult, then: CellResult, state: Path, name: str | None, output: Path | None
) -> Small:
    """Decide the smallest lab that has the cell, and write its scenario.

    All that the run says is checked before anything is written: it may come from elsewhere. No
    path comes out of it.

    Raises
    ------
    UsageError
        When the run does not hold the scenario that it is of, or that has no such cell any more,
        or when no lab can have the name.
    ScenarioError
        When this version reads the scenario differently from the one that wrote it.
    StateError
        When a file cannot be written.

    """
    if not run.scenario_text:
        raise UsageError(
            f"reproducing a cell of run '{run.run}'",
            "its result was kept before results held their scenario",
            "run 'lab test' again, and take a cell of that run",
        )
    lab = (name or f"repro-{run.scenario}")[:LONGEST].rstrip("-")
    check_name(lab, new=True)
    held = HeldText(run.scenario_text, f"the scenario of run '{run.run}'")
    whole = load(held, topology_check=registry.check)
    if run.only is not None:
        whole = keep_only(whole, run.only)
    small = reduce(whole, then.cell.id)
    head = f"The smallest lab that has cell {then.cell.id} of run {run.run}, by 'lab repro'."
    file = output.absolute() if output else state / SHELF / f"{lab}.yaml"
    if output is None:
        make_own(state)
        make_private(file.parent)
    doing = f"writing '{file}'"
    with guarded_files(doing), open_output(file, doing) as opened:
        opened.write(to_yaml(small, head).encode())
    return Small(run, then, small, file, lab)


def judge(then: Verdict, now: Verdict) -> tuple[int, str]:
    """The exit code and what it means: 1 where the cell is not as expected here, 0 where it is."""
    if now in GREEN:
        if then in GREEN:
            return (
                0,
                f"it was '{then}' then, and it is '{now}' here: there was nothing to reproduce",
            )
        return 0, f"it does not reproduce: it was '{then}' then, and here it is '{now}'"
    if then == now:
        return 1, f"it reproduces: it is '{now}' here as it was then"
    if then in GREEN:
        return 1, f"it was '{then}' then, and here it is '{now}'"
    return 1, f"it reproduces, though differently: it was '{then}' then, and here it is '{now}'"


def run_cell(session: LabSession, cell_id: str) -> tuple[CellResult, Path]:
    """Probe that one cell, keep the run, and return the result with the run's directory.

    Raises
    ------
    LabError
        As :meth:`lab.suites.session.LabSession.probe` does.

    """
    chosen: tuple[Cell, ...] = tuple(cell for cell in session.cells if cell.id == cell_id)
    run = session.probe(chosen, lambda _done, _total: None)
    return run.results[0], session.lab.record(run, intent=session.intent)
