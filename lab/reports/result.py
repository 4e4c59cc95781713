"""A run as JSON: complete, versioned, the same bytes for the same run.

Sets are written as sorted lists; keys stand in a fixed order. ``counts`` is for people and
other programs; reading a run back counts anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lab._errors import BrokenError
from lab.matrix.explain.finding import Finding
from lab.matrix.failover import Failover
from lab.matrix.verdict import VERDICTS, CellResult, RunResult, Verdict
from lab.reports import cell_table
from lab.reports.picture import Picture, picture_of
from lab.scenario.scenario import FAMILIES, Family
from lab.topology.intent import Intent

FORMAT = 3
"""Version of the JSON. 2 has what a run needs to be reproduced: the scenario's text, and which
nodes were kept; 1 is read as a run without. 3 has refusals that Kubernetes promises, and clients
that keep their backend; in older ones there were none."""
STORED = 4
"""Version of the file: the same, with its cells as a :mod:`table <lab.reports.cell_table>`."""
_READ = frozenset({1, 2, FORMAT, STORED})
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
    cells = cell_table.to_text(_result_json(result, places) for result in run.results)
    return _text(head, cells)


def _text(head: Mapping[str, Any], cells: str) -> str:
    parts = [f"{_line(name)}: {_line(value)}" for name, value in head.items()]
    return "{\n" + ",\n".join(parts) + f',\n"cells": {cells}\n}}\n'


_line = json.JSONEncoder(separators=(",", ":")).encode


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
        cells = list(cell_table.cells_of(document["cells"]))
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
        When it is no JSON.

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
        When it is no JSON, or nested too deep.

    """
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deep for a result") from error


def _finite(number: str) -> float:
    found = float(number)
    if not math.isfinite(found):
        raise ValueError(f"{number} is no number of JSON")
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
            f"its format is {found!r}, and this version of lab reads {STORED}",
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
    return BrokenError(_READING, f"a part is missing or malformed: {found}", "run 'lab test' again")


def counts(run: RunResult) -> dict[str, Any]:
    """Cells per verdict (all six), and per family that occurs and its verdicts that occur."""
    verdicts: dict[Verdict, int] = dict.fromkeys(VERDICTS, 0)
    families: dict[Family, dict[Verdict, int]] = {
        family: dict.fromkeys(VERDICTS, 0) for family in FAMILIES
    }
    for result in run.results:
        verdicts[result.verdict] += 1
        families[result.cell.family][result.verdict] += 1
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
