"""The directory of a night: where it is, which ones came before, and what is written into it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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

SUMMARY = "summary.json"
INDEX = "index.html"
DIFFERENCE = "difference.json"
DIFFERENCE_TEXT = "difference.txt"


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier night: its directory, and the scenarios whose matrix it has asked to the end."""

    directory: Path
    complete: frozenset[str]


def make_output(wanted: Path | None, state: Path, now: datetime) -> Path:
    """Make the directory of this night: the given one, or ``nightly/DATE`` in the state's.

    Raises UsageError when the given one has something in it, or another user may write it or lead
    it elsewhere. Raises StateError when it cannot be made.
    """
    if wanted is None:
        make_own(state)
        shelf = nights_directory(state)
        make_private(shelf)
        dated = shelf / f"{now:%Y-%m-%d}"
        output = shelf / f"{now:%Y-%m-%d-%H%M%S}" if dated.exists() else dated
    else:
        output = wanted.absolute()
    _require_own(output)
    make_private(output, ELSEWHERE if wanted is None else "or give --output another one")
    _require_own(output)  # somebody else may have made it
    with guarded_files(f"looking into '{output}'"):
        if any(output.iterdir()):
            raise UsageError(
                f"making the directory '{output}' of a night",
                "there is something in it already",
                "give each night a directory of its own, or leave --output out",
            )
    return output


def _require_own(output: Path) -> None:
    if stranger := writer(output):
        raise UsageError(
            f"writing a night into '{output}'",
            stranger,
            "give a directory of your own, or one that is not there yet",
        )


def find_earlier(output: Path, provider: str, wanted: Path | None) -> tuple[Earlier, ...]:
    """The nights to compare with: the given one, else those beside this one, the latest first.

    Only those on the same provider count; one that cannot be read does not.

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
    found = [
        (str(summary["started"]), path, _complete(summary))
        for path in sorted(output.parent.iterdir())
        if path != output
        and (summary := summary_in(path)) is not None
        and summary.get("provider") == provider
    ]
    return tuple(Earlier(path, complete) for _, path, complete in sorted(found, reverse=True))


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
