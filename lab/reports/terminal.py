"""The summary of a run: with rich on a terminal, as plain text elsewhere.

The plain text has no escape codes, adds no character beyond ASCII, and does not depend on the
width, so nothing is lost in a pipe, a log or a screen reader.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, TextIO

from lab._log import one_line, quantity, table_lines
from lab.matrix.assertion import AssertionResult
from lab.matrix.judge import format_rate
from lab.matrix.verdict import RED, CellResult, RunResult, Verdict
from lab.providers.workloads import WorkloadResult
from lab.reports.explanation import MOST_PLACED, Cause, in_common, red_causes
from lab.reports.figures import FamilyTable, family_table, latencies, span_of, throughputs
from lab.reports.patterns import limit_groups, single_sentence
from lab.reports.wording import (
    actual,
    closing_line,
    describe_sample,
    emulation,
    expected,
    explain_command,
    failover_lines,
    fix_command,
    milliseconds,
    path_words,
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
_STYLES: dict[Verdict, str] = {
    "pass": "green",
    "known-limit": "dim",
    "fail": "bold red",
    "flaky": "yellow",
    "unexpected-pass": "magenta",
    "probe-error": "bold",
}


_LABEL = re.compile(
    r"(\*|where:|command:|cause:|example:|expected:|actual:|explain:|fix:|repeat:|Report:)( +)(.*)"
)


def show(
    run: RunResult,
    report: str | None = None,
    stream: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Print the summary of a run, with rich or as plain text.

    ``report``: path of the HTML report; None if there is none. ``stream``: default standard output.
    """
    out = sys.stdout if stream is None else stream
    if plain(out, environ):
        print(*plain_lines(run, report), sep="\n", file=out, flush=True)
        return
    from rich.console import Console  # noqa: PLC0415 - rich is slow to import, and only for terminals

    forced = is_colour_forced(environ) or None
    console = Console(
        file=out,
        highlight=False,
        force_terminal=forced,
        color_system="standard" if forced and not out.isatty() else "auto",
    )
    width = min(console.width, WIDEST) if out.isatty() else WIDEST
    console.print(make_summary(run, report), width=width, crop=False)


def plain(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether to print plain text: not a terminal, a dumb one, or NO_COLOR is set."""
    if environ.get("NO_COLOR"):
        return True
    if is_colour_forced(environ):
        return False
    return not stream.isatty() or environ.get("TERM") in {"", "dumb"}


def is_colour_forced(environ: Mapping[str, str]) -> bool:
    """Whether FORCE_COLOR or CLICOLOR_FORCE asks for colours where there is no terminal."""
    return any(environ.get(name, "") not in {"", "0"} for name in ("FORCE_COLOR", "CLICOLOR_FORCE"))


def plain_lines(run: RunResult, report: str | None = None) -> list[str]:
    """The summary as lines of text."""
    lines = [_title(run), "", *_plain_table(family_table(run))]
    for section in _sections(run, report):
        lines += ["", *section]
    return [one_line(line) for line in lines]


def make_summary(run: RunResult, report: str | None = None) -> Group:
    """The summary for rich; print it with ``crop=False``: commands and paths are never broken."""
    from rich.console import Group  # noqa: PLC0415 - rich is slow to import, and only for terminals
    from rich.text import Text  # noqa: PLC0415 - the same

    title = Text(one_line(_title(run)), style="bold")
    parts: list[RenderableType] = [title, "", _rich_table(family_table(run))]
    colour = "green" if run.results and run.green() else "red"
    for heading, *body in _sections(run, report):
        style = f"bold {colour}" if heading == closing_line(run) else "bold"
        parts += ["", Text(one_line(heading), style=style)]
        parts += [_rich_line(one_line(line)) for line in body]
    return Group(*parts)


def _title(run: RunResult) -> str:
    """Lab, provider, and what is emulated."""
    lab = f"Lab '{run.lab}' on {run.provider}"
    return "; ".join(filter(None, (lab, emulation(run), run.disclaimer)))


def _sections(run: RunResult, report: str | None) -> Iterator[list[str]]:
    """The sections below the table: a heading, and its lines."""
    hosts = dict(run.hosts)
    if causes := red_causes(run.results, hosts):
        every = in_common(run.results, hosts) if len(causes) > 1 else ""
        common = [f"  all of them: {every}"] if every else []
        yield [_red_heading(causes), *common, *_red_lines(run, causes)]
    if marginal := Counter(
        result.finding.line for result in run.results if result.finding and result.verdict == "pass"
    ):
        lines = (f"  * {line}: {quantity(n, 'cell')}" for line, n in marginal.most_common())
        yield ["Marginal: passed where some packets are dropped", *lines]
    if workloads := [workload for workload in run.workloads if workload.verdict != "pass"]:
        yield [
            f"Not as expected: {quantity(len(workloads), 'workload check')}",
            *_workload_lines(workloads),
        ]
    if unmet := [made for made in run.assertions if made.verdict in RED]:
        yield [f"Not as expected: {quantity(len(unmet), 'assertion')}", *_assertion_lines(unmet)]
    if run.failover:
        yield ["Failover", *(f"  {line}" for line in failover_lines(run.failover))]
    if limits := limit_groups(run.results):
        yield ["Known limits", *(f"  {limit.sentence}" for limit in limits)]
    if (streams := throughputs(run)).values:
        slow = (
            f"  {format_rate(rate):>11}  {path_words(result.cell)}"
            for rate, result in streams.slowest
        )
        yield [f"Throughput: {span_of(streams)}; the slowest:", *slow]
    if (measured := latencies(run)).values:
        speed = f"p50 {milliseconds(measured.median)}, p99 {milliseconds(measured.p99)}"
        slow = (
            f"  {milliseconds(latency):>8}  {result.cell.family}: {path_words(result.cell)}"
            for latency, result in measured.slowest
        )
        answers = quantity(len(measured.values), "answer")
        yield [f"Latency: {speed}, of {answers}; the slowest:", *slow]
    coverage = [f"Probed: {describe_sample(run)}"] if describe_sample(run) else []
    yield [closing_line(run), *coverage, *([f"Report: {report}"] if report else [])]


def _workload_lines(workloads: Sequence[WorkloadResult]) -> Iterator[str]:
    """A line for each check; one for all that a node could not run for the same reason."""
    alike: dict[tuple[str, str, str], list[WorkloadResult]] = {}
    for workload in workloads:
        key = (workload.node, workload.verdict, workload.detail)
        alike.setdefault(key, []).append(workload)
    for (node, verdict, detail), checks in alike.items():
        title = checks[0].id if len(checks) == 1 else f"{quantity(len(checks), 'check')} on {node}"
        yield f"  * {title}: {verdict}: {detail}"


def _assertion_lines(unmet: Sequence[AssertionResult]) -> Iterator[str]:
    for made in unmet:
        yield f"  * {made.sentence}"
        yield f"    command:  {shlex.join(made.command)}"
        yield f"    repeat:   {made.repeat}"


def _red_heading(causes: Sequence[Cause]) -> str:
    named = [cause for cause in causes if cause.line]
    unnamed = sum(len(cause.cells) for cause in causes if not cause.line)
    text = f"Not as expected: {quantity(sum(len(cause.cells) for cause in causes), 'cell')}"
    if named:
        text += f"; {quantity(len(named), 'cause')} found"
        text += f", none for {quantity(unnamed, 'cell')}" if unnamed else ""
    return text


def _red_lines(run: RunResult, causes: Sequence[Cause]) -> Iterator[str]:
    named = [cause for cause in causes if cause.line]
    for cause in named[:MOST_PLACED]:
        yield f"  * {cause.sentence}"
        for label, where in zip_longest(("where:",), cause.where, fillvalue=""):
            if where:
                yield f"    {label:<9} {where}"
        yield f"    example:  {cause.example.cell.family}: {path_words(cause.example.cell)}"
        yield from _particulars(run, cause.example)
    if rest := named[MOST_PLACED:]:
        cells = quantity(sum(len(cause.cells) for cause in rest), "cell")
        yield f"  and {quantity(len(rest), 'cause')} more, of {cells}"
    for cause in causes:
        if not cause.line:
            yield from _unexplained_lines(run, cause)


def _unexplained_lines(run: RunResult, cause: Cause) -> Iterator[str]:
    """Lines for cells without a cause: each group, and each cell that is in none."""
    for group in cause.groups:
        yield f"  * {group.sentence}"
        yield f"    cause:    {group.example.cause}"
        yield f"    example:  {group.example.cell.family}: {path_words(group.example.cell)}"
        yield from _particulars(run, group.example)
    for result in cause.singles[:SINGLES]:
        yield f"  * {single_sentence(result)}"
        yield f"    cause:    {result.cause}"
        yield from _particulars(run, result)
    if len(cause.singles) > SINGLES:
        yield f"  and {len(cause.singles) - SINGLES:,} more"


def _particulars(run: RunResult, result: CellResult) -> Iterator[str]:
    yield f"    expected: {expected(result)}"
    yield f"    actual:   {actual(result)}"
    if not run.temporary:
        yield f"    explain:  {explain_command(run.lab, result.cell)}"
        if fix := fix_command(run.lab, result):
            yield f"    fix:      {fix}"
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
    """A line with a hanging indent for wrapped text; commands and paths are never wrapped."""
    from rich.padding import Padding  # noqa: PLC0415 - rich is slow to import, and only for terminals
    from rich.table import Table  # noqa: PLC0415 - the same
    from rich.text import Text  # noqa: PLC0415 - the same

    text = line.lstrip()
    indent = len(line) - len(text)
    match = _LABEL.fullmatch(text)
    head, gap, rest = match.groups() if match else ("", "", text)
    style = "bold red" if head == "*" else "dim"
    if head in {"command:", "explain:", "fix:", "repeat:", "Report:"}:
        label = (f"{' ' * indent}{head}{gap}", "" if head == "Report:" else style)
        return Text.assemble(label, rest, no_wrap=True, overflow="ignore")
    grid = Table.grid(padding=0)
    grid.add_column(width=len(head + gap))
    grid.add_column(overflow="fold")
    bold = "bold" if head == "*" else ""
    grid.add_row(Text(head.replace("*", "●"), style=style), Text(rest, style=bold))
    return Padding(grid, (0, 0, 0, indent))
