"""Runs that are kept, found by what a user calls them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lab._errors import BrokenError, UsageError
from lab.lifecycle.session import RESULT
from lab.matrix.verdict import RunResult
from lab.reports.result import from_json

_BACK = re.compile(r"(?P<lab>[^~]+)(~(?P<back>[0-9]{1,9}))?")


def find_run(wanted: str, state: Path) -> RunResult:
    """The run that is meant.

    Parameters
    ----------
    wanted
        A result file, the directory of one, the id of a run, ``LAB`` for the last run of a lab,
        or ``LAB~1`` for the one before that, ``LAB~2`` and so on. The first that there is counts,
        in that order.
    state
        The state directory.

    Raises
    ------
    UsageError
        When there is none, naming the nearest, or when the file is no result.

    """
    doing = f"looking for the run '{wanted}'"
    path = Path(wanted)
    kept = state.glob(f"labs/*/runs/{wanted}/{RESULT}") if _is_name(wanted) else iter(())
    for file in (path, path / RESULT, *kept):
        if file.is_file():
            return _read(doing, file)
    by_lab = _BACK.fullmatch(wanted)
    if by_lab and _is_name(by_lab["lab"]) and (state / "labs" / by_lab["lab"]).is_dir():
        return _read(doing, _of_lab(doing, state, by_lab["lab"], int(by_lab["back"] or 0)))
    raise UsageError(
        doing,
        "it is neither a result.json, nor a directory with one, nor the id of a run that is kept, "
        "nor a lab",
        _nearest(wanted, state) or "'lab test LAB' makes a run; 'lab list' names the labs",
    )


def _is_name(text: str) -> bool:
    """Whether it can be the name of one directory, and no pattern of several."""
    return re.fullmatch(r"[A-Za-z0-9][-.\w]*", text) is not None


def _of_lab(doing: str, state: Path, lab: str, back: int) -> Path:
    runs = _runs(state, lab)
    if not runs:
        raise UsageError(doing, f"lab '{lab}' has not been tested yet", f"lab test {lab}")
    if back >= len(runs):
        there = "only one run" if len(runs) == 1 else f"only {len(runs)} runs"
        listed = ", ".join(run.name for run in runs[-5:])
        raise UsageError(
            doing,
            f"lab '{lab}' has {there}, so the oldest is '{lab}~{len(runs) - 1}'",
            f"one of its latest: {listed}",
        )
    return runs[-1 - back] / RESULT


def _runs(state: Path, lab: str) -> list[Path]:
    """Directories of a lab's runs, oldest first: their names begin with the time."""
    return sorted(file.parent for file in state.glob(f"labs/{lab}/runs/*/{RESULT}"))


def _nearest(wanted: str, state: Path) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  only for a wrong name

    labs = sorted(path.name for path in state.glob("labs/*") if path.is_dir())
    runs = sorted(file.parent.name for file in state.glob(f"labs/*/runs/*/{RESULT}"))
    near = get_close_matches(wanted, [*labs, *runs], n=1) or get_close_matches(
        wanted.partition("~")[0], labs, n=1
    )
    return f"did you mean '{near[0]}'?" if near else ""


def _read(doing: str, file: Path) -> RunResult:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        run, _ = from_json(document if isinstance(document, dict) else {})
    except (OSError, ValueError, BrokenError) as error:
        raise UsageError(
            doing, f"'{file}' is no result of a run: {error}", "give a result.json"
        ) from error
    return run
