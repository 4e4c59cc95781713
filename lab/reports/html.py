"""A run as one self-contained HTML file, which loads nothing and opens from a directory.

The template escapes every text of the run. The Content-Security-Policy allows only the page's own
script, by its hash, so that no name in a lab can run another script.

In the JSON of the cells, ``strings`` has each text once; a cell is a row of numbers in the order of
``columns``. The JSON is safe inside ``<script type="application/json">``: every ``<``, ``>`` and
``&`` is escaped.
"""

from __future__ import annotations

import json
import shlex
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import pairwise
from math import ceil, floor, log10
from typing import TYPE_CHECKING

from lab._log import quantity
from lab.matrix.cell import Cell, Endpoint
from lab.matrix.judge import format_rate
from lab.matrix.verdict import RED, VERDICTS, CellResult, RunResult
from lab.reports.explanation import Cause, fix_words, red_causes
from lab.reports.figures import Measured, family_table, latencies, shares, span_of, throughputs
from lab.reports.patterns import limit_groups, machine_of, single_sentence
from lab.reports.topology import ADDRESSES, Labels, Picture, arrange
from lab.reports.wording import (
    actual,
    closing_line,
    count_cells,
    count_verdicts,
    describe_sample,
    emulation,
    expected,
    explain_command,
    failover_words,
    headline,
    in_full,
    latency_ms,
    milliseconds,
    path_words,
    tally,
    verdict_words,
)
from lab.scenario.families import family_terms

if TYPE_CHECKING:
    from jinja2 import Template

    from lab.state.rows import RunRow

BINS_PER_DECADE = 12
SHORTEST = 0.001
"""Milliseconds; shorter latencies are drawn at this value."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Latencies on a logarithmic scale."""

    bars: tuple[tuple[float, str], ...]
    """Height in per cent of the highest bar, and a description of the bin."""
    decades: tuple[str, ...]
    marks: tuple[tuple[str, float], ...]
    """Text, and its position in per cent of the width."""


def histogram(latencies: Measured) -> Histogram | None:
    """The histogram of the latencies; None if there are none."""
    if not latencies.values:
        return None
    first, counts = bins(latencies.values)
    most = max(counts)
    edges = [10 ** ((first + place) / BINS_PER_DECADE) for place in range(len(counts) + 1)]
    return Histogram(
        bars=tuple(
            (100 * count / most, f"{count:,} from {low:.3g} to {high:.3g} ms")
            for count, (low, high) in zip(counts, pairwise(edges), strict=True)
        ),
        decades=tuple(f"{edge:g} ms" for edge in edges[::BINS_PER_DECADE]),
        marks=tuple(
            (f"{name} {value:.2f} ms", 100 * (_bin_of(value) - first) / len(counts))
            for name, value in (("p50", latencies.median), ("p99", latencies.p99))
        ),
    )


def bins(values: Sequence[float]) -> tuple[int, tuple[int, ...]]:
    """The number of the first bin, and the counts from that bin on.

    Bin ``n`` covers 10^(n/12) to 10^((n+1)/12) milliseconds. At least one decade is covered.
    """
    numbers = [floor(_bin_of(value)) for value in values]
    first = floor(min(numbers) / BINS_PER_DECADE) * BINS_PER_DECADE
    last = ceil((max(numbers) + 1) / BINS_PER_DECADE) * BINS_PER_DECADE
    counts = [0] * (last - first)
    for number in numbers:
        counts[number - first] += 1
    return first, tuple(counts)


def _bin_of(value: float) -> float:
    return log10(max(value, SHORTEST)) * BINS_PER_DECADE


_TEXTS: dict[str, Callable[[CellResult], str]] = {
    "id": lambda result: result.cell.id,
    "source": lambda result: result.cell.source.name,
    "sourceGroup": lambda result: machine_of(result.cell.source) or "",
    "sourceOs": lambda result: _system(result.cell.source),
    "target": lambda result: result.cell.target.name,
    "targetLabel": lambda result: _label(result.cell),
    "targetGroup": lambda result: (
        result.cell.entry or machine_of(result.cell.target) or "several nodes"
    ),
    "targetOs": lambda result: _system(result.cell.target),
    "expected": expected,
    "actual": actual,
    "rule": lambda result: result.expectation.rule,
    "reason": lambda result: result.expectation.reason,
    "authority": lambda result: result.expectation.source,
    "detail": lambda result: result.detail,
    "seen": lambda result: (result.attempts and result.attempts[-1].source_seen) or "",
    "backends": lambda result: ", ".join(result.attempts[-1].backends if result.attempts else ()),
    "repeat": lambda result: result.repeat,
    "cause": lambda result: result.cause if result.verdict in RED else "",
}
"""Columns with the index of a text in ``strings``, and the text."""
COLUMNS = (
    *("family", "verdict", "protocol", "size"),
    *_TEXTS,
    *("explain", "attempts", "retried", "latency"),
)
"""The first four are indexes into lists of names."""
PROTOCOLS = ("tcp", "udp")
SIZES = ("small", "large")


def cells_json(run: RunResult, groups: Sequence[Sequence[CellResult]]) -> str:
    """The run's cells, and for each group the indexes of its cells, as JSON."""
    strings: dict[str, int] = {}
    place = {result.cell.id: index for index, result in enumerate(run.results)}
    document: dict[str, object] = {
        "families": [*family_terms()],
        "verdicts": VERDICTS,
        "plurals": [verdict_words(verdict) for verdict in VERDICTS],
        "protocols": PROTOCOLS,
        "sizes": SIZES,
        "columns": COLUMNS,
        "cells": [_row(run, result, strings) for result in run.results],
        "groups": [[place[result.cell.id] for result in group] for group in groups],
    }
    document["strings"] = list(strings)
    return escape_json(json.dumps(document, separators=(",", ":")))


def escape_json(text: str) -> str:
    """JSON that can neither end the HTML element around it nor start another."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _row(run: RunResult, result: CellResult, strings: dict[str, int]) -> list[float]:
    cell, latency = result.cell, latency_ms(result)
    explained = result.verdict in RED and not run.temporary
    explain = explain_command(run.lab, cell) if explained else ""
    return [
        [*family_terms()].index(cell.family),
        VERDICTS.index(result.verdict),
        PROTOCOLS.index(cell.protocol),
        SIZES.index(cell.size),
        *(strings.setdefault(text(result), len(strings)) for text in _TEXTS.values()),
        strings.setdefault(explain, len(strings)),
        len(result.attempts),
        int(result.retried),
        -1 if latency is None else latency,
    ]


def _system(endpoint: Endpoint) -> str:
    return endpoint.os if endpoint.node else "outside"


def _label(cell: Cell) -> str:
    """The target's name as a column label, without the node that is the heading."""
    return cell.target.name.removeprefix(f"{cell.entry}:") if cell.entry else cell.target.name


SINGLES = 10
"""Red cells without a group that are shown in full."""
STATIC_ROWS = 100
"""Rows in the table of all cells except passes that are visible without JavaScript."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """One group of red cells, as the template shows it."""

    title: str
    cells: tuple[CellResult, ...]
    """If there are several, a link shows them in the matrix."""
    where: tuple[str, ...]
    """What the cells have in common, if the title does not say it."""
    example: CellResult
    expected: str
    actual: str


def to_html(run: RunResult, picture: Picture, before: RunRow | None = None) -> str:
    """The report: about 50 KB plus 220 bytes per cell. Only the templates are read from files.

    ``before``: the lab's run before, whose report is in the directory of its id beside this one's.
    """
    findings = list(_findings(red_causes(run.results, dict(run.hosts))))
    others = [result for result in run.results if result.verdict != "pass"]
    return render(
        "report.html.j2",
        run=run,
        picture=picture,
        style=part("report.css"),
        script=part("report.js"),
        script_hash=b64encode(sha256(part("report.js").encode()).digest()).decode(),
        data=cells_json(run, [each.cells for each in findings]),
        headline=headline(run),
        closing=closing_line(run),
        cells=count_cells(run),
        sampled=describe_sample(run),
        tone="green" if run.results and run.green() else "red",
        when=in_full(run.started),
        before=before,
        before_words=tally(before.counts) if before else "",
        emulation=emulation(run),
        counts=count_verdicts(run),
        table=family_table(run),
        findings=findings,
        limits=limit_groups(run.results),
        drawing=arrange(picture),
        labels=Labels(shares(run), run.emulated_nodes),
        addresses=ADDRESSES,
        speed=latencies(run, slowest=5),
        histogram=histogram(latencies(run)),
        streams=throughputs(run, slowest=5),
        rows=[(each, expected(each), actual(each)) for each in others[:STATIC_ROWS]],
        rows_in_all=len(others),
        verdicts=VERDICTS,
    )


def _findings(causes: Sequence[Cause]) -> Iterator[_Finding]:
    for cause in causes:
        if cause.line:
            yield _make_finding(cause.sentence, cause.cells, cause.example, cause.where)
            continue
        for group in cause.groups:
            yield _make_finding(group.sentence, group.cells, group.example)
        for single in cause.singles[:SINGLES]:
            yield _make_finding(single_sentence(single), (single,), single)
        if rest := cause.singles[SINGLES:]:
            more = quantity(len(rest), "single cell")
            yield _make_finding(f"and {more} more", rest, rest[0])


def _see(lab: str, result: CellResult) -> str:
    """The command or sentence that shows the cause; empty if none is known."""
    return result.finding.shown_by(lab) if result.finding else ""


def _fix(lab: str, result: CellResult) -> str:
    """The command or sentence that mends it; empty if no cause is known."""
    return fix_words(lab, result.finding) if result.finding else ""


def _make_finding(
    title: str,
    cells: tuple[CellResult, ...],
    example: CellResult,
    where: tuple[str, ...] = (),
) -> _Finding:
    title = title[0].upper() + title[1:]
    return _Finding(title, cells, where, example, expected(example), actual(example))


def part(name: str) -> str:
    """The text of a template, style sheet or script."""
    return files("lab.reports").joinpath("templates", name).read_text(encoding="utf-8")


def render(template: str, **values: object) -> str:
    """Render a page from its template, escaping every text."""
    return _template(template).render(values)


@cache
def _template(name: str) -> Template:
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - slow, and only for HTML

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["ms"] = milliseconds
    environment.filters["rate"] = format_rate
    environment.filters["failover"] = failover_words
    environment.filters["verdict"] = verdict_words
    environment.filters["shell"] = shlex.join
    environment.filters["path"] = path_words
    environment.globals["explain_command"] = explain_command
    environment.globals["see_command"] = _see
    environment.globals["fix_command"] = _fix
    environment.globals["span_of"] = span_of
    environment.globals["quantity"] = quantity
    return environment.from_string(part(name))
