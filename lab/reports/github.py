"""What GitHub Actions shows of a night: annotations, the summary of the step, its outputs. Pure.

Annotations are workflow commands, which GitHub reads from the output of a step.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping

from lab._log import one_line, quantity
from lab.reports.findings import annotate_findings, annotation
from lab.reports.night import Night, NightCause, ScenarioNight, comparison_lines, headline
from lab.reports.wording import verdict_line

MOST_ANNOTATIONS = 10
"""GitHub shows no more errors of one step."""
MOST_CAUSES = 10
"""Causes of one scenario in the summary: GitHub refuses one of more than 1 MiB."""


def error_annotations(night: Night) -> list[str]:
    """The most important errors: in files, of labs that broke, then causes with the most cells."""
    files = (
        line
        for scenario in night.scenarios
        for line in annotate_findings(scenario.source, scenario.findings)
    )
    broken = (
        annotation(
            f"{scenario.outcome}: {scenario.detail}",
            scenario.source,
            title=f"hybridlab: {scenario.scenario}",
        )
        for scenario in night.scenarios
        if scenario.outcome != "green" and not scenario.unfit
        if not scenario.findings and not scenario.causes
    )
    causes = [(cause, scenario) for scenario in night.scenarios for cause in scenario.causes]
    causes.sort(key=lambda pair: -pair[0].cells)
    red = (
        annotation(
            "\n".join([cause.sentence, *cause.where, *map(": ".join, cause.commands)]),
            cause.file or scenario.source,
            cause.line if cause.file or scenario.source else 0,
            title=f"hybridlab: {scenario.scenario}",
        )
        for cause, scenario in causes
    )
    return [*files, *broken, *red][:MOST_ANNOTATIONS]


def outputs(night: Night) -> Mapping[str, str]:
    """The outputs of the step; none has a line end."""
    return {
        "green": "true" if night.green else "false",
        "cells": str(
            sum(len(scenario.run.results) for scenario in night.scenarios if scenario.run)
        ),
        "causes": str(sum(len(scenario.causes) for scenario in night.scenarios)),
    }


def step_summary(night: Night, artifacts: str) -> str:
    """The summary of the step, as Markdown.

    ``artifacts``: address of the files that the workflow has uploaded; empty if unknown.
    """
    lines = [f"## {'✅' if night.green else '❌'} hybridlab: {_text(headline(night))}", ""]
    lines += [f"{_text(banner)}\n" for banner in _banners(night)]
    lines += ["| scenario | result | cells | time | detail |", "|---|---|---:|---:|---|"]
    for scenario in night.scenarios:
        run = scenario.run
        cells = f"{len(run.results):,}" if run else "-"
        detail = scenario.detail or (verdict_line(run) if run else "")
        row = (scenario.scenario, scenario.outcome, cells, f"{scenario.seconds:.0f} s", detail)
        lines.append(f"| {' | '.join(map(_text, row))} |")
    lines.append("")
    for scenario in night.scenarios:
        lines += _scenario_lines(scenario)
    if night.before:
        lines += ["### Against earlier nights", "", *_block(comparison_lines(night))]
    where = (
        f"[the files that this run keeps]({artifacts})" if artifacts else "the files of this run"
    )
    lines.append(f"The whole report is `index.html` in {where}.")
    if any(scenario.causes for scenario in night.scenarios):
        lines.append("On another machine a command has the path to which you copy them.")
    if night.provenance:
        made_by = f"{night.provenance.tool} on {night.provenance.surroundings}"
        lines += ["", f"<sub>Made by {_text(made_by)}.</sub>"]
    return "\n".join(lines) + "\n"


def _banners(night: Night) -> Iterable[str]:
    """What its machines were, and what of them was emulated."""
    return dict.fromkeys(scenario.run.banner for scenario in night.scenarios if scenario.run)


def _scenario_lines(scenario: ScenarioNight) -> Iterator[str]:
    if scenario.findings:
        named = f"{_text(scenario.source)}: {quantity(len(scenario.findings), 'error')}"
        yield from (f"### {named}", "")
        yield from _block(finding.text(scenario.source) for finding in scenario.findings)
    if not scenario.causes:
        return
    counted = quantity(len(scenario.causes), "cause")
    yield from (f"### {_text(scenario.scenario)}: {counted}", "")
    for cause in scenario.causes[:MOST_CAUSES]:
        yield from _cause_lines(cause)
    if rest := scenario.causes[MOST_CAUSES:]:
        cells = quantity(sum(cause.cells for cause in rest), "cell")
        yield from (f"and {quantity(len(rest), 'cause')} more, of {cells}", "")


def _cause_lines(cause: NightCause) -> Iterator[str]:
    yield f"- **{_text(cause.sentence)}**"
    yield from (f"  - {_text(where)}" for where in cause.where)
    yield ""
    yield from _block(f"{command}  # {label}" for label, command in cause.commands)


def _block(lines: Iterable[str]) -> Iterator[str]:
    """Lines as they are; one of them could end a block that is not HTML."""
    yield "<pre>"
    yield from (html.escape(one_line(line)) or "&#8203;" for line in lines)
    yield from ("</pre>", "")


_MARKDOWN = str.maketrans({letter: f"&#{ord(letter)};" for letter in "\\`*_{}[]()#+!|~@:"})


def _text(text: str) -> str:
    """A text in which Markdown finds nothing: names come from files."""
    return html.escape(one_line(text), quote=False).translate(_MARKDOWN)
