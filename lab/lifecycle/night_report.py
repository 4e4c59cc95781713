"""The directory of a night: where it is, which ones came before, and what is written into it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from lab._errors import LabError, UsageError
from lab.lifecycle.session import JUNIT, RESULT
from lab.matrix.verdict import RunResult
from lab.reports.difference import difference
from lab.reports.night import (
    FORMAT,
    TESTED,
    Night,
    comparison_lines,
    difference_json,
    junit_of_night,
    night_to_html,
    summary_json,
)
from lab.reports.result import parsed, read_run
from lab.state.directory import make_own, make_private, nights_directory, writer
from lab.state.failure import ELSEWHERE, guarded_files
from lab.state.files import read_regular, write_private
from lab.state.stamps import FORMAT as STAMP
from lab.state.stamps import in_order, is_stamp, stamp

SUMMARY = "summary.json"
INDEX = "index.html"
ID = "night.id"
"""When it began, as :mod:`lab.state.stamps` has it: also where the clock went back, nights have the
order in which they were run. Written first; one of an earlier version has its summary alone."""
DIFFERENCE = "difference.json"
DIFFERENCE_TEXT = "difference.txt"


@dataclass(frozen=True, slots=True)
class FoundNight:
    """A night that is kept; ``summary`` is None where it was killed or is under way."""

    directory: Path
    id: str
    summary: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier night: its directory, and the scenarios whose matrix it has asked to the end."""

    directory: Path
    complete: frozenset[str]


def make_output(wanted: Path | None, state: Path, now: datetime) -> Path:
    """Make the directory of this night: the given one, or ``nightly/DATE`` in the state's.

    Its id is behind those of all nights beside it.

    Raises UsageError when the given one has something in it, or another user may write it or lead
    it elsewhere. Raises StateError when it cannot be created.
    """
    if wanted is None:
        make_own(state)
        shelf = nights_directory(state)
        make_private(shelf)
        own = _next_id(shelf, now)
        dated = shelf / f"{own[:4]}-{own[4:6]}-{own[6:8]}"
        output = dated.with_name(f"{dated.name}{own[8:]}") if dated.exists() else dated
    else:
        output = wanted.absolute()
        own = _next_id(output.parent, now)
    _require_own(output)
    make_private(output, ELSEWHERE if wanted is None else "or give --output another one")
    _require_own(output, there=True)  # somebody else may have made it
    with guarded_files(f"looking into '{output}'"):
        if any(output.iterdir()):
            raise UsageError(
                f"making the directory '{output}' of a night",
                "it is not empty",
                "give each night a directory of its own, or leave --output out",
            )
    write_private(output / ID, f"{own}\n")
    return output


def _next_id(parent: Path, now: datetime) -> str:
    with guarded_files(f"looking for nights in '{parent}'"):
        others = _beside(parent) if parent.exists() else ()
        return in_order(f"{now:{STAMP}}", (night.id for night in others))


def _beside(parent: Path) -> Iterator[FoundNight]:
    """The nights in a directory that no other user may have written: it may be a shared one."""
    found = (night_in(path) for path in parent.iterdir() if not writer(path))
    return filter(None, found)


def _require_own(output: Path, *, there: bool = False) -> None:
    if wrong := writer(output, there=there):
        raise UsageError(
            f"writing a night into '{output}'",
            wrong[0],
            "give a directory of your own, or a new one",
        )


def find_earlier(output: Path, provider: str, wanted: Path | None) -> tuple[Earlier, ...]:
    """The nights to compare with: the given one, else those beside this one, the latest first.

    Only those on the same provider count; one that cannot be read does not, nor does one that
    another user may have written: nights may be in a shared directory.

    Raises UsageError when the given one is not the directory of a night.
    """
    if wanted is not None:
        summary = summary_in(wanted)
        if summary is None:
            raise UsageError(
                f"comparing with the night in '{wanted}'",
                f"there is no '{SUMMARY}' of this version in it",
                "give the directory that an earlier 'lab nightly' has written",
            )
        return (Earlier(wanted, _complete(summary)),)
    nights = [night for night in _beside(output.parent) if night.directory != output]
    nights.sort(key=lambda night: (night.id, night.directory), reverse=True)
    return tuple(
        Earlier(night.directory, _complete(night.summary))
        for night in nights
        if night.summary and night.summary.get("provider") == provider
    )


def night_in(directory: Path) -> FoundNight | None:
    """The night in that directory; None where neither its id nor a summary is there."""
    summary = summary_in(directory)
    own = _written_id(directory) or (_began(directory, summary) if summary else "")
    return FoundNight(directory, own, summary) if own else None


def _written_id(directory: Path) -> str:
    """What its file says; empty where that is missing or damaged."""
    try:
        written = read_regular(directory / ID).decode().strip()
    except (OSError, ValueError):
        return ""
    return written if is_stamp(written) else ""


def _began(directory: Path, summary: Mapping[str, Any]) -> str:
    """The id of a night that was run before nights had one."""
    try:
        return stamp(datetime.fromisoformat(str(summary["started"])).timestamp())
    except (ValueError, OverflowError):
        return changed(directory)


def changed(directory: Path) -> str:
    """When something in the directory was last made or removed, as an id has it."""
    try:
        return stamp(directory.stat().st_mtime)
    except (OSError, ValueError, OverflowError):  # it has just gone, or has an odd date
        return stamp(0)


def summary_in(directory: Path) -> dict[str, Any] | None:
    """The summary of the night in that directory; None where it has none of this version."""
    path = directory / SUMMARY
    try:
        found = parsed(read_regular(path).decode())  # in a shared directory it may be a pipe
    except (OSError, ValueError):
        return None
    known = isinstance(found, dict) and found.get("format") == FORMAT and "started" in found
    return found if known else None


def runs_of(summary: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """The lab and the id of each run that a night's summary refers to."""
    pairs = ((one.get("lab"), one.get("run")) for one in _listed(summary, "scenarios"))
    return frozenset(
        (lab, run) for lab, run in pairs if isinstance(lab, str) and isinstance(run, str)
    )


def _complete(summary: Mapping[str, Any]) -> frozenset[str]:
    """The scenarios whose test came to its end; cells may have failed in it."""
    return frozenset(
        str(one.get("scenario"))
        for one in _listed(summary, "scenarios")
        if any(
            stage.get("stage") == "test" and _is_tested(stage.get("code"))
            for stage in _listed(one, "stages")
        )
    )


def _is_tested(code: object) -> bool:
    return isinstance(code, int) and code in TESTED


def _listed(found: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects in that list; none where it is no list."""
    value = found.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def compared(night: Night, earlier: Sequence[Earlier]) -> Night:
    """The night with the differences of each scenario to the latest night that can be compared."""
    runs = {one.scenario: one.run for one in night.scenarios if one.run and one.tested}
    found = {name: _latest(name, earlier) for name in runs}
    pairs = {name: one for name, one in found.items() if one is not None}
    return replace(
        night,
        before={name: directory.name for name, (directory, _) in pairs.items()},
        differences={name: difference(run, runs[name]) for name, (_, run) in pairs.items()},
    )


def _latest(scenario: str, earlier: Sequence[Earlier]) -> tuple[Path, RunResult] | None:
    """The latest night with a complete run of that scenario, and the run."""
    for night in earlier:
        if scenario in night.complete:
            with suppress(OSError, ValueError, LabError):  # one that is damaged is not compared
                return night.directory, read_run(night.directory / scenario / RESULT)
    return None


def write(night: Night, output: Path) -> None:
    """Write JUnit, JSON, the differences and the index of all reports.

    Raises StateError when one cannot be written.
    """
    documents = {}
    for one in night.scenarios:
        path = output / one.scenario / JUNIT
        if path.is_file():
            with guarded_files(f"reading '{path}'"):
                documents[one.scenario] = path.read_text(encoding="utf-8")
    write_private(output / JUNIT, junit_of_night(night.scenarios, documents))
    write_private(output / SUMMARY, _text(summary_json(night)))
    write_private(output / DIFFERENCE, _text(difference_json(night)))
    write_private(output / DIFFERENCE_TEXT, "\n".join(comparison_lines(night)) + "\n")
    write_private(output / INDEX, night_to_html(night))


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"
