"""A run as one self-contained HTML file: nothing is fetched, and it opens from a directory.

Every text of the run is escaped by the template. The page's own script is allowed by its hash in
the Content-Security-Policy, so that no other can run whatever a lab's names say.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from lab._log import quantity
from lab.matrix.verdict import VERDICTS, CellResult, RunResult
from lab.reports.cause import Cause, red_causes
from lab.reports.figures import family_table, latencies, shares
from lab.reports.histogram_svg import histogram_svg
from lab.reports.html_data import cells_json
from lab.reports.moment import in_full
from lab.reports.patterns import limit_groups, single_sentence
from lab.reports.picture import Picture
from lab.reports.topology_svg import topology_svg
from lab.reports.wording import (
    actual,
    asked,
    closing_line,
    counted,
    emulation,
    expected,
    explain_command,
    failover_words,
    headline,
    milliseconds,
    path_words,
    sampled,
    verdict_words,
)

if TYPE_CHECKING:
    from jinja2 import Template

SINGLES = 10
"""Red cells without a group that are shown in full."""
STATIC_ROWS = 100
"""Rows of the table of everything but plain passes that are there without JavaScript."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """One thing that is red, as the template shows it."""

    title: str
    cells: tuple[CellResult, ...]
    """Shown in the matrix by a link where there are several."""
    where: tuple[str, ...]
    """What the cells have in common, where the title does not say it."""
    example: CellResult
    expected: str
    actual: str


def to_html(run: RunResult, picture: Picture) -> str:
    """The report: some 50 KB and 220 bytes a cell. No file but the templates is read."""
    findings = list(_findings(red_causes(run.results, dict(run.hosts))))
    others = [result for result in run.results if result.verdict != "pass"]
    return _template().render(
        run=run,
        picture=picture,
        style=_part("report.css"),
        script=_part("report.js"),
        script_hash=b64encode(sha256(_part("report.js").encode()).digest()).decode(),
        data=cells_json(run, [each.cells for each in findings]),
        headline=headline(run),
        closing=closing_line(run),
        asked=asked(run),
        sampled=sampled(run),
        tone="green" if run.results and run.green() else "red",
        when=in_full(run.started),
        emulation=emulation(run),
        counts=counted(run),
        table=family_table(run),
        findings=findings,
        limits=limit_groups(run.results),
        topology=topology_svg(picture, shares(run), run.emulated_nodes),
        speed=latencies(run, slowest=5),
        histogram=histogram_svg(latencies(run)),
        rows=[(each, expected(each), actual(each)) for each in others[:STATIC_ROWS]],
        rows_in_all=len(others),
        verdicts=VERDICTS,
    )


def _findings(causes: Sequence[Cause]) -> Iterator[_Finding]:
    for cause in causes:
        if cause.line:
            yield _finding(cause.sentence, cause.cells, cause.example, cause.where)
            continue
        for group in cause.groups:
            yield _finding(group.sentence, group.cells, group.example)
        for single in cause.singles[:SINGLES]:
            yield _finding(single_sentence(single), (single,), single)
        if rest := cause.singles[SINGLES:]:
            more = quantity(len(rest), "single cell")
            yield _finding(f"and {more} more", rest, rest[0])


def _finding(
    title: str,
    cells: tuple[CellResult, ...],
    example: CellResult,
    where: tuple[str, ...] = (),
) -> _Finding:
    title = title[0].upper() + title[1:]
    return _Finding(title, cells, where, example, expected(example), actual(example))


def _part(name: str) -> str:
    return files("lab.reports").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - slow, and only for HTML

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["ms"] = milliseconds
    environment.filters["failover"] = failover_words
    environment.filters["verdict"] = verdict_words
    environment.filters["path"] = path_words
    environment.globals["explain_command"] = explain_command
    environment.globals["quantity"] = quantity
    return environment.from_string(_part("report.html.j2"))
