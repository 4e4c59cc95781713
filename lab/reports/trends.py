"""How scenarios fared night by night, as a page, and one night's figures as OpenMetrics. Pure.

Summaries of earlier nights may lack figures, which other versions did not write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lab.matrix.verdict import GREEN, VERDICTS
from lab.reports.html import part, render
from lab.reports.night import Night, summary_json

MOST = 60
"""Nights that the page shows, the latest."""
WIDTH, HEIGHT, MARGIN = 600, 56, 6
"""Of a chart, in its own units."""


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One scenario in one night; a figure is None if it is not known."""

    night: str
    started: str
    outcome: str
    cells: int | None
    expected: float | None
    """Share of the cells that are as expected, in per cent."""
    flaky: int | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure of a scenario over the nights."""

    title: str
    last: str
    """The latest value with its unit."""
    lines: tuple[str, ...]
    """The points of each line without a gap, for SVG."""
    dots: tuple[tuple[float, float, str, str], ...]
    """Place, outcome of the night, and description of each value."""


@dataclass(frozen=True, slots=True)
class Trend:
    """One scenario over the nights, oldest first."""

    scenario: str
    points: tuple[TrendPoint, ...]

    @property
    def charts(self) -> tuple[Chart, ...]:
        """The charts of the figures that some night has."""
        figures = (
            ("as expected", "{:.2f} %", [point.expected for point in self.points]),
            ("flaky cells", "{:,}", [point.flaky for point in self.points]),
            ("p99 latency", "{:.2f} ms", [point.p99_ms for point in self.points]),
        )
        return tuple(
            _chart(title, unit, self.points, values)
            for title, unit, values in figures
            if any(value is not None for value in values)
        )


def trends(summaries: Sequence[Mapping[str, Any]]) -> tuple[Trend, ...]:
    """Each scenario's points. ``summaries``: those of nights, oldest first; keys may be missing."""
    by_scenario: dict[str, list[TrendPoint]] = {}
    for summary in summaries[-MOST:]:
        for scenario in _objects(summary.get("scenarios")):
            name = str(scenario.get("scenario", ""))
            by_scenario.setdefault(name, []).append(_point(summary, scenario))
    return tuple(Trend(name, tuple(points)) for name, points in by_scenario.items())


def _point(summary: Mapping[str, Any], scenario: Mapping[str, Any]) -> TrendPoint:
    verdicts = scenario.get("verdicts")
    counts = (
        {verdict: _number(verdicts.get(verdict)) or 0 for verdict in VERDICTS}
        if isinstance(verdicts, Mapping)
        else {}
    )
    cells = sum(counts.values())
    green = sum(count for verdict, count in counts.items() if verdict in GREEN)
    return TrendPoint(
        night=str(summary.get("name", "")),
        started=str(summary.get("started", "")),
        outcome=str(scenario.get("outcome", "")),
        cells=int(cells) if cells else None,
        expected=100 * green / cells if cells else None,
        flaky=int(counts["flaky"]) if cells else None,
        p99_ms=_number(scenario.get("p99_ms")),
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if value >= 0 else None


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _chart(
    title: str, unit: str, points: Sequence[TrendPoint], values: Sequence[float | None]
) -> Chart:
    known = [value for value in values if value is not None]
    least, span = min(known), max(known) - min(known)
    step = (WIDTH - 2 * MARGIN) / max(1, len(points) - 1)
    lines: list[list[str]] = [[]]
    dots = []
    for place, (point, value) in enumerate(zip(points, values, strict=True)):
        if value is None:
            lines.append([])
            continue
        across = round(MARGIN + place * step, 1)
        share = (value - least) / span if span else 0.5
        down = round(HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN), 1)
        lines[-1].append(f"{across},{down}")
        words = f"{point.night}: {unit.format(value)}, {point.outcome}"
        dots.append((across, down, point.outcome, words))
    joined = (" ".join(line) for line in lines if len(line) > 1)
    return Chart(title, unit.format(known[-1]), tuple(joined), tuple(dots))


def trends_to_html(night: Night, earlier: Sequence[Mapping[str, Any]]) -> str:
    """The page of a night and those before it. ``earlier``: their summaries, oldest first."""
    summaries = [*earlier, summary_json(night)][-MOST:]
    return render(
        "trends.html.j2",
        night=night,
        nights=len(summaries),
        trends=trends(summaries),
        width=WIDTH,
        height=HEIGHT,
        most=MOST,
        style=part("report.css") + part("night.css"),
    )


def metrics_text(night: Night) -> str:
    """The figures of a night as OpenMetrics, which Prometheus' textfile collector reads, too."""
    of_night = {"provider": night.provider}
    families: list[tuple[str, str, list[tuple[Mapping[str, str], float]]]] = [
        ("night_green", "Whether every scenario was as expected.", [(of_night, night.green)]),
        ("night_started_timestamp_seconds", "When the night began.", [(of_night, _since(night))]),
        ("night_duration_seconds", "How long the night took.", [(of_night, night.seconds)]),
    ]
    each = [
        ({**of_night, "scenario": str(scenario["scenario"])}, scenario)
        for scenario in summary_json(night)["scenarios"]
    ]
    families += [
        (
            "scenario_green",
            "Whether the scenario was as expected.",
            [(labels, scenario["outcome"] == "green") for labels, scenario in each],
        ),
        (
            "scenario_duration_seconds",
            "How long the scenario took, up and down included.",
            [(labels, scenario["seconds"]) for labels, scenario in each],
        ),
        (
            "scenario_causes",
            "How many causes its red cells have.",
            [(labels, len(scenario["causes"])) for labels, scenario in each],
        ),
        (
            "scenario_cells",
            "Cells by verdict.",
            [
                ({**labels, "verdict": verdict}, count)
                for labels, scenario in each
                for verdict, count in (scenario["verdicts"] or {}).items()
            ],
        ),
        (
            "scenario_latency_p99_seconds",
            "The 99th percentile of its cells' latencies.",
            [
                (labels, scenario["p99_ms"] / 1000)
                for labels, scenario in each
                if scenario["p99_ms"] is not None
            ],
        ),
    ]
    lines = (line for name, about, samples in families for line in _family(name, about, samples))
    return "\n".join([*lines, "# EOF"]) + "\n"


def _since(night: Night) -> float:
    return datetime.fromisoformat(night.started).timestamp()


def _family(
    name: str, about: str, samples: Iterable[tuple[Mapping[str, str], float]]
) -> Iterator[str]:
    yield f"# HELP hybridlab_{name} {about}"
    yield f"# TYPE hybridlab_{name} gauge"
    for labels, value in samples:
        given = ",".join(f'{key}="{_label(text)}"' for key, text in labels.items())
        yield f"hybridlab_{name}{{{given}}} {float(value):.12g}"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
