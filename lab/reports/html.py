"""A run as one self-contained HTML file: nothing is fetched, and it opens from a directory.

Every text of the run is escaped by the template. The page's own script is allowed by its hash in
the Content-Security-Policy, so that no other can run whatever a lab's names say.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from lab._log import quantity
from lab.matrix.verdict import VERDICTS, CellResult, RunResult
from lab.reports.cause import cause
from lab.reports.figures import family_table, latencies, shares
from lab.reports.histogram_svg import histogram_svg
from lab.reports.html_data import cells_json
from lab.reports.moment import in_full
from lab.reports.patterns import Findings, limit_groups, red_groups, single_sentence
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
    example: CellResult
    expected: str
    actual: str
    cause: str
    """Empty where nothing was found."""
    group: int | None
    """Its place among the groups in the page's data; None for a single cell."""


def to_html(run: RunResult, picture: Picture) -> str:
    """The report: some 50 KB and 220 bytes a cell. No file but the templates is read."""
    findings = red_groups(run.results, dict(run.hosts))
    others = [result for result in run.results if result.verdict != "pass"]
    return _template().render(
        run=run,
        picture=picture,
        style=_part("report.css"),
        script=_part("report.js"),
        script_hash=b64encode(sha256(_part("report.js").encode()).digest()).decode(),
        data=cells_json(run, findings.groups),
        headline=headline(run),
        closing=closing_line(run),
        asked=asked(run),
        sampled=sampled(run),
        tone="green" if run.results and run.green() else "red",
        when=in_full(run.started),
        emulation=emulation(run),
        counts=counted(run),
        table=family_table(run),
        findings=list(_findings(findings)),
        more=max(0, len(findings.singles) - SINGLES),
        limits=limit_groups(run.results),
        topology=topology_svg(picture, shares(run), run.emulated_nodes),
        speed=latencies(run, slowest=5),
        histogram=histogram_svg(latencies(run)),
        rows=[(each, expected(each), actual(each)) for each in others[:STATIC_ROWS]],
        rows_in_all=len(others),
        verdicts=VERDICTS,
    )


def _findings(findings: Findings) -> Iterator[_Finding]:
    for number, group in enumerate(findings.groups):
        example = group.example
        title = group.sentence[0].upper() + group.sentence[1:]
        why = cause(group.cells)
        yield _Finding(title, example, expected(example), actual(example), why, number)
    for single in findings.singles[:SINGLES]:
        said, why = single_sentence(single), cause((single,))
        yield _Finding(said, single, expected(single), actual(single), why, None)


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
