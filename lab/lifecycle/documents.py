"""JSON Schemas of what commands print with ``--json``, and of the files of runs and nights.

Dataclasses are described by their types. A document may get further keys; those that are required
stay, and so do their types (docs/reference/json.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter

from lab.lifecycle.api import SuspendResult
from lab.lifecycle.down import DownResult
from lab.lifecycle.events import LabEvent
from lab.lifecycle.gc import GcResult
from lab.lifecycle.status import LabStatus
from lab.lifecycle.up import Decision, UpResult
from lab.matrix.cell import Cell, Expectation
from lab.matrix.failover import Failover
from lab.matrix.sampling import Coverage
from lab.matrix.verdict import VERDICTS, CellResult, RunResult
from lab.providers.provider import Diagnosis
from lab.reports.difference import TITLES, Pattern, VerdictChange
from lab.reports.graph import Graph
from lab.reports.night import Done, NightCause, ScenarioOutcome
from lab.reports.topology import Picture
from lab.scenario.findings import FileFinding
from lab.state.provenance import Provenance
from lab.topology.cost import Cost

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SECONDS: Schema = {"type": "number", "minimum": 0}
TIME: Schema = {"type": "string", "format": "date-time"}
COUNTS: Schema = {"type": "object", "additionalProperties": COUNT}


class _Definitions:
    """Schemas of dataclasses; each stands once in ``$defs``."""

    def __init__(self) -> None:
        self.defs: dict[str, Schema] = {}

    def of(self, kind: Any) -> Schema:
        """The schema of a type, which may refer to the definitions."""
        schema: Schema = TypeAdapter(kind).json_schema(mode="serialization")
        self.defs |= schema.pop("$defs", {})
        _require_all(schema)
        for definition in self.defs.values():
            _require_all(definition)
        return schema

    def properties(self, kind: type, *left_out: str) -> dict[str, Schema]:
        """The properties of a dataclass."""
        schema = self.of(kind)
        return {key: value for key, value in schema["properties"].items() if key not in left_out}


def _require_all(schema: Schema) -> None:
    """Every field of a dataclass is written; titles only repeat the key."""
    schema.pop("title", None)
    if "properties" in schema:
        schema["required"] = [*schema["properties"]]
        for value in schema["properties"].values():
            value.pop("title", None)
            value.pop("default", None)


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(properties), "required": [*properties]}


def _result(made: _Definitions) -> Schema:
    coverage, failover = made.of(Coverage), made.properties(Failover)
    failover |= {"well": FLAG, "trouble": TEXT, "longest_seconds": {"type": "object"}}
    given = made.properties(RunResult, "results", "hosts", "coverage", "failover")
    cell = made.properties(Cell) | made.properties(CellResult, "cell", "finding")
    cell |= {"finding": _nullable(COUNT), "expectation": made.of(Expectation)}
    families = {"type": "object", "additionalProperties": COUNTS}
    verdicts = _object(dict.fromkeys(VERDICTS, COUNT))
    texts = ("kind", "fault", "node", "object", "intended", "observed", "shows", "mends", "place")
    return _object(
        {
            "format": {"const": 3},
            **given,
            "started": TIME,
            "seconds": SECONDS,
            "green": FLAG,
            "counts": _object({"cells": COUNT, "verdicts": verdicts, "families": families}),
            "coverage": _nullable(coverage),
            "failover": _nullable(_object(failover)),
            "hosts": {"type": "object", "additionalProperties": TEXT},
            "picture": made.of(Picture),
            "findings": _list(_object({**dict.fromkeys(texts, TEXT), "hop": {"type": "integer"}})),
            "cells": _list(_object(cell)),
        }
    )


def _summary(made: _Definitions) -> Schema:
    texts = ("scenario", "lab", "suite", "provider", "detail", "disclaimer")
    files = ("run", "report", "junit", "evidence", "before")
    scenario = {
        **dict.fromkeys(texts, TEXT),
        "outcome": made.of(ScenarioOutcome),
        "seconds": SECONDS,
        "cells": COUNT,
        **dict.fromkeys(files, _nullable(TEXT)),
        "verdicts": _nullable(_object(dict.fromkeys(VERDICTS, COUNT))),
        "p99_ms": _nullable(SECONDS),
        "causes": _list(made.of(NightCause)),
        "stages": _list(made.of(Done)),
    }
    return _object(
        {
            "format": {"const": 2},
            "name": TEXT,
            "provider": TEXT,
            "started": TIME,
            "seconds": SECONDS,
            "green": FLAG,
            "exit_code": COUNT,
            "provenance": _nullable(made.of(Provenance)),
            "expression": TEXT,
            "before": _nullable(TEXT),
            "scenarios": _list(_object(scenario)),
            "changes": {"type": "object", "additionalProperties": COUNTS},
        }
    )


def _difference(made: _Definitions) -> Schema:
    run = {
        **dict.fromkeys(("run", "lab", "scenario", "provider", "disclaimer"), TEXT),
        "started": TIME,
        "cells": COUNT,
        "green": FLAG,
        "provenance": _nullable(made.of(Provenance)),
    }
    pattern = made.properties(Pattern, "example", "detail", "repeat")
    changes = _list(made.of(VerdictChange))
    return _object(
        {
            "format": {"const": 1},
            "before": _object(run),
            "after": _object(run),
            "notes": _list(TEXT),
            "common": COUNT,
            "worse": COUNT,
            **dict.fromkeys(TITLES, changes),
            "unasked": changes,
            "patterns": {"type": "object", "additionalProperties": _list(_object(pattern))},
            "unchanged": COUNT,
        }
    )


def _finding() -> Schema:
    texts = ("kind", "fault", "node", "object", "intended", "observed", "sentence", "show", "mend")
    return _object({**dict.fromkeys(texts, TEXT), "hop": {"type": "integer"}})


def _explanation(made: _Definitions) -> Schema:
    finding = _finding()
    findings = _list(finding)
    hop = ("way", "kind", "machine", "place", "device", "object", "source", "target")
    return _object(
        {
            "lab": TEXT,
            "cell": TEXT,
            "verdict": {"enum": [*VERDICTS]},
            "detail": TEXT,
            "times": COUNT,
            "failed": COUNT,
            "well": FLAG,
            "silences": _list({"type": "object"}),
            "not_asked": _list({"type": "object"}),
            "unrecorded": _list(TEXT),
            "stateless": _list(TEXT),
            "expected": made.of(Expectation),
            "finding": _nullable(finding),
            "further": findings,
            "where": TEXT,
            "marginal": findings,
            "kernel": _list(TEXT),
            "witnesses": _list(TEXT),
            "elsewhere": findings,
            "logs": _list({"type": "object"}),
            "backend": _nullable(TEXT),
            "end": TEXT,
            "path": _list(_object(dict.fromkeys(hop, _nullable(TEXT)))),
        }
    )


def _plan(made: _Definitions) -> Schema:
    return _object(
        {
            "lab": TEXT,
            "digest": TEXT,
            "steps": _list(made.of(Decision)),
            "cost": made.of(Cost),
            "matrix": COUNTS,
            "asked": made.of(Coverage),
            "assertions": COUNT,
            "plan": {"type": "object"},
        }
    )


def _validate(made: _Definitions) -> Schema:
    findings = _list(made.of(FileFinding))
    return _list(_object({"file": TEXT, "valid": FLAG, "findings": findings}))


def _one_or_list(schema: Schema) -> Schema:
    return {"anyOf": [schema, _list(schema)]}


def _up(made: _Definitions) -> Schema:
    return {"anyOf": [made.of(UpResult), _list(made.of(Decision))]}


def _fault(_: _Definitions) -> Schema:
    return _object(dict.fromkeys(("fault", "node", "peer"), TEXT))


def _faults(_: _Definitions) -> Schema:
    site = _object({"node": TEXT, "peers": _list(TEXT)})
    fault = _object({"name": TEXT, "title": TEXT, "peer": _nullable(TEXT)})
    fault["properties"]["sites"] = _list(site)
    return _list(fault)


def _heal(made: _Definitions) -> Schema:
    return _object({"mended": _list(_fault(made)), "rebuilt": _list(TEXT)})


def _repair(_: _Definitions) -> Schema:
    findings = _list(_finding())
    return _object({"lab": TEXT, "place": TEXT, "found": findings, "left": findings})


def _gc(made: _Definitions) -> Schema:
    of_labs = {"type": "object", "additionalProperties": _list(TEXT)}
    kept = dict.fromkeys(("runs", "captures", "evidence"), of_labs)
    return _object({**made.properties(GcResult), **kept, "nights": _list(TEXT)})


def _capture(_: _Definitions) -> Schema:
    texts = ("lab", "cell", "detail", "kind", "sentence", "end", "directory")
    lists = ("hops", "errors", "unanswered_arp", "gaps")
    return _object(
        {
            **dict.fromkeys(texts, TEXT),
            **dict.fromkeys(("last", "missing", "onward"), _nullable(TEXT)),
            "verdict": {"enum": [*VERDICTS]},
            "well": FLAG,
            "tried": COUNT,
            "path_known": FLAG,
            **dict.fromkeys(lists, _list({"type": "object"})),
        }
    )


def _inventory(made: _Definitions) -> Schema:
    return _object({"file": TEXT, "valid": FLAG, "findings": _list(made.of(FileFinding))})


DOCUMENTS: Mapping[str, tuple[str, Callable[[_Definitions], Schema]]] = {
    "result": ("lab test --json, lab run --json, lab report --json", _result),
    "summary": ("lab nightly --json, and summary.json of a night", _summary),
    "diff": ("lab diff --json", _difference),
    "explain": ("lab explain --json", _explanation),
    "plan": ("lab plan --json", _plan),
    "status": ("lab status LAB --json", lambda made: made.of(LabStatus)),
    "list": ("lab list --json, and lab status --json", lambda made: _list(made.of(LabStatus))),
    "events": ("each line of lab events --json", lambda made: made.of(LabEvent)),
    "doctor": ("lab doctor --json", lambda made: _list(made.of(Diagnosis))),
    "validate": ("lab validate --json", _validate),
    "up": ("lab up --json; with --dry-run a list of steps", _up),
    "down": (
        "lab down --json; with several labs or --all a list",
        lambda made: _one_or_list(made.of(DownResult)),
    ),
    "suspend": ("lab suspend --json", lambda made: made.of(SuspendResult)),
    "gc": ("lab gc --json", _gc),
    "fault": ("lab fault LAB FAULT --json", _fault),
    "faults": ("lab fault --list --json; with LAB each has its sites", _faults),
    "heal": ("lab heal --json", _heal),
    "repair": ("lab repair --json", _repair),
    "capture": ("lab capture LAB SOURCE TARGET --json", _capture),
    "graph": ("lab graph --json", lambda made: made.of(Graph)),
    "logs": ("each line of lab logs --json", lambda _: _object({"path": TEXT, "text": TEXT})),
    "inventory": ("lab inventory check --json", _inventory),
}
"""Each document that has a schema: what prints it, and how the schema is made."""


def document_schema(name: str) -> Schema:
    """The JSON Schema of one of :data:`DOCUMENTS`."""
    printed_by, make = DOCUMENTS[name]
    made = _Definitions()
    body = make(made)
    return {
        "$schema": DIALECT,
        "title": f"hybridlab {name}",
        "description": f"What is printed by: {printed_by}.",
        **body,
        **({"$defs": made.defs} if made.defs else {}),
    }
