"""A night's outcomes, its exit code, its JUnit file and its index."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from lxml import html
from unit.reports.made_runs import made_run

from lab.matrix.verdict import RunResult
from lab.reports.difference import difference
from lab.reports.night import (
    CHANGES,
    Done,
    Night,
    ScenarioNight,
    ScenarioOutcome,
    failed_tests,
    judge,
    junit_of_night,
    night_to_html,
    plain_lines,
    summary_json,
)
from lab.state.provenance import Provenance

HEALTHY, TROUBLED = made_run("healthy"), made_run("dead-node")
EMPTY = replace(HEALTHY, results=())
JUNIT = (
    '<testsuites><testsuite name="pytest" hostname="secret" tests="2" failures="1" errors="0"'
    ' skipped="0" time="1"><testcase classname="nightly-overlay.pod-pod" name="a"/>'
    '<testcase classname="nightly-overlay.pod-pod" name="b"><failure message="m"/></testcase>'
    "</testsuite></testsuites>"
)


def stages(**codes: int | None) -> tuple[Done, ...]:
    return tuple(
        Done(stage, code, 1.0, f"{stage}.log", f"{stage} said")  # type: ignore[arg-type]
        for stage, code in codes.items()
    )


CASES: dict[str, tuple[dict[str, int | None], RunResult | None, ScenarioOutcome, str]] = {
    "all well": ({"up": 0, "test": 0, "down": 0}, HEALTHY, "green", ""),
    "cells fail": ({"up": 0, "test": 1, "gather": 0, "down": 0}, TROUBLED, "red", "cells"),
    "red though the test ended well": ({"up": 0, "test": 0, "down": 0}, TROUBLED, "red", "cells"),
    "preflight refuses": ({"up": 4}, None, "refused", "up said"),
    "the file is wrong": ({"up": 2}, None, "refused", "up said"),
    "up breaks": ({"up": 3, "gather": 0, "down": 0}, None, "broken", "up said"),
    "up is killed": ({"up": -9, "down": 0}, None, "broken", "up said"),
    "up takes too long": ({"up": None, "down": 0}, None, "broken", "'up' was not done in time"),
    "test takes too long": ({"up": 0, "test": None, "down": 0}, None, "broken", "'test' was not"),
    "the lab dies": ({"up": 0, "test": 3, "down": 0}, None, "broken", "test said"),
    "no result is left": ({"up": 0, "test": 0, "down": 0}, None, "broken", "test said"),
    "no cells": ({"up": 0, "test": 0, "down": 0}, EMPTY, "broken", "no cells"),
    "down fails": ({"up": 0, "test": 0, "down": 3}, HEALTHY, "broken", "down said"),
    "no down": ({"up": 0, "test": 0}, HEALTHY, "broken", "was not started"),
    "the sweep takes too long": ({"sweep": None}, None, "broken", "'sweep' was not"),
    "nothing begun": ({}, None, "broken", "was not started"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_became_of_a_scenario(case):
    codes, run, outcome, words = CASES[case]
    found = judge(stages(**codes), run, stopped=False, left=False)
    assert found[0] == outcome
    assert words in found[1]


def test_one_that_is_left_behind_is_broken_whatever_else_it_is():
    well = stages(up=0, test=0, down=0)
    outcome, words = judge(well, HEALTHY, stopped=True, left=True)
    assert (outcome, words) == ("broken", "the lab could not be taken down: down said")


def test_one_that_the_end_of_the_night_met_is_stopped():
    assert judge(stages(up=None, down=0), None, stopped=True, left=False)[0] == "stopped"


def scenario(name: str, outcome: ScenarioOutcome, run: RunResult | None = None) -> ScenarioNight:
    done = stages(up=0, test=0, down=0)
    return ScenarioNight(name, f"nightly-{name}", "netns", outcome, "why", 3.0, done, run)


def night(*scenarios: ScenarioNight) -> Night:
    return Night("2026-11-21", "netns", "2026-11-21T02:00:00+00:00", 60.0, scenarios)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        (("green", "green"), 0),
        (("green", "red"), 1),
        (("red", "refused"), 3),
        (("green", "broken"), 3),
        (("green", "stopped"), 3),
    ],
)
def test_exit_code_of_a_night(outcomes, code):
    made = night(*(scenario(f"s{number}", outcome) for number, outcome in enumerate(outcomes)))
    assert made.exit_code == code
    assert summary_json(made)["exit_code"] == code
    assert summary_json(made)["green"] == (code == 0)


def test_a_night_with_emulated_nodes_is_marked():
    emulated = replace(HEALTHY, emulated_nodes=("win1",))
    badge = "Windows nodes are emulated"
    assert badge in night_to_html(night(scenario("overlay", "green", emulated), unfit("ovn")))
    real = replace(HEALTHY, emulated_nodes=())
    assert badge not in night_to_html(
        replace(night(scenario("overlay", "green", real)), provider="nspawn")
    )


def test_a_night_says_what_nodes_of_a_scenario_are() -> None:
    words = "Windows nodes are programs on Wine"
    on_wine = replace(HEALTHY, disclaimer=words)
    made = night(*(scenario(name, "green", on_wine) for name in ("a", "b")), scenario("c", "green"))
    assert plain_lines(made)[1] == f"a, b: {words}"
    assert f"a, b: {words}" in html.fromstring(night_to_html(made)).text_content()
    assert [each["disclaimer"] for each in summary_json(made)["scenarios"]] == [words, words, ""]
    assert words not in night_to_html(night(scenario("c", "green", HEALTHY)))


def test_a_night_says_what_made_it_and_whether_the_tool_changed() -> None:
    old = Provenance("0.1.0", "1f2e3d4c5b6a", "3.11.2", "Linux 6.1.0", "x86_64")
    new = replace(old, commit="99aa88bb77cc")
    before, after = (replace(HEALTHY, provenance=made_by) for made_by in (old, new))
    changed = difference(before, after)
    made = replace(
        night(scenario("a", "green", after), scenario("b", "green", after)),
        before={"a": "yesterday", "b": "yesterday"},
        differences={"a": changed, "b": changed},
        provenance=new,
    )
    told = "versions of the tool differ: hybridlab 0.1.0, commit 1f2e3d4c5b6a, now hybridlab"
    assert [told in line for line in plain_lines(made)].count(True) == 1
    page = html.fromstring(night_to_html(made)).text_content()
    assert page.count(told) == 1
    assert "Made by hybridlab 0.1.0, commit 99aa88bb77cc on Python 3.11.2" in page
    assert summary_json(made)["provenance"]["kernel"] == "Linux 6.1.0"
    same = difference(before, before)
    assert "differ:" not in "".join(plain_lines(replace(made, differences={"a": same, "b": same})))


def unfit(name: str) -> ScenarioNight:
    return replace(scenario(name, "refused"), stages=())


def test_what_the_provider_can_never_have_is_named_and_fails_nothing():
    made = night(scenario("overlay", "green"), unfit("calico-bgp"))
    assert (made.exit_code, made.green) == (0, True)
    assert plain_lines(made)[0] == (
        "Night 2026-11-21 on netns: 1 of 2 scenarios as expected; cannot run on netns: calico-bgp."
    )
    assert any(line.startswith("calico-bgp  refused") for line in plain_lines(made))
    case = (
        ET.fromstring(junit_of_night(made.scenarios, {})).findall("testsuite")[1].find("testcase")
    )
    assert case is not None
    assert [child.tag for child in case] == ["skipped"]
    assert night(scenario("overlay", "red", TROUBLED), unfit("ovn")).exit_code == 1
    assert "1 of 2 scenarios is not as expected" in night_to_html(
        night(scenario("overlay", "red", TROUBLED), unfit("ovn"))
    )
    alone = night(unfit("calico-bgp"))
    assert (alone.exit_code, alone.green) == (3, False)
    assert plain_lines(alone)[0].endswith("No scenario can run on netns.")


def test_every_suite_of_the_junit_file_names_the_provider_and_what_broke_is_an_error():
    scenarios = (scenario("overlay", "red", TROUBLED), scenario("hard-way", "refused"))
    root = ET.fromstring(junit_of_night(scenarios, {"overlay": JUNIT}))
    suites = root.findall("testsuite")
    assert [suite.get("name") for suite in suites] == [
        "hybridlab.netns.overlay",
        "hybridlab.netns.hard-way",
    ]
    assert [len(list(suite.iter("testcase"))) for suite in suites] == [2, 1]
    assert {key: root.get(key) for key in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    error = suites[1].find("testcase/error")
    assert error is not None
    assert error.get("message") == "refused: why"
    assert "secret" not in junit_of_night(scenarios, {"overlay": JUNIT})
    assert suites[0].findall("testcase")[0].get("classname") == "hybridlab.netns.overlay.pod-pod"


@pytest.mark.parametrize("damaged", ["", JUNIT[: len(JUNIT) // 2]], ids=["empty", "half"])
def test_a_damaged_junit_file_of_a_run_is_an_error_of_its_own(damaged):
    root = ET.fromstring(
        junit_of_night((scenario("overlay", "red", TROUBLED),), {"overlay": damaged})
    )
    assert {key: root.get(key) for key in ("tests", "errors")} == {"tests": "1", "errors": "1"}
    error = root.find("testsuite/testcase[@name='junit']/error")
    assert error is not None
    assert error.get("message", "").startswith("the run's JUnit file is damaged: ")
    (cause,) = failed_tests(damaged, "overlay")
    assert cause.sentence.startswith("own tests are unknown: the run's JUnit file is damaged: ")


def test_a_broken_lab_with_a_result_keeps_its_cells_and_has_one_error_more():
    root = ET.fromstring(
        junit_of_night((scenario("overlay", "broken", HEALTHY),), {"overlay": JUNIT})
    )
    assert root.get("tests") == "3"
    assert root.get("errors") == "1"


HOSTILE = "</style><script>alert(1)</script>"


def test_index_links_every_report_and_escapes_every_text():
    red = replace(
        scenario("overlay", "red", TROUBLED), report="overlay/report.html", detail=HOSTILE
    )
    refused = scenario("hard-way", "refused")
    made = replace(
        night(red, refused),
        before={"overlay": "2026-11-20"},
        differences={"overlay": difference(HEALTHY, TROUBLED)},
    )
    page = html.fromstring(night_to_html(made))
    assert page.xpath("//script") == []
    assert HOSTILE in page.get_element_by_id("overlay").text_content()
    assert "overlay/report.html" in page.xpath("//a/@href")
    assert "up.log" in page.xpath("//a/@href")
    assert len(page.xpath("//section[@id='changes']//tbody/tr")) == CHANGES
    assert "2 of 2 scenarios are not as expected" in page.text_content()


def test_summary_lists_each_scenario_and_its_changes():
    made = night(
        scenario("overlay", "red", TROUBLED),
        scenario("hard-way", "refused"),
        scenario("services", "green", HEALTHY),
    )
    lines = plain_lines(made)
    assert lines[0].startswith("Night 2026-11-21 on netns: 2 of 3 scenarios are not")
    none = "Not compared, as no earlier night has a complete run"
    assert lines[-1] == f"{none}: overlay, services."
    same = {"overlay": difference(TROUBLED, TROUBLED)}
    compared = replace(made, before={"overlay": "2026-11-20"}, differences=same)
    assert plain_lines(compared)[-3:] == [
        "Compared with '2026-11-20' (overlay):",
        "  no cell differs",
        f"{none}: services.",
    ]
    page = html.fromstring(night_to_html(compared))
    assert f"{none}: services." in page.text_content()
    stopped = night(replace(scenario("overlay", "stopped"), stages=stages(up=0, test=None)))
    assert plain_lines(stopped)[-1].startswith("Nothing to compare")


def test_each_scenario_is_compared_with_its_own_night():
    made = replace(
        night(scenario("a", "red", TROUBLED), scenario("b", "red", TROUBLED)),
        before={"a": "first", "b": "second"},
        differences=dict.fromkeys("ab", difference(HEALTHY, TROUBLED)),
    )
    text = "\n".join(plain_lines(made))
    assert text.index("Compared with 'first' (a):\na: ") < text.index(
        "Compared with 'second' (b):\nb: "
    )
    assert [scenario["before"] for scenario in summary_json(made)["scenarios"]] == [
        "first",
        "second",
    ]
