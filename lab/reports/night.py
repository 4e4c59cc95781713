"""One night: the outcome of every scenario, and the exit code. Pure data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal
from xml.etree import ElementTree as ET

from lab._log import one_line, quantity, table_lines
from lab.matrix.assertion import AssertionResult
from lab.matrix.verdict import RED, RunResult, Verdict
from lab.reports.difference import (
    TITLES,
    RunDifference,
    changed_provenance,
    text_lines,
    to_json,
)
from lab.reports.explanation import Cause, fix_words, red_causes
from lab.reports.figures import latencies
from lab.reports.html import part, render
from lab.reports.result import counts
from lab.reports.wording import closing_line, count_verdicts, in_full
from lab.scenario.findings import FileFinding
from lab.state.provenance import Provenance

FORMAT = 2
"""Version of the JSON files; a change that an older reader would misread raises it.

In 1 a scenario's ``outcome`` had another name, which nothing here reads.
"""
READABLE = (1, FORMAT)

ScenarioOutcome = Literal["green", "red", "refused", "broken", "stopped"]
"""``red``: cells are not as expected. ``refused``: by preflight, or because its file is invalid.
``broken``: the lab failed, ran out of time, had no cells, or could not be taken down. ``stopped``:
the night was stopped before it finished."""
Stage = Literal["sweep", "up", "test", "gather", "down"]
"""``sweep``: take down a leftover lab of an earlier night."""

BROKEN, CELLS, WELL = 3, 1, 0
TESTED = frozenset({WELL, CELLS})
"""Exit codes of a test that has probed all its cells."""
_REFUSALS = frozenset({2, 4})


@dataclass(frozen=True, slots=True)
class Done:
    """One stage that has run. ``code`` is None if it ran out of time or was stopped."""

    stage: Stage
    code: int | None
    seconds: float
    log: str
    """Path of its output, relative to the night's directory."""
    words: str = ""
    """Why it failed, in one line; else the last line of its output."""


@dataclass(frozen=True, slots=True)
class NightCause:
    """Why a scenario is red. The commands are for the lab that ``repeat`` brings up."""

    sentence: str
    where: tuple[str, ...]
    cells: int
    """0 for assertions and own tests."""
    see: str
    """Empty, as ``fix``, if no cause was found."""
    fix: str
    repeat: str
    """Empty for own tests."""
    file: str = ""
    """Of an own test, its file relative to the directory of the night's command; else empty: what
    failed is in the scenario's file."""
    line: int = 0
    """Line in that file, counted from 1; 0 if it is of no line."""

    @property
    def commands(self) -> tuple[tuple[str, str], ...]:
        """Each command with its label, in the order in which they are of use."""
        pairs = (("repeat", self.repeat), ("see", self.see), ("fix", self.fix))
        return tuple((label, command) for label, command in pairs if command)


def _night_cause(cause: Cause, lab: str) -> NightCause:
    finding = cause.example.finding
    return NightCause(
        sentence=cause.sentence,
        where=cause.where,
        cells=len(cause.cells),
        see=finding.shown_by(lab) if finding else "",
        fix=fix_words(lab, finding) if finding else "",
        repeat=cause.example.repeat,
    )


def _unmet(assertions: Sequence[AssertionResult]) -> Iterator[NightCause]:
    """One cause for each assertion that fails, however many its nodes or pods are."""
    failed: dict[str, list[AssertionResult]] = {}
    for made in assertions:
        if made.verdict in RED:
            failed.setdefault(made.name, []).append(made)
    for first, *others in failed.values():
        where = tuple(made.sentence for made in others)
        yield NightCause(first.sentence, where, 0, "", "", first.repeat, line=first.line)


@dataclass(frozen=True)
class ScenarioNight:
    """The outcome of one scenario. Paths are relative to the night's directory."""

    scenario: str
    lab: str
    provider: str
    outcome: ScenarioOutcome
    detail: str
    """The reason, in one sentence; empty if green."""
    seconds: float
    stages: tuple[Done, ...]
    run: RunResult | None = None
    report: str | None = None
    junit: str | None = None
    evidence: str | None = None
    source: str = ""
    """Its file; empty for a shipped scenario."""
    findings: tuple[FileFinding, ...] = ()
    """The errors in its file."""
    repro: str = ""
    """The name of the lab that the command ``repeat`` of its cells brings up."""
    own_tests: tuple[NightCause, ...] = ()
    """The user's own tests that failed, see :func:`failed_tests`."""

    @cached_property
    def causes(self) -> tuple[NightCause, ...]:
        """The causes of its red cells, most cells first, then assertions and own tests."""
        if self.run is None:
            return self.own_tests
        causes = red_causes(self.run.results, dict(self.run.hosts))
        return (
            *(_night_cause(cause, self.repro or self.lab) for cause in causes),
            *_unmet(self.run.assertions),
            *self.own_tests,
        )

    @property
    def unfit(self) -> bool:
        """Whether it was refused untried, because the provider can never run this lab."""
        return self.outcome == "refused" and not self.stages

    @property
    def tested(self) -> bool:
        """Whether its whole matrix was probed."""
        return any(done.stage == "test" and done.code in TESTED for done in self.stages)

    @property
    def suite(self) -> str:
        """Its name in JUnit, which includes the provider."""
        return f"hybridlab.{self.provider}.{self.scenario}"


@dataclass(frozen=True, slots=True)
class Night:
    """One night."""

    name: str
    """Name of its directory."""
    provider: str
    started: str
    """ISO 8601, UTC."""
    seconds: float
    scenarios: tuple[ScenarioNight, ...]
    before: Mapping[str, str] = field(default_factory=dict)
    """For each scenario that is compared, the name of the night that it is compared with."""
    differences: Mapping[str, RunDifference] = field(default_factory=dict)
    """For the same scenarios, the difference."""
    provenance: Provenance | None = None
    """What it was made with; None if that is not recorded."""
    expression: str = ""
    """The ``-k`` that chose its cells; empty if all were tested."""

    @property
    def usual_before(self) -> str | None:
        """The night that most scenarios are compared with; None if none is compared."""
        names = list(self.before.values())
        return max(dict.fromkeys(names), key=names.count, default=None)

    @property
    def alone(self) -> tuple[str, ...]:
        """The tested scenarios for which no earlier night has a complete run."""
        tested = (
            scenario.scenario for scenario in self.scenarios if scenario.run and scenario.tested
        )
        return tuple(name for name in tested if name not in self.before)

    @property
    def green(self) -> bool:
        """Whether every scenario that the provider can run is green."""
        fit = [scenario for scenario in self.scenarios if not scenario.unfit]
        return bool(fit) and all(night.outcome == "green" for night in fit)

    @property
    def exit_code(self) -> int:
        """3 if a lab broke, was refused or did not run; 1 if cells failed; else 0."""
        outcomes = {scenario.outcome for scenario in self.scenarios if not scenario.unfit}
        if not outcomes or outcomes - {"green", "red"}:
            return BROKEN
        return CELLS if "red" in outcomes else WELL


def judge(
    stages: Sequence[Done], run: RunResult | None, *, stopped: bool, left: bool
) -> tuple[ScenarioOutcome, str]:
    """The outcome of one scenario, and why.

    ``stages``: the stages that were started, in order. ``run``: the result of the matrix; None if
    there is none. ``stopped``: whether the night was stopped meanwhile. ``left``: whether something
    of the lab is left.
    """
    ended = {stage.stage: stage for stage in stages}
    if left:
        return "broken", f"the lab could not be taken down: {_describe_done(ended.get('down'))}"
    if stopped:
        return "stopped", "the night ended before this finished"
    late = next((stage for stage in stages if stage.code is None), None)
    if late:
        last = f"; its last output: {late.words}" if late.words else ""
        return "broken", f"'{late.stage}' was not done in time{last}"
    up = ended.get("up")
    if up is None or up.code:
        return ("refused" if up and up.code in _REFUSALS else "broken"), _describe_done(up)
    return _judge_test(ended, run)


def _judge_test(ended: Mapping[Stage, Done], run: RunResult | None) -> tuple[ScenarioOutcome, str]:
    test, down = ended.get("test"), ended.get("down")
    if test is None or run is None or test.code not in TESTED:
        return "broken", _describe_done(test)
    if not run.results and not run.assertions:
        return "broken", "the matrix has no cells"
    if down is None or down.code:
        return "broken", f"it did not go down cleanly: {_describe_done(down)}"
    if run.green():  # but perhaps a test of the user's own failed
        return ("red", _describe_done(test)) if test.code else ("green", "")
    return "red", closing_line(run)


def _describe_done(done: Done | None) -> str:
    return done.words if done else "it was not started"


def summary_json(night: Night) -> dict[str, Any]:
    """The night without cells, which are in each scenario's result."""
    return {
        "format": FORMAT,
        "name": night.name,
        "provider": night.provider,
        "started": night.started,
        "seconds": night.seconds,
        "green": night.green,
        "exit_code": night.exit_code,
        "provenance": asdict(night.provenance) if night.provenance else None,
        "expression": night.expression,
        "before": night.usual_before,
        "scenarios": [
            {**_scenario_json(scenario), "before": night.before.get(scenario.scenario)}
            for scenario in night.scenarios
        ],
        "changes": {
            name: {TITLES[kind]: len(changes) for kind, changes in difference.changes.items()}
            for name, difference in night.differences.items()
        },
    }


def difference_json(night: Night) -> dict[str, Any]:
    """The difference of each scenario, cell by cell, from the night it is compared with."""
    return {
        "format": FORMAT,
        "before": night.usual_before,
        "after": night.name,
        "scenarios": {
            name: {"before": night.before[name], **to_json(difference)}
            for name, difference in night.differences.items()
        },
    }


def _scenario_json(night: ScenarioNight) -> dict[str, Any]:
    speed = latencies(night.run) if night.run else None
    run = {
        "run": night.run.run if night.run else None,
        "cells": len(night.run.results) if night.run else 0,
        "disclaimer": night.run.disclaimer if night.run else "",
        "verdicts": counts(night.run)["verdicts"] if night.run else None,
        "p99_ms": speed.p99 if speed and speed.values else None,
    }
    told = ("scenario", "lab", "suite", "provider", "outcome", "detail", "seconds")
    kept = ("report", "junit", "evidence")
    return {
        **{name: getattr(night, name) for name in told},
        **run,
        **{name: getattr(night, name) for name in kept},
        "causes": [asdict(cause) for cause in night.causes],
        "stages": [asdict(stage) for stage in night.stages],
    }


def headline(night: Night) -> str:
    """The night in one sentence."""
    unfit = [scenario.scenario for scenario in night.scenarios if scenario.unfit]
    bad = [
        scenario
        for scenario in night.scenarios
        if scenario.outcome != "green" and not scenario.unfit
    ]
    if not bad and len(unfit) == len(night.scenarios):
        return f"No scenario can run on {night.provider}."
    if not bad and unfit:
        count = len(night.scenarios) - len(unfit)
        of = quantity(len(night.scenarios), "scenario")
        return f"{count} of {of} as expected; cannot run on {night.provider}: {', '.join(unfit)}."
    if not bad:
        count = len(night.scenarios)
        return "As expected." if count == 1 else "All scenarios are as expected."
    verb = "is" if len(bad) == 1 else "are"
    names = ", ".join(f"{failed.scenario} ({failed.outcome})" for failed in bad)
    share = f"{len(bad)} of {quantity(len(night.scenarios), 'scenario')}"
    return f"{share} {verb} not as expected: {names}."


def plain_lines(night: Night) -> list[str]:
    """The summary as lines of text."""
    rows = [("scenario", "result", "cells", "time", "")]
    for scenario in night.scenarios:
        cells = f"{len(scenario.run.results):,}" if scenario.run else "-"
        if scenario.run and scenario.run.coverage:
            cells = scenario.run.coverage.figures
        rows.append(
            (
                scenario.scenario,
                scenario.outcome,
                cells,
                f"{scenario.seconds:.0f} s",
                scenario.detail,
            )
        )
    title = f"Night {night.name} on {night.provider}: {headline(night)}"
    lines = [title, *disclaimers(night), "", *table_lines(rows)]
    return [*map(one_line, lines), "", *_cause_lines(night), *comparison_lines(night)]


def _cause_lines(night: Night) -> Iterator[str]:
    """The causes of each red scenario, and the commands that repeat, show and mend one cell."""
    for scenario in night.scenarios:
        if not scenario.causes:
            continue
        yield f"{scenario.scenario}: {quantity(len(scenario.causes), 'cause')}"
        for cause in scenario.causes[:CAUSES]:
            yield one_line(f"  * {cause.sentence}")
            yield from (one_line(f"    {'where:':<8} {where}") for where in cause.where)
            for label, command in cause.commands:
                yield one_line(f"    {label + ':':<8} {command}")
        if len(scenario.causes) > CAUSES:
            yield f"  and {len(scenario.causes) - CAUSES:,} more; summary.json has them all"
        yield ""


def disclaimers(night: Night) -> tuple[str, ...]:
    """What nodes of some scenarios are, each with the scenarios' names."""
    names: dict[str, list[str]] = {}
    for scenario in night.scenarios:
        if scenario.run and scenario.run.disclaimer:
            names.setdefault(scenario.run.disclaimer, []).append(scenario.scenario)
    return tuple(f"{', '.join(of)}: {disclaimer}" for disclaimer, of in names.items())


def comparison_lines(night: Night) -> list[str]:
    """The differences from earlier nights as text."""
    lines: list[str] = []
    for before in dict.fromkeys(night.before.values()):
        changes = [
            line if line.startswith(" ") else f"{name}: {line}"
            for name, difference in night.differences.items()
            if night.before[name] == before
            for line in text_lines(difference)
        ]
        names = ", ".join(name for name, other in night.before.items() if other == before)
        lines += [f"Compared with '{before}' ({names}):", *(changes or ["  no cell differs"])]
        lines += [f"  {line}" for line in _tool_changes(night, before)]
    if night.alone:
        lines.append(
            f"Not compared, as no earlier night has a complete run: {', '.join(night.alone)}."
        )
    return [*map(one_line, lines)] or ["Nothing to compare: no scenario was tested completely."]


def tool_changes(night: Night) -> list[str]:
    """How what this night was made with differs from that of the nights it is compared with."""
    return [
        f"Against {before}: {line}"
        for before in dict.fromkeys(night.before.values())
        for line in _tool_changes(night, before)
    ]


def _tool_changes(night: Night, before: str) -> list[str]:
    changes = [
        f"{noun} differ: {was}, now {now}"
        for name, difference in night.differences.items()
        if night.before[name] == before
        for noun, was, now in changed_provenance(difference)
    ]
    return list(dict.fromkeys(changes))


_COUNTS = ("tests", "failures", "errors", "skipped")


def junit_of_night(scenarios: tuple[ScenarioNight, ...], documents: Mapping[str, str]) -> str:
    """The JUnit XML of all scenarios.

    ``scenarios``: each becomes a testsuite named ``hybridlab.PROVIDER.SCENARIO``. One that is
    neither green nor red has an additional testcase ``lab`` with an error that says what happened;
    it is skipped instead if the provider can never run the lab. ``documents``: scenario name to the
    JUnit XML of its run, if there is one; one that is damaged is an additional error ``junit``.
    """
    root = ET.Element("testsuites", {"name": "hybridlab"})
    for scenario in scenarios:
        suite = _suite(scenario, documents.get(scenario.scenario))
        if scenario.outcome not in {"green", "red"}:
            _add_error(suite, scenario)
        for case in suite.iter("testcase"):
            of_lab = (case.get("classname") or scenario.lab).removeprefix(scenario.lab).lstrip(".")
            case.set("classname", ".".join(filter(None, (scenario.suite, of_lab))))
        root.append(suite)
    for count in _COUNTS:
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def failed_tests(document: str, lab: str) -> tuple[NightCause, ...]:
    """The user's own tests that failed, from the JUnit of a run of ``lab``.

    If the document is damaged, one that says so.
    """
    causes = []
    try:
        root = _parse_junit(document)
    except ValueError as error:
        return (NightCause(f"own tests are unknown: {error}", (), 0, "", "", ""),)
    for case in root.iter("testcase"):
        module = case.get("classname", "")
        failure = next((part for part in case if part.tag in {"failure", "error"}), None)
        if failure is None or module.partition(".")[0] == lab:
            continue
        message = failure.get("message", "").partition("\n")[0]
        place = {part.get("name"): part.get("value", "") for part in case.iter("property")}
        line = place.get("line", "")
        causes.append(
            NightCause(
                f"own test {module}::{case.get('name')}: {message}",
                *((), 0, "", "", ""),
                file=place.get("file", ""),
                line=int(line) if line.isdecimal() else 0,
            )
        )
    return tuple(causes)


def _parse_junit(document: str) -> ET.Element:
    """The root of a run's JUnit. Raises ValueError with a sentence if it is damaged."""
    try:
        return ET.fromstring(document)  # noqa: S314  pytest wrote it, for us
    except ET.ParseError as error:
        raise ValueError(f"the run's JUnit file is damaged: {error}") from None


def _suite(night: ScenarioNight, document: str | None) -> ET.Element:
    damage, element = "", None
    try:
        element = _parse_junit(document).find("testsuite") if document is not None else None
    except ValueError as error:
        damage = str(error)
    suite = ET.Element("testsuite", dict.fromkeys(_COUNTS, "0")) if element is None else element
    suite.set("name", night.suite)
    suite.set("time", f"{night.seconds:.3f}")
    suite.attrib.pop("hostname", None)  # reports may be published
    if damage:
        _add_case(suite, "junit", "error", damage)
    return suite


def _add_error(suite: ET.Element, night: ScenarioNight) -> None:
    kind: Literal["skipped", "error"] = "skipped" if night.unfit else "error"
    element = _add_case(suite, "lab", kind, f"{night.outcome}: {night.detail}", night.seconds)
    element.text = "\n".join(f"{done.stage}: {done.code}, {done.log}" for done in night.stages)


def _add_case(
    suite: ET.Element,
    name: str,
    kind: Literal["skipped", "error"],
    message: str,
    seconds: float = 0.0,
) -> ET.Element:
    """Add a testcase to the suite and its counts; returns the element that says why."""
    case = ET.SubElement(suite, "testcase", {"name": name, "time": f"{seconds:.3f}"})
    for count in ("tests", "skipped" if kind == "skipped" else "errors"):
        suite.set(count, str(int(suite.get(count, "0")) + 1))
    return ET.SubElement(case, kind, {"message": message})


CAUSES = 5
"""Causes that the terminal and the index show of one scenario; ``summary.json`` has them all."""
CHANGES = 50
"""Cells of one kind of change that a scenario shows; ``difference.json`` has them all."""


def night_to_html(night: Night) -> str:
    """The index page of a night. Only the templates are read from files; every text is escaped."""
    counts = {
        scenario.scenario: count_verdicts(scenario.run)
        for scenario in night.scenarios
        if scenario.run
    }
    totals: Counter[Verdict] = Counter()
    for count in counts.values():
        totals.update(dict(count))
    return render(
        "night.html.j2",
        night=night,
        counts=counts,
        totals=totals,
        headline=headline(night),
        disclaimers=disclaimers(night),
        tool_changes=tool_changes(night),
        tone="green" if night.green else "red",
        when=in_full(night.started),
        titles=TITLES,
        most=CHANGES,
        most_causes=CAUSES,
        style=part("report.css") + part("night.css"),
    )
