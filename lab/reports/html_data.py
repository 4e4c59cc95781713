"""The cells of a run as compact JSON for the script inside the HTML report. Pure.

Texts stand once in ``strings``; a cell is a row of numbers, in the order of ``columns``. The
text can stand between ``<script type="application/json">`` and ``</script>``: every ``<``, ``>``
and ``&`` is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from lab.matrix.cell import Cell
from lab.matrix.verdict import VERDICTS, CellResult, RunResult
from lab.reports.facets import machine_of
from lab.reports.wording import actual, expected, latency_ms
from lab.scenario.scenario import FAMILIES

COLUMNS = (
    "family",
    "verdict",
    "protocol",
    "size",
    "id",
    "source",
    "sourceGroup",
    "sourceOs",
    "target",
    "targetLabel",
    "targetGroup",
    "targetOs",
    "expected",
    "actual",
    "rule",
    "reason",
    "authority",
    "detail",
    "seen",
    "backends",
    "repeat",
    "attempts",
    "retried",
    "latency",
)
"""The first four are places in the lists of names; up to ``repeat`` places in ``strings``."""
PROTOCOLS = ("tcp", "udp")
SIZES = ("small", "large")


def cells_json(run: RunResult, groups: Sequence[Sequence[CellResult]]) -> str:
    """The run's cells, and for each group the places of its cells among them."""
    strings: dict[str, int] = {}
    place = {result.cell.id: index for index, result in enumerate(run.results)}
    document = {
        "families": FAMILIES,
        "verdicts": VERDICTS,
        "protocols": PROTOCOLS,
        "sizes": SIZES,
        "columns": COLUMNS,
        "cells": [_row(result, strings) for result in run.results],
        "strings": list(strings),
        "groups": [[place[result.cell.id] for result in group] for group in groups],
    }
    document["strings"] = list(strings)
    return escaped(json.dumps(document, separators=(",", ":")))


def escaped(text: str) -> str:
    """JSON that can neither end the element it stands in nor begin another."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _row(result: CellResult, strings: dict[str, int]) -> list[float]:
    cell = result.cell
    last = result.attempts[-1] if result.attempts else None
    texts = (
        cell.id,
        cell.source.name,
        machine_of(cell.source) or "",
        cell.source.os if cell.source.node else "outside",
        cell.target.name,
        _label(cell),
        _heading(cell),
        cell.target.os if cell.target.node else "outside",
        expected(result),
        actual(result),
        result.expectation.rule,
        result.expectation.reason,
        result.expectation.source,
        result.detail,
        (last.source_seen if last else "") or "",
        ", ".join(last.backends) if last else "",
        result.repeat,
    )
    latency = latency_ms(result)
    return [
        FAMILIES.index(cell.family),
        VERDICTS.index(result.verdict),
        PROTOCOLS.index(cell.protocol),
        SIZES.index(cell.size),
        *(strings.setdefault(text, len(strings)) for text in texts),
        len(result.attempts),
        int(result.retried),
        -1 if latency is None else latency,
    ]


def _label(cell: Cell) -> str:
    """The target's name as the head of a column, without the node that is its heading."""
    return cell.target.name.removeprefix(f"{cell.entry}:") if cell.entry else cell.target.name


def _heading(cell: Cell) -> str:
    """What columns are gathered under: the node asked, or the node that answers."""
    return cell.entry or machine_of(cell.target) or "several nodes"
