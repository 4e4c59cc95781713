"""The summary of a run: with rich on a terminal, as plain text elsewhere.

The plain text has no escape codes, adds no character beyond ASCII, and does not depend on the
width, so nothing is lost in a pipe, a log or a screen reader.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, TextIO

from lab._log import one_line, quantity, table_lines
from lab.matrix.judge import rate_words
from lab.matrix.verdict import CellResult, RunResult, Verdict
from lab.reports.explanation import MOST_PLACED, Cause, in_common, red_causes
from lab.reports.figures import (
    FamilyTable,
    Latencies,
    Throughputs,
    family_table,
    latencies,
    throughputs,
)
from lab.reports.patterns import LimitGroup, limit_groups, single_sentence
from lab.reports.wording import (
    actual,
    closing_line,
    emulation,
    expected,
    explain_command,
    failover_lines,
    milliseconds,
    path_words,
    sampled,
)

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

SINGLES = 10
"""Red cells without a group that are listed; the rest are counted."""
WIDEST = 110
"""Largest width of the rich summary in columns: long lines are hard to read."""

_HEADINGS: dict[Verdict, str] = {
    "pass": "pass",
    "known-limit": "known limit",
    "fail": "fail",
    "flaky": "flaky",
    "unexpected-pass": "unexpected",
    "probe-error": "probe error",
}
"""Column headings; six of them fit into 80 columns."""
_LABELS = ("*", "where:", "cause:", "example:", "expected:", "actual:", "explain:", "repeat:")
_STYLES: dict[Verdict, str] = {
    "pass": "green",
    "known-limit": "dim",
    "fail": "bold red",
    "flaky": "yellow",
    "unexpected-pass": "magenta",
    "probe-error": "bold",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything that the terminal shows of a run."""

    run: RunResult
    table: FamilyTable
    causes: tuple[Cause, ...]
    in_common: str
    """What all red cells have in common if there are several causes; may be empty."""
    limits: tuple[LimitGroup, ...]
    latencies: Latencies
    throughputs: Throughputs
    report: str | None
    """Path of the HTML report; None if none was written."""

    @property
    def title(self) -> str:
        """Lab, provider and emulated nodes."""
        parts = (f"Lab '{self.run.lab}' on {self.run.provider}", emulation(self.run))
        return "; ".join(part for part in parts if part)

    @property
    def speed(self) -> str:
        """The latencies in one line; empty if no cell was answered."""
        if not self.latencies.values:
            return ""
        median, p99 = milliseconds(self.latencies.median), milliseconds(self.latencies.p99)
        return f"p50 {median}, p99 {p99}, of {quantity(len(self.latencies.values), 'answer')}"


def summarise(run: RunResult, report: str | None = None) -> Summary:
    """Compute the summary of a run; ``report`` is the path of its HTML report."""
    hosts = dict(run.hosts)
    causes = red_causes(run.results, hosts)
    return Summary(
        run=run,
        table=family_table(run),
        causes=causes,
        in_common=in_common(run.results, hosts) if len(causes) > 1 else "",
        limits=limit_groups(run.results),
        latencies=latencies(run),
        throughputs=throughputs(run),
        report=report,
    )


def show(
    summary: Summary, stream: TextIO | None = None, environ: Mapping[str, str] = os.environ
) -> None:
    """Print the summary to ``stream`` (default: standard output), with rich or as plain text."""
    out = sys.stdout if stream is None else stream
    if plain(out, environ):
        print(*plain_lines(summary), sep="\n", file=out, flush=True)
        return
    from rich.console import Console  # noqa: PLC0415 - rich is slow to import, and only for terminals

    console = Console(file=out, highlight=False)
    console.print(renderable(summary), width=min(console.width, WIDEST), crop=False)


def plain(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether to print plain text: not a terminal, a dumb one, or NO_COLOR is set."""
    return (
        not stream.isatty() or bool(environ.get("NO_COLOR")) or environ.get("TERM") in {"", "dumb"}
    )


def plain_lines(summary: Summary) -> list[str]:
    """The summary as lines of text."""
    lines = [summary.title, ""]
    lines += _plain_table(summary.table)
    for heading, body in _sections(summary):
        lines += ["", heading, *body]
    lines += ["", closing_line(summary.run)]
    if sampled(summary.run):
        lines.append(_asked_line(summary.run))
    if summary.report:
        lines.append(f"Report: {summary.report}")
    return [one_line(line) for line in lines]


def renderable(summary: Summary) -> Group:
    """The summary for rich; print it with ``crop=False``: commands and paths are never broken."""
    from rich.console import Group  # noqa: PLC0415 - rich is slow to import, and only for terminals
    from rich.text import Text  # noqa: PLC0415 - the same

    parts: list[RenderableType] = [
        Text(one_line(summary.title), style="bold"),
        "",
        _rich_table(summary.table),
    ]
    for heading, body in _sections(summary):
        parts += ["", Text(one_line(heading), style="bold")]
        parts += [_rich_line(one_line(line)) for line in body]
    style = "green" if summary.run.results and summary.run.green() else "red"
    parts += ["", Text(one_line(closing_line(summary.run)), style=f"bold {style}")]
    if sampled(summary.run):
        parts.append(Text(one_line(_asked_line(summary.run))))
    if summary.report:
        parts.append(Text(one_line(f"Report: {summary.report}"), no_wrap=True, overflow="ignore"))
    return Group(*parts)


def _asked_line(run: RunResult) -> str:
    return f"Probed: {sampled(run)}"


def _sections(summary: Summary) -> Iterator[tuple[str, list[str]]]:
    if summary.causes:
        yield _red_heading(summary), list(_red_lines(summary))
    workloads = [one for one in summary.run.workloads if one.verdict != "pass"]
    if workloads:
        heading = f"Not as expected: {quantity(len(workloads), 'workload check')}"
        yield heading, [f"  * {one.id}: {one.verdict}: {one.detail}" for one in workloads]
    if summary.run.failover:
        yield "Failover", [f"  {line}" for line in failover_lines(summary.run.failover)]
    if summary.limits:
        yield "Known limits", [f"  {limit.sentence}" for limit in summary.limits]
    if summary.throughputs.values:
        slow = [
            f"  {rate_words(rate):>11}  {path_words(result.cell)}"
            for rate, result in summary.throughputs.slowest
        ]
        yield f"Throughput: {summary.throughputs.span}; the slowest:", slow
    if summary.latencies.values:
        slow = [
            f"  {milliseconds(latency):>8}  {result.cell.family}: {path_words(result.cell)}"
            for latency, result in summary.latencies.slowest
        ]
        yield f"Latency: {summary.speed}; the slowest:", slow


def _red_heading(summary: Summary) -> str:
    named = [one for one in summary.causes if one.line]
    unnamed = sum(len(one.cells) for one in summary.causes if not one.line)
    red = unnamed + sum(len(one.cells) for one in named)
    text = f"Not as expected: {quantity(red, 'cell')}"
    if named:
        text += f"; {quantity(len(named), 'cause')} found"
        text += f", none for {quantity(unnamed, 'cell')}" if unnamed else ""
    return text


def _red_lines(summary: Summary) -> Iterator[str]:
    lab = summary.run.lab
    named = [one for one in summary.causes if one.line]
    if summary.in_common:
        yield f"  all of them: {summary.in_common}"
    for cause in named[:MOST_PLACED]:
        yield f"  * {cause.sentence}"
        for label, where in zip_longest(("where:",), cause.where, fillvalue=""):
            if where:
                yield f"    {label:<9} {where}"
        yield f"    example:  {cause.example.cell.family}: {path_words(cause.example.cell)}"
        yield from _particulars(lab, cause.example)
    if len(named) > MOST_PLACED:
        rest = named[MOST_PLACED:]
        cells = quantity(sum(len(one.cells) for one in rest), "cell")
        yield f"  and {quantity(len(rest), 'cause')} more, of {cells}"
    for cause in summary.causes:
        if not cause.line:
            yield from _unexplained_lines(lab, cause)


def _unexplained_lines(lab: str, cause: Cause) -> Iterator[str]:
    """Lines for cells without a cause: each group, and each cell that is in none."""
    for group in cause.groups:
        yield f"  * {group.sentence}"
        yield f"    cause:    {group.example.cause}"
        yield f"    example:  {group.example.cell.family}: {path_words(group.example.cell)}"
        yield from _particulars(lab, group.example)
    for result in cause.singles[:SINGLES]:
        yield f"  * {single_sentence(result)}"
        yield f"    cause:    {result.cause}"
        yield from _particulars(lab, result)
    if len(cause.singles) > SINGLES:
        yield f"  and {len(cause.singles) - SINGLES:,} more"


def _particulars(lab: str, result: CellResult) -> Iterator[str]:
    yield f"    expected: {expected(result)}"
    yield f"    actual:   {actual(result)}"
    if explain := explain_command(lab, result):
        yield f"    explain:  {explain}"
    yield f"    repeat:   {result.repeat}"


def _plain_table(table: FamilyTable) -> list[str]:
    headings = ["family", "cells", *(_HEADINGS[verdict] for verdict in table.verdicts)]
    rows = [
        [row.family, f"{row.cells:,}", *(f"{count:,}" if count else "-" for count in row.counts)]
        for row in table.rows
    ]
    return list(table_lines([headings, *rows], right=range(1, len(headings))))


def _rich_table(table: FamilyTable) -> Table:
    from rich import box  # noqa: PLC0415 - rich is slow to import, and only for terminals
    from rich.table import Table  # noqa: PLC0415 - the same
    from rich.text import Text  # noqa: PLC0415 - the same

    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    drawn.add_column("family", no_wrap=True)
    drawn.add_column("cells", justify="right")
    for verdict in table.verdicts:
        drawn.add_column(_HEADINGS[verdict], justify="right", no_wrap=True)
    for row in table.rows:
        figures = (
            Text(f"{count:,}", style=_STYLES[verdict]) if count else Text("·", style="dim")
            for verdict, count in zip(table.verdicts, row.counts, strict=True)
        )
        drawn.add_row(row.family, f"{row.cells:,}", *figures)
    return drawn


def _rich_line(line: str) -> RenderableType:
    """A line with a hanging indent for wrapped text."""
    from rich.padding import Padding  # noqa: PLC0415 - rich is slow to import, and only for terminals
    from rich.table import Table  # noqa: PLC0415 - the same
    from rich.text import Text  # noqa: PLC0415 - the same

    text = line.lstrip()
    indent = len(line) - len(text)
    head, gap, rest = _split(text)
    style = "bold red" if head == "*" else "dim"
    if head in {"explain:", "repeat:"}:
        label = f"{' ' * indent}{head}{' ' * gap}"
        return Text.assemble((label, style), rest, no_wrap=True, overflow="ignore")
    grid = Table.grid(padding=0)
    grid.add_column(width=len(head) + gap)
    grid.add_column(overflow="fold")
    bold = "bold" if head == "*" else ""
    grid.add_row(Text(head.replace("*", "●"), style=style), Text(rest, style=bold))
    return Padding(grid, (0, 0, 0, indent))


def _split(text: str) -> tuple[str, int, str]:
    """The bullet or label of a line, the blanks after it, and the rest."""
    for label in _LABELS:
        if text.startswith(f"{label} "):
            rest = text[len(label) :].lstrip()
            return label, len(text) - len(label) - len(rest), rest
    return "", 0, text
