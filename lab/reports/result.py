"""A run as JSON: complete, versioned, the same bytes for the same run.

Sets are written as sorted lists; keys stand in a fixed order. ``counts`` is for people and
other programs; reading a run back counts again.

A cell as JSON takes a kilobyte, of which nearly all is in other cells too. Here it is a row of
some 80 bytes. The layout::

    {"fields": [...], "attempt_fields": [...],      what a cell and an attempt have, in order
     "columns": [...], "attempt_columns": [...],    what stands where in a row
     "values": {"source": [...], ...},              of each such column, its distinct values
     "rows": [[[0, 3, 5, 1], 2, ...], ...]}         numbers of those values, from 0

Three columns are no such numbers: ``id`` is the numbers of the texts between its slashes,
``attempts`` is a list of rows, and an attempt's ``key`` and ``latency_ms`` stand as they are.
``repeat`` refers to the texts before, between and after the cell's id. ``rest`` has every field
that has no column of its own. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lab._errors import BrokenError
from lab.matrix.failover import Failover
from lab.matrix.finding import Finding
from lab.matrix.verdict import VERDICTS, CellResult, RunResult, Verdict
from lab.reports.picture import Picture, picture_of
from lab.scenario.families import terms
from lab.scenario.findings import cut
from lab.scenario.terms import Family
from lab.state.files import read_regular
from lab.topology.intent import Intent

_COLUMNS = ("source", "target", "entry", "backends", "sources", "answer", "detail", "expectation")
_ATTEMPT_COLUMNS = ("source_seen", "backends")
_PLAIN = ("key", "latency_ms")
_LONGEST = 1_000
"""Characters of a text that is put together from parts: a small file is not to become a large
text in memory. A longer one is written whole."""

_line = json.JSONEncoder(separators=(",", ":")).encode


def table_text(cells: Iterable[Mapping[str, Any]]) -> str:
    """The table of cells, each as :mod:`lab.reports.result` makes it, as JSON with a row a line."""
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
    """As JSON; the distinct values are JSON already."""
    if not isinstance(value, dict):
        return _line(value)
    return "{" + ",\n".join(f"{_line(name)}:[{','.join(of)}]" for name, of in value.items()) + "}"


class _Values:
    """Distinct values, as JSON, in the order of their first use."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def place(self, value: object) -> int:
        return self.places.setdefault(_line(value), len(self.places))


class _Table:
    """What the rows have referred to by now."""

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
        self.values = {name: _Values() for name in (*names, "attempt_rest")}

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
    """The texts that ``separator`` joins to ``text``."""
    return text.split(separator) if separator and len(text) <= _LONGEST else [text]


def _joined(parts: Sequence[str], separator: str) -> str:
    if len(parts) > 1:
        length = sum(map(len, parts)) + len(separator) * (len(parts) - 1)
        if length > _LONGEST:
            raise ValueError(f"a text of {length} characters from {len(parts)} parts")
    return separator.join(parts)


def cells_of(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells of a table that was read.

    Raises
    ------
    KeyError, IndexError, TypeError, ValueError, AttributeError
        Where it is no such table.

    """
    values, columns = table["values"], tuple(table["columns"])
    of_attempts = tuple(table["attempt_columns"])
    for row in table["rows"]:
        cell: dict[str, Any] = dict(zip(columns, row, strict=True))
        attempts = cell.pop("attempts")
        parts = [_at(values["id"], number) for number in cell.pop("id")]
        cell_id = _joined(parts, "/")
        repeat = _joined(_at(values["repeat"], cell.pop("repeat")), cell_id)
        found = {name: _at(values[name], number) for name, number in cell.items()}
        found |= found.pop("rest")
        found |= {"id": cell_id, "repeat": repeat}
        found["attempts"] = [
            _attempt(table, dict(zip(of_attempts, attempt, strict=True))) for attempt in attempts
        ]
        yield {name: found[name] for name in table["fields"]}


def _attempt(table: Mapping[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    found = {name: row.pop(name) for name in _PLAIN}
    values = table["values"]
    found |= {name: _at(values[f"attempt_{name}"], number) for name, number in row.items()}
    found |= found.pop("rest")
    return {name: found[name] for name in table["attempt_fields"]}


def _at(values: Sequence[Any], number: object) -> Any:
    """The value of that number."""
    if type(number) is not int or number < 0 or not isinstance(values, list):
        raise TypeError(f"{number!r} is not the number of a value")
    return values[number]


FORMAT = 3
"""Version of the JSON. 2 has what a run needs to be reproduced: the scenario's text, and which
nodes were kept; 1 is read as a run without. 3 has refusals that Kubernetes promises, and clients
that keep their backend; in older ones there were none."""
STORED = 4
"""Version of the file: the same, with its cells as a :mod:`table <lab.reports.cell_table>`."""
_READ = frozenset({1, 2, FORMAT, STORED})
_SHOWN = 300
"""Characters of what is wrong with a document: it may be anybody's."""
_READING = "reading the JSON of a run"
_MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError)


def to_json(run: RunResult, intent: Intent) -> dict[str, Any]:
    """The run and the picture of its Intent, as values that :mod:`json` can write."""
    places = _places(run)
    return {
        **_head(run, intent, places),
        "cells": [_result_json(result, places) for result in run.results],
    }


def _places(run: RunResult) -> dict[Finding, int]:
    """Where each thing found stands among the findings."""
    findings = dict.fromkeys(one.finding for one in run.results if one.finding)
    return {finding: number for number, finding in enumerate(findings)}


def _head(run: RunResult, intent: Intent, findings: Iterable[Finding]) -> dict[str, Any]:
    """Everything but the cells."""
    return {
        "format": FORMAT,
        "run": run.run,
        "lab": run.lab,
        "scenario": run.scenario,
        "summary": run.summary,
        "topology": run.topology,
        "provider": run.provider,
        "banner": run.banner,
        "emulated_nodes": list(run.emulated_nodes),
        "windows_rules_off": list(run.windows_rules_off),
        "only": run.only,
        "scenario_text": run.scenario_text,
        "version": run.version,
        "started": run.started,
        "seconds": run.seconds,
        "green": run.green(),
        "counts": counts(run),
        "coverage": asdict(run.coverage) if run.coverage else None,
        "nodes": [asdict(one) for one in run.nodes],
        "workloads": [asdict(one) for one in run.workloads],
        "failover": _failover_json(run.failover),
        "hosts": dict(run.hosts),
        "picture": _adapter(Picture).dump_python(picture_of(intent)),
        "findings": [asdict(one) for one in findings],
    }


def to_text(run: RunResult, intent: Intent) -> str:
    """The same as it is stored: a part a line, and the cells as a table with a row a line."""
    places = _places(run)
    head = {**_head(run, intent, places), "format": STORED}
    cells = table_text(_result_json(result, places) for result in run.results)
    return _text(head, cells)


def _text(head: Mapping[str, Any], cells: str) -> str:
    parts = [f"{_line(name)}: {_line(value)}" for name, value in head.items()]
    return "{\n" + ",\n".join(parts) + f',\n"cells": {cells}\n}}\n'


def expanded(document: Mapping[str, Any]) -> dict[str, Any]:
    """A stored result as :func:`to_json` gives it; one of an older format stays as it is.

    Raises
    ------
    BrokenError
        When the table of its cells is malformed.

    """
    if document.get("format") != STORED:
        return dict(document)
    try:
        cells = list(cells_of(document["cells"]))
    except _MALFORMED as error:
        raise _malformed(error) from error
    return {**document, "format": FORMAT, "cells": cells}


def expanded_text(stored: str) -> str:
    """The text of a stored result for other programs: every cell whole, in a line of its own.

    Raises
    ------
    BrokenError
        As :func:`from_json`.
    ValueError
        When it is not JSON.

    """
    document = parsed(stored)
    from_json(document)
    if document["format"] != STORED:
        return stored
    whole = expanded(document)
    cells = ",\n ".join(_line(cell) for cell in whole.pop("cells"))
    return _text(whole, f"[\n {cells}\n]")


def parsed(text: str) -> Any:
    """The JSON of a file; numbers in it are finite.

    Raises
    ------
    ValueError
        When it is not JSON, or nested too deep.

    """
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deep for a result") from error


def _finite(number: str) -> float:
    found = float(number)
    if not math.isfinite(found):
        raise ValueError(f"{number} is not a JSON number")
    return found


def from_json(document: Mapping[str, Any]) -> tuple[RunResult, Picture]:
    """The run and the picture that :func:`to_json` wrote.

    Raises
    ------
    BrokenError
        When the document has another format, or lacks a part.

    """
    found = document.get("format") if isinstance(document, Mapping) else None
    if not isinstance(found, int) or found not in _READ:
        raise BrokenError(
            _READING,
            f"its format is {cut(repr(found))}, and this version of lab reads {STORED}",
            "read it with the version of lab that wrote it, or run 'lab test' again",
        )
    document = expanded(document)
    try:
        return _run(document), _adapter(Picture).validate_python(document["picture"])
    except _MALFORMED as error:
        raise _malformed(error) from error


def _malformed(error: Exception) -> BrokenError:
    found = f"{type(error).__name__} {error}"
    if isinstance(error, KeyError):
        found = f"there is no {error}"
    elif isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        found = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg'].lower()}"
    return BrokenError(_READING, f"missing or malformed: {found[:_SHOWN]}", "run 'lab test' again")


def counts(run: RunResult) -> dict[str, Any]:
    """Cells per verdict (all six), and per family that occurs and its verdicts that occur."""
    verdicts: dict[Verdict, int] = dict.fromkeys(VERDICTS, 0)
    families: dict[Family, dict[Verdict, int]] = {
        family: dict.fromkeys(VERDICTS, 0) for family in terms()
    }
    for result in run.results:
        verdicts[result.verdict] += 1
        # a run of another version may have a family that this one has not
        of_family = families.setdefault(result.cell.family, dict.fromkeys(VERDICTS, 0))
        of_family[result.verdict] += 1
    return {
        "cells": len(run.results),
        "verdicts": verdicts,
        "families": {
            family: {verdict: count for verdict, count in found.items() if count}
            for family, found in families.items()
            if any(found.values())
        },
    }


def _result_json(result: CellResult, places: Mapping[Finding, int]) -> dict[str, Any]:
    found = _adapter(CellResult).dump_python(result)
    cell = found.pop("cell")
    first = {"id": cell["id"], "family": cell["family"]}
    first |= {"verdict": found["verdict"], "detail": found["detail"]}
    place = places[result.finding] if result.finding else None
    return {**first, **cell, "sources": sorted(cell["sources"]), **found, "finding": place}


def _run(document: Mapping[str, Any]) -> RunResult:
    findings = document.get("findings", ())
    parts = {
        **document,
        "results": [_nested(cell, findings) for cell in document["cells"]],
        "hosts": tuple(document.get("hosts", {}).items()),
    }
    run: RunResult = _adapter(RunResult).validate_python(parts)
    return run


def _nested(cell: Mapping[str, Any], findings: Sequence[Any]) -> dict[str, Any]:
    """A cell's record as it is nested in a run; in the file all of it stands side by side."""
    place = cell.get("finding")
    return {**cell, "cell": cell, "finding": None if place is None else findings[place]}


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """What reads and writes a record by its types; keys that it does not know are left out."""
    return TypeAdapter(kind)


def _failover_json(found: Failover | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        **asdict(found),
        "well": found.well,
        "trouble": found.trouble,
        "longest_seconds": {"away": found.away.longest, "back": found.back.longest},
    }


def read_run(path: Path) -> RunResult:
    """The run in a ``result.json``; raises what :func:`parsed` and :func:`from_json` do."""
    return from_json(parsed(read_regular(path).decode()))[0]
