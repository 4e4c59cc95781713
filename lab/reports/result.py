"""A run as JSON: complete, versioned, the same bytes for the same run.

Sets are written as sorted lists; keys have a fixed order. ``counts`` is for people and other
programs; it is ignored when a run is read back.

A cell as plain JSON takes a kilobyte, most of it repeated in other cells. In the table it is a row
of about 80 bytes. The layout::

    {"fields": [...], "attempt_fields": [...],      fields of a cell and of an attempt, in order
     "columns": [...], "attempt_columns": [...],    columns of a row
     "values": {"source": [...], ...},              distinct values of each column
     "rows": [[[0, 3, 5, 1], 2, ...], ...]}         indexes into these values, from 0

Some columns are not such an index: ``id`` is a list of indexes, of the texts between its slashes,
``attempts`` is a list of rows, and an attempt's ``key`` and ``latency_ms`` are plain values.
``repeat`` refers to the texts before, between and after the cell's id. ``rest`` has every field
without a column. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lab._errors import BrokenError
from lab.facts.difference import Difference
from lab.matrix.failover import Failover
from lab.matrix.verdict import VERDICTS, CellResult, RunResult, Verdict
from lab.reports.topology import Picture, picture_of
from lab.scenario.families import family_terms
from lab.scenario.findings import cut
from lab.scenario.terms import Family
from lab.state.files import read_regular
from lab.topology.intent import Intent

_COLUMNS = ("source", "target", "entry", "backends", "sources", "answer", "detail", "expectation")
_ATTEMPT_COLUMNS = ("source_seen", "backends")
_PLAIN = ("key", "latency_ms")
_LONGEST = 1_000
"""Characters of a text that is joined from parts; longer ones are stored whole. It keeps a small
file from becoming a large text in memory."""

_line = json.JSONEncoder(separators=(",", ":")).encode


def table_text(cells: Iterable[Mapping[str, Any]]) -> str:
    """The table of cells as JSON, one row per line."""
    table = _Table()
    rows = ",\n ".join(_line(table.row(cell)) for cell in cells)
    head = {
        "fields": table.fields,
        "attempt_fields": table.attempt_fields,
        "columns": ["id", "repeat", *_COLUMNS, "rest", "attempts"],
        "attempt_columns": [*_PLAIN, *_ATTEMPT_COLUMNS, "rest"],
        "values": {name: list(values.places) for name, values in table.values.items()},
    }
    parts = [f"{_line(name)}:{_values_text(value)}" for name, value in head.items()]
    return "{" + ",\n".join(parts) + f',\n"rows":[\n {rows}\n]}}'


def _values_text(value: object) -> str:
    """A part of the table as JSON; distinct values already are JSON."""
    if not isinstance(value, dict):
        return _line(value)
    return "{" + ",\n".join(f"{_line(name)}:[{','.join(of)}]" for name, of in value.items()) + "}"


class _DistinctValues:
    """Distinct values, as JSON, in the order of their first use."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def place(self, value: object) -> int:
        return self.places.setdefault(_line(value), len(self.places))


class _Table:
    """The values that the rows so far refer to."""

    def __init__(self) -> None:
        self.fields: list[str] = []
        self.attempt_fields: list[str] = []
        names = (
            "id",
            "repeat",
            *_COLUMNS,
            "rest",
            *(f"attempt_{name}" for name in _ATTEMPT_COLUMNS),
        )
        self.values = {name: _DistinctValues() for name in (*names, "attempt_rest")}

    def row(self, cell: Mapping[str, Any]) -> list[Any]:
        self.fields = self.fields or list(cell)
        rest = dict(cell)
        cell_id, repeat, attempts = rest.pop("id"), rest.pop("repeat"), rest.pop("attempts")
        return [
            [self.values["id"].place(part) for part in _parts(cell_id, "/")],
            self.values["repeat"].place(_parts(repeat, cell_id)),
            *(self.values[name].place(rest.pop(name)) for name in _COLUMNS),
            self.values["rest"].place(rest),
            [self._attempt(attempt) for attempt in attempts],
        ]

    def _attempt(self, attempt: Mapping[str, Any]) -> list[Any]:
        self.attempt_fields = self.attempt_fields or list(attempt)
        rest = dict(attempt)
        return [
            *(rest.pop(name) for name in _PLAIN),
            *(self.values[f"attempt_{name}"].place(rest.pop(name)) for name in _ATTEMPT_COLUMNS),
            self.values["attempt_rest"].place(rest),
        ]


def _parts(text: str, separator: str) -> list[str]:
    """Split ``text`` at ``separator``, unless it is empty or the text is too long."""
    return text.split(separator) if separator and len(text) <= _LONGEST else [text]


def _join_parts(parts: Sequence[str], separator: str) -> str:
    if len(parts) > 1:
        length = sum(map(len, parts)) + len(separator) * (len(parts) - 1)
        if length > _LONGEST:
            raise ValueError(f"a text of {length} characters from {len(parts)} parts")
    return separator.join(parts)


def cells_of(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells of a table that was read.

    Raises KeyError, IndexError, TypeError, ValueError, AttributeError when it is not a valid table.
    """
    values, columns = table["values"], tuple(table["columns"])
    of_attempts = tuple(table["attempt_columns"])
    for row in table["rows"]:
        cell: dict[str, Any] = dict(zip(columns, row, strict=True))
        attempts = cell.pop("attempts")
        parts = [_at(values["id"], number) for number in cell.pop("id")]
        cell_id = _join_parts(parts, "/")
        repeat = _join_parts(_at(values["repeat"], cell.pop("repeat")), cell_id)
        values_of_cell = {name: _at(values[name], number) for name, number in cell.items()}
        values_of_cell |= values_of_cell.pop("rest")
        values_of_cell |= {"id": cell_id, "repeat": repeat}
        values_of_cell["attempts"] = [
            _attempt(table, dict(zip(of_attempts, attempt, strict=True))) for attempt in attempts
        ]
        yield {name: values_of_cell[name] for name in table["fields"]}


def _attempt(table: Mapping[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    attempt = {name: row.pop(name) for name in _PLAIN}
    values = table["values"]
    attempt |= {name: _at(values[f"attempt_{name}"], number) for name, number in row.items()}
    attempt |= attempt.pop("rest")
    return {name: attempt[name] for name in table["attempt_fields"]}


def _at(values: Sequence[Any], number: object) -> Any:
    """The value at this index."""
    if type(number) is not int or number < 0 or not isinstance(values, list):
        raise TypeError(f"{number!r} is not the number of a value")
    return values[number]


FORMAT = 3
"""Version of the JSON. Version 2 added what reproducing a run needs: the scenario's text and which
nodes were kept. Version 3 added refusals that Kubernetes promises, and clients that keep their
backend."""
STORED = 4
"""Version of the file: the same, but with the cells as a table."""
_READ = frozenset({1, 2, FORMAT, STORED})
_SHOWN = 300
"""Characters of an error in a document, which is not trusted."""
_READING = "reading the JSON of a run"
_MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError)


def to_json(run: RunResult, intent: Intent) -> dict[str, Any]:
    """The run and the picture of its Intent, as values that :mod:`json` can write."""
    places = _places(run)
    return {
        **_head(run, intent, places),
        "cells": [_result_json(result, places) for result in run.results],
    }


_OF_FINDING = (
    "kind",
    "fault",
    "node",
    "object",
    "intended",
    "observed",
    "shows",
    "mends",
    "place",
    "hop",
)
"""What is stored of a finding: the words, not what they were decided by."""


def _places(run: RunResult) -> dict[Difference, int]:
    """The index of each distinct finding."""
    findings = dict.fromkeys(result.finding for result in run.results if result.finding)
    return {finding: number for number, finding in enumerate(findings)}


def _head(run: RunResult, intent: Intent, findings: Iterable[Difference]) -> dict[str, Any]:
    """Everything except the cells."""
    return {
        "format": FORMAT,
        "run": run.run,
        "number": run.number,
        "lab": run.lab,
        "scenario": run.scenario,
        "summary": run.summary,
        "topology": run.topology,
        "provider": run.provider,
        "banner": run.banner,
        "emulated_nodes": list(run.emulated_nodes),
        "disclaimer": run.disclaimer,
        "windows_rules_off": list(run.windows_rules_off),
        "only": run.only,
        "scenario_text": run.scenario_text,
        "version": run.version,
        "started": run.started,
        "seconds": run.seconds,
        "green": run.green(),
        "interrupted": run.interrupted,
        "temporary": run.temporary,
        "provenance": asdict(run.provenance) if run.provenance else None,
        "counts": counts(run),
        "coverage": asdict(run.coverage) if run.coverage else None,
        "nodes": [asdict(node) for node in run.nodes],
        "workloads": [asdict(workload) for workload in run.workloads],
        "assertions": [asdict(made) for made in run.assertions],
        "failover": _failover_json(run.failover),
        "hosts": dict(run.hosts),
        "picture": _adapter(Picture).dump_python(picture_of(intent)),
        "findings": [
            {name: getattr(finding, name) for name in _OF_FINDING} for finding in findings
        ],
    }


def to_text(run: RunResult, intent: Intent) -> str:
    """The stored text: one key per line, and the cells as a table with one row per line."""
    places = _places(run)
    head = {**_head(run, intent, places), "format": STORED}
    cells = table_text(_result_json(result, places) for result in run.results)
    return _text(head, cells)


def _text(head: Mapping[str, Any], cells: str) -> str:
    parts = [f"{_line(name)}: {_line(value)}" for name, value in head.items()]
    return "{\n" + ",\n".join(parts) + f',\n"cells": {cells}\n}}\n'


def expand_result(document: Mapping[str, Any]) -> dict[str, Any]:
    """A stored result in the form of :func:`to_json`; older formats are returned unchanged.

    Raises BrokenError when the table of its cells is malformed.
    """
    if document.get("format") != STORED:
        return dict(document)
    try:
        cells = list(cells_of(document["cells"]))
    except _MALFORMED as error:
        raise _malformed_error(error) from error
    return {**document, "format": FORMAT, "cells": cells}


def expanded_text(stored: str) -> str:
    """The text of a stored result for other programs, with one whole cell per line.

    Raises BrokenError as :func:`from_json`. Raises ValueError when it is not JSON.
    """
    document = parse_json(stored)
    from_json(document)
    if document["format"] != STORED:
        return stored
    whole = expand_result(document)
    cells = ",\n ".join(_line(cell) for cell in whole.pop("cells"))
    return _text(whole, f"[\n {cells}\n]")


def parse_json(text: str) -> Any:
    """Parse JSON with finite numbers only.

    Raises ValueError when it is not JSON, has other numbers, or is nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deep for a result") from error


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is not a JSON number")
    return value


def from_json(document: Mapping[str, Any]) -> tuple[RunResult, Picture]:
    """The run and the picture that :func:`to_json` wrote.

    Raises BrokenError when the document has another format, or lacks a part.
    """
    version = document.get("format") if isinstance(document, Mapping) else None
    if not isinstance(version, int) or version not in _READ:
        raise BrokenError(
            _READING,
            f"its format is {cut(repr(version))}, and this version of lab reads {STORED}",
            "read it with the version of lab that wrote it, or run 'lab test' again",
        )
    document = expand_result(document)
    try:
        return _run(document), _adapter(Picture).validate_python(document["picture"])
    except _MALFORMED as error:
        raise _malformed_error(error) from error


def _malformed_error(error: Exception) -> BrokenError:
    happened = f"{type(error).__name__} {error}"
    if isinstance(error, KeyError):
        happened = f"there is no {error}"
    elif isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        happened = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg'].lower()}"
    elif isinstance(error, ValueError):
        happened = str(error)
    return BrokenError(
        _READING, f"missing or malformed: {happened[:_SHOWN]}", "run 'lab test' again"
    )


def counts(run: RunResult) -> dict[str, Any]:
    """Cells per verdict (all six), and per family and verdict that occur."""
    verdicts: dict[Verdict, int] = dict.fromkeys(VERDICTS, 0)
    families: dict[Family, dict[Verdict, int]] = {
        family: dict.fromkeys(VERDICTS, 0) for family in family_terms()
    }
    for result in run.results:
        verdicts[result.verdict] += 1
        # a run of another version may have a family that this version does not know
        of_family = families.setdefault(result.cell.family, dict.fromkeys(VERDICTS, 0))
        of_family[result.verdict] += 1
    return {
        "cells": len(run.results),
        "verdicts": verdicts,
        "families": {
            family: {verdict: count for verdict, count in numbers.items() if count}
            for family, numbers in families.items()
            if any(numbers.values())
        },
    }


def _result_json(result: CellResult, places: Mapping[Difference, int]) -> dict[str, Any]:
    values = _adapter(CellResult).dump_python(replace(result, finding=None))
    cell = values.pop("cell")
    first = {"id": cell["id"], "family": cell["family"]}
    first |= {"verdict": values["verdict"], "detail": values["detail"]}
    place = places[result.finding] if result.finding else None
    return {**first, **cell, "sources": sorted(cell["sources"]), **values, "finding": place}


def _run(document: Mapping[str, Any]) -> RunResult:
    findings = document.get("findings", ())
    parts = {
        **document,
        "results": [_nest_cell(cell, findings) for cell in document["cells"]],
        "hosts": tuple(document.get("hosts", {}).items()),
    }
    run: RunResult = _adapter(RunResult).validate_python(parts)
    for name, amount in _amounts(run):
        if amount < 0:
            raise ValueError(f"{name} is {amount:g}, and cannot be negative")
    return run


def _amounts(run: RunResult) -> Iterator[tuple[str, float]]:
    """Every count, time and rate of the run, with its name in the file."""
    yield from (("seconds", run.seconds), ("number", run.number))
    yield from (("assertions: seconds", made.seconds) for made in run.assertions)
    if run.coverage:
        coverage = run.coverage
        parts = (coverage.cells, coverage.node_pairs, coverage.systems)
        for part in (*parts, coverage.askers, coverage.asked):
            yield from (("coverage: found", part.found), ("coverage: of", part.of))
    if run.failover:
        for silence in (*run.failover.away.silences, *run.failover.back.silences):
            yield from (("silences: seconds", silence.seconds), ("silences: sent", silence.sent))
            yield "silences: answered", silence.answered
    for attempt in (attempt for result in run.results for attempt in result.attempts):
        yield "attempts: latency_ms", attempt.latency_ms
        yield "attempts: throughput", attempt.throughput or 0


def _nest_cell(cell: Mapping[str, Any], findings: Sequence[Any]) -> dict[str, Any]:
    """A cell's record as nested in a run; in the file all its fields are side by side."""
    place = cell.get("finding")
    return {**cell, "cell": cell, "finding": None if place is None else findings[place]}


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Reads and writes a record by its types; unknown keys are ignored."""
    return TypeAdapter(kind)


def _failover_json(failover: Failover | None) -> dict[str, Any] | None:
    if failover is None:
        return None
    return {
        **asdict(failover),
        "well": failover.well,
        "trouble": failover.trouble,
        "longest_seconds": {"away": failover.away.longest, "back": failover.back.longest},
    }


def read_run(path: Path) -> RunResult:
    """The run in a ``result.json``; raises what :func:`parse_json` and :func:`from_json` do."""
    return from_json(parse_json(read_regular(path).decode()))[0]
