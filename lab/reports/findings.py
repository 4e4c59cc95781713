"""Errors in scenario files, as other programs read them: GitHub's annotations, and SARIF. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from lab.scenario.findings import FileFinding

_RULE = "scenario"


def annotation(message: str, file: str = "", line: int = 0, col: int = 0, title: str = "") -> str:
    """The workflow command of an error; ``line`` and ``col`` count from 1, 0 for none."""
    properties = {"file": file, "line": line or "", "col": col or "", "title": title}
    given = ",".join(
        f"{name}={_escape(str(value), also=':,')}" for name, value in properties.items() if value
    )
    return f"::error{' ' if given else ''}{given}::{_escape(message)}"


def _escape(text: str, also: str = "") -> str:
    """As GitHub's runner reads it: a line end would end the command."""
    for letter in ("%", "\r", "\n", *also):
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text


def annotate_findings(file: str, findings: Iterable[FileFinding]) -> Iterator[str]:
    """One annotation for each finding in a scenario file."""
    for finding in findings:
        title = "hybridlab: scenario"
        yield annotation(_message(finding), file, finding.line, finding.col, title)


def sarif(findings_by_file: Mapping[str, Iterable[FileFinding]], version: str) -> dict[str, Any]:
    """A SARIF 2.1.0 log. ``version``: that of this program."""
    rule = {
        "id": _RULE,
        "name": "InvalidScenario",
        "shortDescription": {"text": "The scenario file has an error."},
        "defaultConfiguration": {"level": "error"},
    }
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "hybridlab", "version": version, "rules": [rule]}},
                "columnKind": "unicodeCodePoints",
                "results": [
                    _sarif_result(file, finding)
                    for file, findings in findings_by_file.items()
                    for finding in findings
                ],
            }
        ],
    }


def _sarif_result(file: str, finding: FileFinding) -> dict[str, Any]:
    path = PurePath(file)
    place: dict[str, Any] = {
        "artifactLocation": {"uri": path.as_uri() if path.is_absolute() else quote(file)}
    }
    if finding.line:
        place["region"] = {"startLine": finding.line, "startColumn": finding.col}
    return {
        "ruleId": _RULE,
        "ruleIndex": 0,
        "level": "error",
        "message": {"text": _message(finding)},
        "locations": [{"physicalLocation": place}],
    }


def _message(finding: FileFinding) -> str:
    """What is wrong and what to do, with the key if there is no line."""
    key = "" if finding.line or not finding.key else f"{'.'.join(map(str, finding.key))}: "
    return f"{key}{finding.what}; {finding.hint}"
