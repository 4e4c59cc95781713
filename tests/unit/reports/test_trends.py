"""Scenarios night by night, and the figures of a night for Prometheus."""

from dataclasses import replace

import pytest
from lxml import html
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser
from unit.reports.made_runs import made_run

from lab.matrix.verdict import GREEN, RunResult
from lab.reports.night import Night, ScenarioNight, ScenarioOutcome, summary_json
from lab.reports.trends import MOST, metrics_text, trends, trends_to_html

HOSTILE = '"}<script>\\ 1\n# EOF'
HEALTHY, MIXED = made_run("healthy"), made_run("mixed")


def scenario(name: str, outcome: ScenarioOutcome, run: RunResult | None = None) -> ScenarioNight:
    return ScenarioNight(name, f"nightly-{name}", "netns", outcome, "", 3.0, (), run)


def night(name: str, *scenarios: ScenarioNight) -> Night:
    return Night(name, "netns", "2026-11-21T02:00:00+00:00", 60.0, scenarios)


def test_each_scenario_has_its_figures_night_by_night():
    nights = [
        night("first", scenario("a", "green", HEALTHY)),
        night("second", scenario("a", "red", MIXED), scenario("b", "broken")),
    ]
    found = {trend.scenario: trend for trend in trends([summary_json(each) for each in nights])}
    assert [point.night for point in found["a"].points] == ["first", "second"]
    assert [point.outcome for point in found["b"].points] == ["broken"]
    first, second = found["a"].points
    assert (first.expected, first.flaky) == (100.0, 0)
    green = sum(result.verdict in GREEN for result in MIXED.results)
    assert second.expected == pytest.approx(100 * green / len(MIXED.results))
    assert second.flaky == MIXED.count("flaky") > 0
    assert second.p99_ms is not None
    assert found["b"].charts == ()


def test_summaries_of_other_versions_leave_gaps():
    old = {"name": "old", "scenarios": [{"scenario": "a", "outcome": "green", "cells": 7}]}
    odd = {"name": "odd", "scenarios": [{"scenario": "a", "verdicts": {"pass": "x"}, "p99_ms": -1}]}
    new = summary_json(night("new", scenario("a", "green", HEALTHY)))
    (trend,) = trends([new, old, odd, {"scenarios": "none"}, new, new])
    assert [point.expected for point in trend.points] == [100.0, None, None, 100.0, 100.0]
    chart = trend.charts[0]
    assert len(chart.dots) == 3
    assert len(chart.lines) == 1


def test_the_page_shows_the_latest_nights_and_escapes_every_text():
    bad = scenario(HOSTILE, "red", MIXED)
    made = replace(night(HOSTILE, bad), provider=HOSTILE)
    earlier = [summary_json(night(f"n{number}", bad)) for number in range(2 * MOST)]
    page = trends_to_html(made, earlier)
    assert "<script" not in page
    document = html.fromstring(page)
    assert len(document.findall(".//tbody/tr")) == MOST
    assert "n60" not in page
    assert "n61" in page
    assert len(document.findall(".//svg")) == 3


def samples(text: str) -> dict[tuple[str, ...], float]:
    families = openmetrics_parser.text_string_to_metric_families(text)
    read = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }
    plain = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert plain == read
    return read


def test_prometheus_reads_the_figures_of_a_night():
    made = night("n", scenario("a", "red", MIXED), scenario("b", "broken"))
    read = samples(metrics_text(made))
    assert read["hybridlab_night_green", "netns"] == 0
    assert read["hybridlab_night_started_timestamp_seconds", "netns"] == 1795226400
    assert read["hybridlab_scenario_green", "b", "netns"] == 0
    assert read["hybridlab_scenario_cells", "a", "flaky", "netns"] == MIXED.count("flaky")
    assert read["hybridlab_scenario_causes", "a", "netns"] >= 1
    assert 0 < read["hybridlab_scenario_latency_p99_seconds", "a", "netns"] < 1
    assert ("hybridlab_scenario_latency_p99_seconds", "b", "netns") not in read


def test_no_name_breaks_the_metrics():
    read = samples(metrics_text(replace(night("n", scenario(HOSTILE, "green", HEALTHY)))))
    assert ("hybridlab_scenario_green", HOSTILE, "netns") in read
