"""The directory of a night: create it, find earlier nights, and write the reports into it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from lab._errors import LabError, UsageError
from lab.lifecycle.open_lab import JUNIT, RESULT
from lab.matrix.verdict import RunResult
from lab.reports.difference import difference
from lab.reports.night import (
    READABLE,
    TESTED,
    Night,
    comparison_lines,
    difference_json,
    junit_of_night,
    night_to_html,
    summary_json,
)
from lab.reports.result import parse_json, read_run
from lab.reports.trends import metrics_text, trends_to_html
from lab.state.directory import make_own, make_private, nights_directory
from lab.state.failure import ELSEWHERE, guarded_files
from lab.state.files import read_regular, write_private
from lab.state.permissions import writer
from lab.state.stamps import FORMAT as STAMP
from lab.state.stamps import is_stamp, stamp

SUMMARY = "summary.json"
INDEX = "index.html"
ID = "night.id"
"""File with the night's number and start time, such as ``7 20261121-020007``. It is written first;
earlier versions wrote the time alone, and before that only a summary."""
TRENDS = "trends.html"
METRICS = "metrics.prom"
DIFFERENCE = "difference.json"
DIFFERENCE_TEXT = "difference.txt"


@dataclass(frozen=True, slots=True)
class FoundNight:
    """A night on disk; ``summary`` is empty if it was killed or is running."""

    directory: Path
    number: int = 0
    """One more than that of the night before, whatever the clock says; 0 if it was made by an
    earlier version."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    began: str = ""
    """Its start time, as a stamp of :mod:`lab.state.stamps`."""

    @property
    def place(self) -> tuple[int, str, Path]:
        """What nights are sorted by, in the order of running."""
        return self.number, self.began, self.directory

    @property
    def complete(self) -> frozenset[str]:
        """The scenarios of which it tested every cell, even with failed cells."""
        if self.summary.get("expression"):
            return frozenset()
        return frozenset(
            str(scenario.get("scenario"))
            for scenario in _list_objects(self.summary, "scenarios")
            for stage in _list_objects(scenario, "stages")
            if stage.get("stage") == "test" and stage.get("code") in [*TESTED]
        )

    @property
    def runs(self) -> frozenset[tuple[str, str]]:
        """The lab and the id of each run that its summary refers to."""
        pairs = (
            (scenario.get("lab"), scenario.get("run"))
            for scenario in _list_objects(self.summary, "scenarios")
        )
        return frozenset(
            (lab, run) for lab, run in pairs if isinstance(lab, str) and isinstance(run, str)
        )


def make_output(wanted: Path | None, state: Path, now: datetime) -> Path:
    """Create the directory of this night: ``wanted``, or ``nightly/DATE`` in the state directory.

    Its number is larger than those of all nights beside it.

    Raises UsageError when ``wanted`` is not empty, or another user may write or redirect it. Raises
    StateError when it cannot be created.
    """
    if wanted is None:
        make_own(state)
        shelf = nights_directory(state)
        make_private(shelf)
        number = _next_number(shelf)
        dated = shelf / f"{now:%Y-%m-%d}"
        output = dated.with_name(f"{dated.name}-{number}") if dated.exists() else dated
    else:
        output = wanted.absolute()
        number = _next_number(output.parent)
    _require_own(output)
    make_private(output, ELSEWHERE if wanted is None else "or give --output another one")
    _require_own(output, exists=True)  # another user may have created it
    with guarded_files(f"looking into '{output}'"):
        if any(output.iterdir()):
            raise UsageError(
                f"making the directory '{output}' of a night",
                "it is not empty",
                "give each night a directory of its own, or leave --output out",
            )
    write_private(output / ID, f"{number} {now:{STAMP}}\n")
    return output


def _next_number(parent: Path) -> int:
    with guarded_files(f"looking for nights in '{parent}'"):
        others = _nights_beside(parent) if parent.exists() else ()
        return max((night.number for night in others), default=0) + 1


def _nights_beside(parent: Path) -> Iterator[FoundNight]:
    """The nights in ``parent``, which may be shared, that no other user may have written."""
    nights = (night_in(path) for path in parent.iterdir() if not writer(path))
    return filter(None, nights)


def _require_own(output: Path, *, exists: bool = False) -> None:
    if wrong := writer(output, exists=exists):
        raise UsageError(
            f"writing a night into '{output}'",
            wrong[0],
            "give a directory of your own, or a new one",
        )


def find_earlier(output: Path, provider: str, wanted: Path | None) -> tuple[FoundNight, ...]:
    """The nights to compare with: ``wanted``, else those beside ``output``, latest first.

    Only nights on the same provider count, and not those that cannot be read or that another user
    may have written: nights may be in a shared directory.

    Raises UsageError when ``wanted`` is not the directory of a night.
    """
    if wanted is not None:
        summary = summary_in(wanted)
        if not summary:
            raise UsageError(
                f"comparing with the night in '{wanted}'",
                f"there is no '{SUMMARY}' of this version in it",
                "give the directory that an earlier 'lab nightly' has written",
            )
        return (FoundNight(wanted, summary=summary),)
    nights = [night for night in _nights_beside(output.parent) if night.directory != output]
    nights.sort(key=lambda night: night.place, reverse=True)
    return tuple(night for night in nights if night.summary.get("provider") == provider)


def night_in(directory: Path) -> FoundNight | None:
    """The night in this directory; None if it has neither an id nor a summary."""
    summary = summary_in(directory)
    number, began = _written_id(directory)
    began = began or (_start_of(directory, summary) if summary else "")
    return FoundNight(directory, number, summary, began) if number or began else None


def _written_id(directory: Path) -> tuple[int, str]:
    """The number and the start time in the id file; 0 and empty if it is missing or damaged."""
    try:
        number, _, began = read_regular(directory / ID).decode().strip().rpartition(" ")
    except (OSError, ValueError):
        return 0, ""
    if re.fullmatch("[0-9]{1,9}", number):
        return int(number), began
    return 0, began if not number and is_stamp(began) else ""


def _start_of(directory: Path, summary: Mapping[str, Any]) -> str:
    """The start time of a night from before nights had the file."""
    try:
        return stamp(datetime.fromisoformat(str(summary["started"])).timestamp())
    except (ValueError, OverflowError):
        return read_stamp(directory)


def read_stamp(directory: Path) -> str:
    """The directory's modification time, as a stamp."""
    try:
        return stamp(directory.stat().st_mtime)
    except (OSError, ValueError, OverflowError):  # just removed, or an odd date
        return stamp(0)


def summary_in(directory: Path) -> dict[str, Any]:
    """The summary of the night in this directory; empty if it has none of this version."""
    path = directory / SUMMARY
    try:
        summary = parse_json(read_regular(path).decode())  # could be a pipe in a shared directory
    except (OSError, ValueError):
        return {}
    known = isinstance(summary, dict) and summary.get("format") in READABLE and "started" in summary
    return summary if known else {}


def _list_objects(summary: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects in the list ``found[key]``; empty if it is not a list."""
    value = summary.get(key)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def compare_night(night: Night, earlier: Sequence[FoundNight]) -> Night:
    """The night with each scenario's differences from the latest comparable night."""
    runs = {
        scenario.scenario: scenario.run
        for scenario in night.scenarios
        if scenario.run and scenario.tested
    }
    latest = {name: _latest_run(name, earlier) for name in runs}
    pairs = {name: pair for name, pair in latest.items() if pair is not None}
    return replace(
        night,
        before={name: directory.name for name, (directory, _) in pairs.items()},
        differences={name: difference(run, runs[name]) for name, (_, run) in pairs.items()},
    )


def _latest_run(scenario: str, earlier: Sequence[FoundNight]) -> tuple[Path, RunResult] | None:
    """The latest night with a complete run of the scenario, and that run."""
    for night in earlier:
        if scenario in night.complete:
            with suppress(OSError, ValueError, LabError):  # a damaged run is skipped
                return night.directory, read_run(night.directory / scenario / RESULT)
    return None


def write(night: Night, output: Path, earlier: Sequence[FoundNight]) -> None:
    """Write JUnit, JSON, the differences, the index, trends and metrics.

    ``earlier``: the nights that trends show besides, latest first.

    Raises StateError when one cannot be written.
    """
    documents = {}
    for scenario in night.scenarios:
        path = output / scenario.scenario / JUNIT
        if path.is_file():
            with guarded_files(f"reading '{path}'"):
                documents[scenario.scenario] = path.read_text(encoding="utf-8")
    write_private(output / JUNIT, junit_of_night(night.scenarios, documents))
    write_private(output / SUMMARY, _text(summary_json(night)))
    write_private(output / DIFFERENCE, _text(difference_json(night)))
    write_private(output / DIFFERENCE_TEXT, "\n".join(comparison_lines(night)) + "\n")
    write_private(output / INDEX, night_to_html(night))
    summaries = [before.summary for before in reversed(earlier)]
    write_private(output / TRENDS, trends_to_html(night, summaries))
    write_private(output / METRICS, metrics_text(night))


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"
