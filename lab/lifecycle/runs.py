"""Find kept runs by the names that users give, and repeat a cell of a run."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab._errors import BrokenError, UsageError, did_you_mean, os_words
from lab.lifecycle import api
from lab.lifecycle.compilation import keep_only
from lab.lifecycle.names import check_name, is_name, repro_name
from lab.lifecycle.open_lab import RESULT, stored_runs
from lab.matrix.assertion import AssertionResult
from lab.matrix.cell import Cell, is_id
from lab.matrix.reduce import keep_assertion, reduce
from lab.matrix.verdict import GREEN, CellResult, RunResult, Verdict
from lab.reports.result import from_json, parse_json
from lab.scenario.loader import HeldText, load, to_yaml
from lab.scenario.scenario import Scenario
from lab.state.directory import make_own, make_private
from lab.state.failure import guarded_files
from lab.state.files import open_output, read_regular
from lab.state.lock import RUNS
from lab.state.store import Store
from lab.suites.session import MatrixSession
from lab.topology import registry

_A_RUN = f"give the {RESULT} of a run, its directory, its id, or a lab"
_SHOWN = 3
_BACK = re.compile(r"(?P<lab>[^~]+)(~(?P<back>[0-9]{1,9}))?")


def find_run(wanted: str, state: Path) -> RunResult:
    """The run that ``wanted`` means.

    ``wanted``: a result file, its directory, the id of a run, ``LAB`` for the last run of a lab, or
    ``LAB~1`` for the one before that, ``LAB~2`` and so on. They are tried in this order. ``state``:
    the state directory.

    The file may come from elsewhere: the commands that repeat its cells are not taken from it.

    Raises UsageError when there is none, with the nearest name, or when the file is not a result.
    """
    action = f"looking for the run '{wanted}'"
    path = Path(wanted)
    file = path / RESULT if path.is_dir() else path
    if os.path.lexists(file):
        return _read_any(action, path, file, state)
    kept = state.glob(f"labs/*/runs/{wanted}/{RESULT}") if _is_name(wanted) else iter(())
    for file in kept:
        return _read_kept(action, file, state)
    by_lab = _BACK.fullmatch(wanted)
    if by_lab and _is_name(by_lab["lab"]) and (state / "labs" / by_lab["lab"]).is_dir():
        runs = _list_runs(state, by_lab["lab"])
        directory = _by_age(action, by_lab["lab"], runs, int(by_lab["back"] or 0))
        return _read_kept(action, directory / RESULT, state)
    raise UsageError(action, *_describe_missing(wanted, path, state))


def chosen_run(written: str, run: str | None) -> tuple[str, Path]:
    """The lab that ``written`` means, and the directory of one of its runs in the journal.

    ``written``: ``LAB`` for the last run, or ``LAB~1`` for the one before that and so on. ``run``:
    the id of a run of the lab, instead.

    Raises UsageError when there is no such lab or run.
    """
    action = f"looking for a report of lab '{written}'"
    by_age = _BACK.fullmatch(written)
    lab, back = (by_age["lab"], by_age["back"]) if by_age else (written, None)
    directories = [Path(directory) for directory in api.runs(lab)]
    if run is None:
        return lab, _by_age(action, lab, directories, int(back or 0))
    if back is not None:
        raise UsageError(action, "a run is named twice", f"'{written}', or '{lab} {run}'")
    for directory in directories:
        if directory.name == run:
            return lab, directory
    names = ", ".join(directory.name for directory in directories)
    raise UsageError(
        action, f"it has no run '{run}'", f"one of: {names}" if names else f"lab test {lab}"
    )


def _describe_missing(wanted: str, path: Path, state: Path) -> tuple[str, str]:
    if path.is_dir():
        below = sorted(path.glob(f"*/{RESULT}"), key=lambda file: file.parent.name)
        near = " or ".join(f"'{file.parent}'" for file in below[:_SHOWN])
        hint = f"did you mean {near}?" if near else "the directory of one run, or its result.json"
        return f"directory '{wanted}' has no {RESULT}", hint
    if "/" in wanted or path.suffix == ".json":
        return "there is no such file", _A_RUN
    neither = f"it is not a {RESULT}, a directory with one, or the id of a stored run"
    return (
        f"{neither}, nor a lab",
        _suggest_nearest(wanted, state) or "'lab test LAB' makes a run; 'lab list' names the labs",
    )


def _is_name(text: str) -> bool:
    """Whether the text can be the name of one directory, and not a glob pattern."""
    return re.fullmatch(r"[A-Za-z0-9][-.\w]*", text) is not None


def _by_age(action: str, lab: str, runs: Sequence[Path], back: int) -> Path:
    """The run that is ``back`` before the last. ``runs``: the lab's, oldest first."""
    if not runs:
        raise UsageError(action, f"lab '{lab}' has not been tested yet", f"lab test {lab}")
    if back >= len(runs):
        number_of_runs = "only one run" if len(runs) == 1 else f"only {len(runs)} runs"
        listed = ", ".join(run.name for run in runs[-5:])
        raise UsageError(
            action,
            f"lab '{lab}' has {number_of_runs}, so the oldest is '{lab}~{len(runs) - 1}'",
            f"one of its latest: {listed}",
        )
    return runs[-1 - back]


def _list_runs(state: Path, lab: str) -> list[Path]:
    """Directories of a lab's runs, oldest first."""
    with Store(state) as store:
        directories = [store.run_directory(lab, run) for run in stored_runs(store, lab)]
    return [directory for directory in directories if os.path.lexists(directory / RESULT)]


def _suggest_nearest(wanted: str, state: Path) -> str:
    labs = sorted(path.name for path in state.glob("labs/*") if path.is_dir())
    runs = sorted(file.parent.name for file in state.glob(f"labs/*/runs/*/{RESULT}"))
    return did_you_mean(wanted, [*labs, *runs]) or did_you_mean(wanted.partition("~")[0], labs)


def _read_any(action: str, path: Path, file: Path, state: Path) -> RunResult:
    """Read a run in any file, which has a number if the file is in the state directory."""
    run = _read(action, file, ("lab", "repro", str(path.absolute())))
    is_kept = file.resolve().is_relative_to((state / "labs" / run.lab / RUNS).resolve())
    return _with_number(run, state) if is_kept else replace(run, number=0)


def _read_kept(action: str, file: Path, state: Path) -> RunResult:
    """Read a run in the state directory; its cells are repeated in its lab if that still exists."""
    lab, run = file.parents[2].name, file.parent.name
    with Store(state) as store:
        row = store.lab(lab)
    is_up = row is not None and row.status != "down"
    repeat = ("lab", "test", lab, "-k") if is_up else ("lab", "repro", run)
    return _with_number(_read(action, file, repeat), state)


def _with_number(run: RunResult, state: Path) -> RunResult:
    """A run of the state directory, with its number in the journal if its file has none."""
    if run.number:
        return run
    with Store(state) as store:
        numbers = {row.id: row.number for row in store.runs(run.lab)}
    return replace(run, number=numbers.get(run.run, 0))


def _read(action: str, file: Path, repeat: Sequence[str]) -> RunResult:
    """Read a result file. ``repeat``: the command that repeats a cell, without the cell's id."""
    try:
        text = read_regular(file).decode()
        document = parse_json(text)
    except json.JSONDecodeError as error:
        raise UsageError(action, f"'{file}' {_describe_break(text, error)}", _A_RUN) from error
    except OSError as error:
        raise UsageError(action, f"'{file}' cannot be read: {os_words(error)}", _A_RUN) from error
    except ValueError as error:
        raise UsageError(action, f"'{file}' cannot be read: {error}", _A_RUN) from error
    if not isinstance(document, dict) or "format" not in document:
        raise UsageError(action, f"'{file}' is JSON, but not the result of a run", _A_RUN)
    try:
        run, _ = from_json(document)
    except BrokenError as error:
        raise UsageError(action, f"'{file}': {error.happened}", error.hint or _A_RUN) from error
    if wrong := _wrong_name(run):  # it could imitate output of lab itself
        raise UsageError(action, f"'{file}' has {wrong}", _A_RUN)

    def repeating(judged: Judged) -> str:
        return shlex.join((*repeat, id_of(judged)))

    return replace(
        run,
        results=tuple(replace(result, repeat=repeating(result)) for result in run.results),
        assertions=tuple(replace(result, repeat=repeating(result)) for result in run.assertions),
    )


def _wrong_name(run: RunResult) -> str:
    """A name in the run that no such thing can have; empty if there is none."""
    judged: tuple[Judged, ...] = (*run.results, *run.assertions)
    names = (
        ("run", run.run, _is_name),
        ("lab", run.lab, is_name),
        ("scenario", run.scenario, str.isprintable),
        *(("cell", id_of(result), is_id) for result in judged),
    )
    wrong = (
        f"a name that no {kind} has: {name!r:.60}" for kind, name, valid in names if not valid(name)
    )
    return next(wrong, "")


def _describe_break(text: str, error: json.JSONDecodeError) -> str:
    """What is wrong with a text that is not JSON."""
    if not text.strip():
        return "is empty"
    if text[error.pos :].strip():
        return f"is not JSON: {error.msg.lower()} in line {error.lineno}, column {error.colno}"
    return f"ends abruptly in line {error.lineno}: it was not completely written or copied"


SHELF = "repro"
"""Directory of the scenarios of small labs, in the state directory."""


Judged = CellResult | AssertionResult


@dataclass(frozen=True, slots=True)
class Small:
    """The smallest lab that has a cell or an assertion, and its scenario file."""

    run: RunResult
    then: Judged
    scenario: Scenario
    file: Path
    lab: str


def id_of(judged: Judged) -> str:
    """Its id in reports: a cell's, or ``assertions/NAME/PLACE``."""
    return judged.cell.id if isinstance(judged, CellResult) else judged.item


def judged_of(run: RunResult, wanted: str) -> Judged:
    """The cell or assertion with this id.

    Raises UsageError, with the nearest id, when the run does not have it.
    """
    judged: tuple[Judged, ...] = (*run.results, *run.assertions)
    for result in judged:
        if id_of(result) == wanted:
            return result
    raise UsageError(
        f"looking for cell '{wanted}' in run '{run.run}'",
        "it has no such cell",
        did_you_mean(wanted, map(id_of, judged)) or "its report has the ids of all its cells",
    )


def make_small(
    run: RunResult, then: Judged, state: Path, name: str | None, output: Path | None
) -> Small:
    """Determine the smallest lab that has the cell, and write its scenario.

    For an assertion this is the whole lab: its command may look at anything.

    The run may come from elsewhere, so its content is checked before anything is written, and no
    path is taken from it.

    Raises UsageError when the run does not include its scenario, when the scenario no longer has
    the cell, or when the lab's name is invalid. Raises ScenarioError when this version reads the
    scenario differently from the one that wrote it. Raises StateError when a file cannot be
    written.
    """
    if not run.scenario_text:
        raise UsageError(
            f"reproducing a cell of run '{run.run}'",
            "its result was written before results included their scenario",
            "run 'lab test' again, and take a cell of that run",
        )
    lab = name or repro_name(run.scenario)
    check_name(lab, new=True)
    held = HeldText(run.scenario_text, f"the scenario of run '{run.run}'")
    whole = load(held, topology_check=registry.check)
    if run.only is not None:
        whole = keep_only(whole, run.only)
    if isinstance(then, CellResult):
        small = reduce(whole, then.cell.id)
        head = f"The smallest lab that has cell {then.cell.id} of run {run.run}, by 'lab repro'."
    else:
        small = keep_assertion(whole, then)
        head = f"The lab of assertion {then.id} of run {run.run}, by 'lab repro'."
    file = output.absolute() if output else state / SHELF / f"{lab}.yaml"
    if output is None:
        make_own(state)
        make_private(file.parent)
    action = f"writing '{file}'"
    with guarded_files(action), open_output(file, action) as opened:
        opened.write(to_yaml(small, head).encode())
    return Small(run, then, small, file, lab)


def judge(then: Verdict, now: Verdict) -> tuple[int, str]:
    """The exit code and its meaning: 1 if the cell is not as expected here, 0 if it is."""
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


def run_judged(session: MatrixSession, then: Judged) -> tuple[Judged, Path]:
    """Probe one cell or make one assertion, keep the run; the result and the run's directory.

    Raises LabError as :meth:`lab.suites.session.MatrixSession.probe` does.
    """
    wanted = id_of(then)
    chosen: tuple[Cell, ...] = tuple(cell for cell in session.cells if cell.id == wanted)
    run = session.probe(chosen, lambda _stage, _done, _total: None, checks=(wanted,))
    directory = session.lab.record(run, session.intent)
    session.lab.record_page(directory, run, session.intent)
    return judged_of(run, wanted), directory
