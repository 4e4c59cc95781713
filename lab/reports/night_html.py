"""A night as one HTML file that links every report: self-contained, without a script."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from lab._log import quantity
from lab.matrix.verdict import Verdict
from lab.reports.difference import TITLES, Pattern, VerdictChange
from lab.reports.moment import in_full
from lab.reports.night import Night, ScenarioNight, headline
from lab.reports.wording import counted, verdict_words

if TYPE_CHECKING:
    from jinja2 import Template

CHANGES = 50
"""Cells of one kind of change that a scenario shows; ``difference.json`` has them all."""


@dataclass(frozen=True, slots=True)
class _Card:
    """One scenario, as the template shows it."""

    night: ScenarioNight
    counts: tuple[tuple[Verdict, int], ...]
    changes: tuple[_Changes, ...]


@dataclass(frozen=True, slots=True)
class _Changes:
    """The changes of one kind: what they have in common, and the cells that are shown."""

    title: str
    count: int
    patterns: tuple[Pattern, ...]
    cells: tuple[VerdictChange, ...]


def to_html(night: Night) -> str:
    """The index of a night. No file but the templates is read; every text is escaped."""
    cards = [_card(night, one) for one in night.scenarios]
    totals: Counter[Verdict] = Counter()
    for card in cards:
        totals.update(dict(card.counts))
    return _template().render(
        night=night,
        cards=cards,
        totals=[(verdict, totals[verdict]) for verdict in totals],
        cells=sum(totals.values()),
        headline=headline(night),
        tone="green" if night.green else "red",
        when=in_full(night.started),
        style=_part("report.css") + _part("night.css"),
    )


def _card(night: Night, one: ScenarioNight) -> _Card:
    difference = night.differences.get(one.scenario)
    counts = counted(one.run) if one.run else ()
    if difference is None:
        return _Card(one, counts, ())
    changes = tuple(
        _Changes(TITLES[kind], len(cells), difference.patterns.get(kind, ()), cells[:CHANGES])
        for kind, cells in difference.kinds()
    )
    return _Card(one, counts, changes)


def _part(name: str) -> str:
    return files("lab.reports").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - slow, and only for HTML

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["verdict"] = verdict_words
    environment.globals["quantity"] = quantity
    return environment.from_string(_part("night.html.j2"))
