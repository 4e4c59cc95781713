"""What GitHub shows of a night: annotations that its runner reads, and a summary in Markdown."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from unit.reports.made_runs import made_assertion, made_run, red_run

from lab._errors import UsageError
from lab.lifecycle.github import find_step
from lab.matrix.verdict import RunResult
from lab.reports.findings import annotation, sarif
from lab.reports.github import (
    MOST_ANNOTATIONS,
    MOST_CAUSES,
    error_annotations,
    outputs,
    step_summary,
)
from lab.reports.night import (
    CAUSES,
    Night,
    NightCause,
    ScenarioNight,
    night_to_html,
    plain_lines,
    summary_json,
)
from lab.scenario.findings import FileFinding

HOSTILE = "</pre><script>|`x`\n::error::no\x1b[31m %0A @octocat"
PART = re.compile(r"::error(?: (?P<properties>[^:]*))?::(?P<message>.*)")


def scenario(name: str, run: RunResult | None = None, **others: object) -> ScenarioNight:
    made = ScenarioNight(
        name, f"nightly-{name}", "netns", "red", "why", 3.0, (), run, repro=f"repro-{name}"
    )
    return replace(made, source=f"labs/{name}.yaml", **others)


def night(*scenarios: ScenarioNight) -> Night:
    return Night("2026-11-21", "netns", "2026-11-21T02:00:00+00:00", 60.0, scenarios)


def test_an_annotation_is_one_command_whatever_its_texts_are():
    line = annotation(HOSTILE, "a,b:c.yaml", 3, 7, "of: this")
    match = PART.fullmatch(line)
    assert match is not None
    assert match["properties"] == "file=a%2Cb%3Ac.yaml,line=3,col=7,title=of%3A this"
    assert "\n" not in line
    assert "%250A" in match["message"]
    assert annotation("words") == "::error::words"


def test_errors_in_files_are_at_their_lines_and_come_before_causes():
    wrong = FileFinding(("nodes", 1), 4, 9, "no such system", "did you mean linux?")
    by_key = FileFinding(("network", "cidr"), 0, 0, "is too small", "take a larger one")
    made = night(
        scenario("red", red_run()),
        scenario("bad", outcome="refused", findings=(wrong, by_key)),
    )
    lines = error_annotations(made)
    assert lines[0].startswith("::error file=labs/bad.yaml,line=4,col=9,title=hybridlab")
    assert lines[1].endswith("::network.cidr: is too small; take a larger one")
    assert "line=" not in lines[1]
    assert [line.partition(",")[0] for line in lines[2:]] == ["::error file=labs/red.yaml"] * 2
    assert "%0Arepeat: lab test overlay -k " in lines[2]
    assert "%0Afix: lab exec repro-red worker2 -- nft flush ruleset" in lines[2]


def test_what_failed_beside_the_cells_is_annotated_at_its_line():
    own = NightCause("own test test_a::test_b: no", (), 0, "", "", "", file="tests/a.py", line=7)
    unmet = replace(made_run("healthy"), assertions=(replace(made_assertion("fail"), line=12),))
    lines = error_annotations(night(scenario("mine", unmet, own_tests=(own,))))
    assert [line.partition(",title")[0] for line in lines] == [
        "::error file=labs/mine.yaml,line=12",
        "::error file=tests/a.py,line=7",
    ]
    shipped = replace(scenario("mine", unmet), source="")
    assert error_annotations(night(shipped))[0].startswith("::error title=")


def test_sarif_has_each_finding_at_its_place():
    wrong = FileFinding(("nodes", 1), 4, 9, "no such system", "did you mean linux?")
    by_key = FileFinding(("network", "cidr"), 0, 0, "is too small", "take a larger one")
    log = sarif({"labs/a b.yaml": [wrong], "/tmp/c.yaml": [by_key], "d.yaml": []}, "0.1.0")
    (run,) = log["runs"]
    assert log["version"] == "2.1.0"
    assert run["tool"]["driver"]["version"] == "0.1.0"
    (rule,) = run["tool"]["driver"]["rules"]
    first, second = run["results"]
    assert {result["ruleId"] for result in run["results"]} == {rule["id"]}
    places = [result["locations"][0]["physicalLocation"] for result in (first, second)]
    assert places == [
        {
            "artifactLocation": {"uri": "labs/a%20b.yaml"},
            "region": {"startLine": 4, "startColumn": 9},
        },
        {"artifactLocation": {"uri": "file:///tmp/c.yaml"}},
    ]
    assert second["message"]["text"] == "network.cidr: is too small; take a larger one"


def test_of_many_causes_those_with_most_cells_are_annotated():
    made = night(scenario("small", red_run(3)), scenario("many", red_run(30)))
    lines = error_annotations(made)
    assert len(lines) == MOST_ANNOTATIONS
    assert "chain 0" in lines[0]
    assert "chain 0" in lines[1]
    summary = step_summary(made, "")
    rest = made.scenarios[1].causes[MOST_CAUSES:]
    assert f"and {len(rest)} causes more, of {sum(cause.cells for cause in rest)} cells" in summary


def test_a_lab_that_broke_is_annotated_with_its_reason():
    (line,) = error_annotations(night(scenario("broken", outcome="broken", detail="no space")))
    assert line.endswith("title=hybridlab%3A broken::broken: no space")
    unfit = scenario("ovn", outcome="refused", stages=())
    assert error_annotations(night(unfit)) == []
    assert error_annotations(night(scenario("well", made_run("healthy"), outcome="green"))) == []


def test_the_summary_has_counts_and_what_to_do_of_each_cause():
    run = red_run()
    made = night(scenario("overlay", run))
    summary = step_summary(made, "https://github.com/me/it/actions/runs/7#artifacts")
    assert f"| overlay | red | {len(run.results):,} | 3 s | why |" in summary
    cause = made.scenarios[0].causes[0]
    assert "lab exec repro-overlay worker2 -- nft list ruleset  # see" in summary
    assert "lab exec repro-overlay worker2 -- nft flush ruleset  # fix" in summary
    assert f"{cause.repeat}  # repeat" in summary
    assert "(https://github.com/me/it/actions/runs/7#artifacts)" in summary


def test_the_summary_of_a_green_night_says_what_was_emulated_and_what_was_judged():
    checks = (made_assertion("pass"), made_assertion("known-limit", "win1"))
    run = replace(made_run("healthy"), banner="netns: Windows is emulated", assertions=checks)
    summary = step_summary(night(scenario("overlay", run, outcome="green", detail="")), "")
    assert "\nnetns&#58; Windows is emulated\n" in summary
    (row,) = [line for line in summary.splitlines() if line.startswith("| overlay")]
    assert "known limits; 1 of 1 assertion passed; 1 assertion not made on emulated nodes" in row


def test_no_text_of_a_lab_becomes_markup_of_the_summary():
    run = red_run()
    results = tuple(replace(result, repeat=HOSTILE) for result in run.results)
    hostile = replace(run, results=results)
    wrong = FileFinding((), 1, 1, HOSTILE, HOSTILE)
    made = night(scenario("overlay", hostile, detail=HOSTILE, findings=(wrong,)))
    summary = step_summary(made, "")
    assert "<script" not in summary
    assert "\x1b" not in summary
    assert "`x`" not in summary.partition("<pre>")[0]
    assert summary.count("<pre>") == summary.count("</pre>")
    (row,) = [line for line in summary.splitlines() if line.startswith("| overlay")]
    assert row.count("|") == 6
    assert "@octocat" not in row


def test_the_outputs_of_a_step_are_one_line_each():
    run = red_run()
    made = night(scenario("overlay", run), scenario("broken", outcome="broken"))
    assert outputs(made) == {"green": "false", "cells": str(len(run.results)), "causes": "2"}
    well = night(scenario("overlay", made_run("healthy"), outcome="green"))
    assert outputs(well)["green"] == "true"


@pytest.mark.parametrize("missing", ["GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"])
def test_outside_of_a_step_of_github_it_is_refused(missing, tmp_path):
    environ = {name: str(tmp_path / name) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    assert find_step(environ).artifacts == ""
    with pytest.raises(UsageError, match=f"{missing} is not set"):
        find_step({name: value for name, value in environ.items() if name != missing})


def test_a_step_adds_to_what_its_files_have(tmp_path):
    names = ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")
    environ = {name: str(tmp_path / name) for name in names}
    for path in environ.values():
        Path(path).write_text("before\n")
    told: list[str] = []
    find_step(environ).write(night(scenario("overlay", red_run())), told.append)
    summary, output = ((tmp_path / name).read_text() for name in names)
    assert summary.startswith("before\n## ")
    assert output.splitlines()[:2] == ["before", "green=false"]
    assert [line.startswith("::error ") for line in told] == [True, True]
    assert os.linesep.join(told).count("\n") == 1


def test_terminal_index_and_summary_of_a_night_have_each_cause_with_its_commands():
    made = night(scenario("overlay", red_run(CAUSES + 2)))
    first = made.scenarios[0].causes[0]
    text = "\n".join(plain_lines(made))
    assert f"  * {first.sentence}" in text
    assert f"    repeat:  {first.repeat}" in text
    assert "    fix:     lab exec repro-overlay worker2 -- nft flush ruleset" in text
    assert "  and 2 more; summary.json has them all" in text
    page = night_to_html(made)
    assert page.count('class="cause"') == CAUSES
    assert "lab exec repro-overlay worker2 -- nft list ruleset" in page
    causes = summary_json(made)["scenarios"][0]["causes"]
    assert len(causes) == CAUSES + 2
    assert causes[0]["cells"] == first.cells
    assert causes[0]["repeat"] == first.repeat


def test_an_assertion_that_does_not_hold_is_a_cause_after_those_of_cells():
    places = (("fail", "worker1"), ("pass", "worker2"), ("fail", "worker3"))
    checks = tuple(made_assertion(verdict, place) for verdict, place in places)
    troubled = scenario("overlay", replace(red_run(2), assertions=checks))
    *of_cells, unmet = troubled.causes
    assert unmet.where == ("assertion forwarding/worker3: fail: exit 1 instead of 0",)
    assert unmet.sentence == "assertion forwarding/worker1: fail: exit 1 instead of 0"
    assert all(cause.cells for cause in of_cells)
    assert "lab test overlay -k assertions/forwarding/worker1" in step_summary(night(troubled), "")
    assert "assertion forwarding/worker1" in error_annotations(night(troubled))[-1]


def test_cells_without_a_cause_have_the_command_that_repeats_one():
    made = night(scenario("overlay", made_run("dead-node")))
    (cause,) = made.scenarios[0].causes
    assert [label for label, _ in cause.commands] == ["repeat"]
    assert cause.sentence.startswith("none found on its path: ")
