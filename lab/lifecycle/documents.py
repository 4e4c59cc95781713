"""JSON Schemas of what commands print with ``--json``, and of the files of runs and nights.

Dataclasses are described by their types. A document may get further keys; those that are required
stay, and so do their types (docs/reference/json.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter

from lab.lifecycle.events import LabEvent
from lab.lifecycle.status import LabStatus
from lab.lifecycle.up import Decision
from lab.matrix.cell import Cell, Expectation
from lab.matrix.failover import Failover
from lab.matrix.sampling import Coverage
from lab.matrix.verdict import VERDICTS, CellResult, RunResult
from lab.providers.provider import Diagnosis
from lab.reports.difference import TITLES, Pattern, VerdictChange
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


def _explanation(made: _Definitions) -> Schema:
    texts = ("kind", "fault", "node", "object", "intended", "observed", "sentence", "show", "mend")
    finding = _object({**dict.fromkeys(texts, TEXT), "hop": {"type": "integer"}})
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
            "plan": {"type": "object"},
        }
    )


def _validate(made: _Definitions) -> Schema:
    findings = _list(made.of(FileFinding))
    return _list(_object({"file": TEXT, "valid": FLAG, "findings": findings}))


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
