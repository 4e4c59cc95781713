"""The directory of a night: where it is, which one came before, and what is written into it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from lab._errors import LabError, UsageError
from lab.lifecycle.nightly import read_run
from lab.lifecycle.session import JUNIT, RESULT
from lab.matrix.verdict import RunResult
from lab.reports import junit, night_html
from lab.reports.difference import differences
from lab.reports.night import FORMAT, Night, comparison_lines, difference_json, summary_json
from lab.state.directory import make_private
from lab.state.failure import ELSEWHERE, guarded_files
from lab.state.files import write_private

SUMMARY = "summary.json"
INDEX = "index.html"
DIFFERENCE = "difference.json"
DIFFERENCE_TEXT = "difference.txt"


@dataclass(frozen=True, slots=True)
class Earlier:
    """The night before: its directory, and the run of every scenario that has left one."""

    directory: Path
    runs: Mapping[str, RunResult] = field(default_factory=dict)


def make_output(wanted: Path | None, state: Path, now: datetime) -> Path:
    """Make the directory of this night: the one that is told, or ``nightly/DATE`` in the state's.

    Raises
    ------
    UsageError
        When the one that is told has something in it.
    StateError
        When it cannot be made.

    """
    if wanted is None:
        shelf = state / "nightly"
        make_private(shelf)
        dated = shelf / f"{now:%Y-%m-%d}"
        output = shelf / f"{now:%Y-%m-%d-%H%M%S}" if dated.exists() else dated
    else:
        output = wanted.absolute()
    make_private(output, ELSEWHERE if wanted is None else "or give --output another one")
    with guarded_files(f"looking into '{output}'"):
        if any(output.iterdir()):
            raise UsageError(
                f"making the directory '{output}' of a night",
                "there is something in it already",
                "give each night a directory of its own, or leave --output out",
            )
    return output


def find_earlier(output: Path, provider: str, wanted: Path | None) -> Earlier | None:
    """The night to compare with: the one told, else the latest beside this one.

    Only one on the same provider counts; one that cannot be read does not.

    Raises
    ------
    UsageError
        When the one that is told is no night's directory.

    """
    if wanted is not None:
        if _summary(wanted) is None:
            raise UsageError(
                f"comparing with the night in '{wanted}'",
                f"there is no '{SUMMARY}' of this version in it",
                "give the directory that an earlier 'lab nightly' has written",
            )
        return _read(wanted)
    found = [
        (str(summary["started"]), path)
        for path in sorted(output.parent.iterdir())
        if path != output
        and (summary := _summary(path)) is not None
        and summary.get("provider") == provider
    ]
    return _read(max(found)[1]) if found else None


def _summary(directory: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((directory / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    known = isinstance(found, dict) and found.get("format") == FORMAT and "started" in found
    return found if known else None


def _read(directory: Path) -> Earlier:
    runs = {}
    for path in sorted(directory.glob(f"*/{RESULT}")):
        with suppress(OSError, ValueError, LabError):  # one that is damaged is not compared
            runs[path.parent.name] = read_run(path)
    return Earlier(directory, runs)


def compared(night: Night, earlier: Earlier | None) -> Night:
    """The night with its differences to the one before."""
    if earlier is None:
        return night
    now = {one.scenario: one.run for one in night.scenarios if one.run is not None}
    found = differences(earlier.runs, now)
    return replace(night, before=earlier.directory.name, differences=found)


def write(night: Night, output: Path) -> None:
    """Write JUnit, JSON, the differences and the index of all reports.

    Raises
    ------
    StateError
        When one cannot be written.

    """
    documents = {}
    for one in night.scenarios:
        path = output / one.scenario / JUNIT
        if path.is_file():
            with guarded_files(f"reading '{path}'"):
                documents[one.scenario] = path.read_text(encoding="utf-8")
    write_private(output / JUNIT, junit.merged(night.scenarios, documents))
    write_private(output / SUMMARY, _text(summary_json(night)))
    write_private(output / DIFFERENCE, _text(difference_json(night)))
    write_private(output / DIFFERENCE_TEXT, "\n".join(comparison_lines(night)) + "\n")
    write_private(output / INDEX, night_html.to_html(night))


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"
