"""A night on namespaces: what it leaves, what it refuses, and how it ends."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from lab_command import ENOUGH_SECONDS, Lab, assert_nothing_is_left

from lab._deadline import Deadline

pytestmark = pytest.mark.slow

EMBEDDED = ("nightly", "--provider", "netns")
UNEXPECTED = """
exceptions:
  - when: {families: [hairpin], source: "win*"}
    fails: timeout
    reason: we say so, and it is not so
"""


ASSERTIONS = """
assertions:
  - name: no-forwarding
    node: worker*
    command: [cat, /proc/sys/net/ipv4/ip_forward]
    matches: ^0$
"""


def scenario_that_fails(lab: Lab, tmp_path: Path) -> Path:
    """A scenario called overlay too, some cells of which pass and are not expected to."""
    shipped = Path(__file__).parents[2] / "scenarios" / "overlay.yaml"
    made = tmp_path / "overlay.yaml"
    made.write_text(shipped.read_text() + UNEXPECTED)
    lab.run("validate", str(made))
    return made


def test_night_without_hypervisors_is_refused_and_leaves_nothing(lab):
    done = lab.run("nightly", code=4)
    assert "lab nightly --provider netns" in done.stderr
    assert not list(lab.state.glob("nightly/*"))


def test_second_night_lists_its_new_failures_cell_by_cell(lab, tmp_path):
    first, second = tmp_path / "nights" / "first", tmp_path / "nights" / "second"
    lab.run(*EMBEDDED, "overlay", "--output", str(first))
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: broken\n")
    words = (str(scenario_that_fails(lab, tmp_path)), str(broken), "--jobs", "2")
    night = json.loads(lab.run(*EMBEDDED, *words, "--output", str(second), "--json", code=3).stdout)
    assert {scenario["scenario"]: scenario["outcome"] for scenario in night["scenarios"]} == {
        "overlay": "red",
        "broken": "refused",
    }
    assert night["before"] == "first"
    changed = json.loads((second / "difference.json").read_text())["scenarios"]["overlay"]
    assert len(changed["failing"]) == 16
    assert {cell["after"] for cell in changed["failing"]} == {"unexpected-pass"}
    suites = ET.parse(second / "junit.xml").getroot().findall("testsuite")
    assert [suite.get("name") for suite in suites] == [
        "hybridlab.netns.overlay",
        "hybridlab.netns.broken",
    ]
    assert len(suites[0].findall("testcase")) == 2300
    for name in ("index.html", "summary.json", "overlay/report.html", "broken/up.log"):
        assert (second / name).stat().st_size > 0, name
    assert_nothing_is_left(lab.state)


def test_an_own_test_and_an_assertion_that_fail_are_causes_of_a_red_night(lab, tmp_path):
    shipped = (Path(__file__).parents[2] / "scenarios" / "overlay.yaml").read_text()
    scenario = tmp_path / "mine.yaml"
    scenario.write_text(f"{shipped.replace('name: overlay', 'name: mine', 1)}{ASSERTIONS}")
    own = tmp_path / "test_own.py"
    own.write_text("def test_mtu(lab):\n    assert 1500 == 1450\n")
    night = tmp_path / "night"
    words = (str(scenario), "--only", "linux", "--tests", str(own), "--output", str(night))
    chosen = ("-k", "assertions or test_mtu or hairpin")
    told = lab.run(*EMBEDDED, *words, *chosen, "--json", code=1).stdout
    (made,) = json.loads(told)["scenarios"]
    unmet, test = made["causes"]
    sentence = "assertion no-forwarding/{}: fail: no match of '^0$' in the output: 1"
    assert unmet["sentence"] == sentence.format("worker1")
    assert unmet["where"] == [sentence.format("worker2")]
    assert test["sentence"] == "own test test_own::test_mtu: assert 1500 == 1450"
    lines = scenario.read_text().splitlines()
    assert (unmet["file"], lines[unmet["line"] - 1].split("name: ")[1][:13]) == (
        "",
        "no-forwarding",
    )
    assert (Path(test["file"]).resolve(), test["line"]) == (own, 1)
    again = lab.run(*unmet["repeat"].split()[1:], code=1)
    assert "it reproduces: it is 'fail' here as it was then" in again.stdout
    lab.run("down", "repro-mine")
    assert_nothing_is_left(lab.state)


def test_scenario_that_takes_too_long_is_ended_and_taken_down(lab):
    done = lab.run(*EMBEDDED, "overlay", "--deadline", "0.9s", code=3)
    assert "was not done in time" in done.stdout
    assert_nothing_is_left(lab.state)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_night_takes_its_labs_down_and_still_reports_its_results(lab, number, code):
    process = lab.start(*EMBEDDED, "overlay", "hard-way")
    Deadline(30).wait(
        "the first test to begin", lambda: list(lab.state.glob("nightly/*/*/test.log"))
    )
    process.send_signal(number)
    said, story = process.communicate(timeout=ENOUGH_SECONDS)
    assert process.returncode == code, story
    assert "Traceback" not in story
    assert "stopped" in said
    assert len(list(lab.state.glob("nightly/*/index.html"))) == 1
    assert_nothing_is_left(lab.state)


def test_two_nights_at_once_do_not_meet(lab):
    process = lab.start(*EMBEDDED, "overlay")
    Deadline(30).wait("the night to begin", lambda: list(lab.state.glob("nightly/*/*")))
    process.send_signal(signal.SIGSTOP)  # else it may end before the second one begins
    try:
        assert "still holds it" in lab.run(*EMBEDDED, "overlay", code=3).stderr
    finally:
        process.send_signal(signal.SIGCONT)
    process.communicate(timeout=ENOUGH_SECONDS)
    assert process.returncode == 0


def test_cell_that_failed_is_reproduced_in_a_smaller_lab_and_one_that_passed_is_not(lab, tmp_path):
    night = tmp_path / "night"
    lab.run(*EMBEDDED, str(scenario_that_fails(lab, tmp_path)), "--output", str(night), code=1)
    result = str(night / "overlay" / "result.json")
    told = (night / "difference.txt").read_text() + (night / "junit.xml").read_text()
    assert f"lab repro {night / 'overlay'} hairpin/win1-p1/to-win1-p1/tcp-small" in told
    again = lab.run("repro", result, "hairpin/win1-p1/to-win1-p1/tcp-small", code=1)
    assert "2 nodes, 2 pods" in again.stdout
    assert "it reproduces: it is 'unexpected-pass' here as it was then" in again.stdout
    assert "explain:" not in told + (night / "overlay" / "test.log").read_text()
    explain = "lab explain repro-overlay win1-p1 to-win1-p1 --protocol tcp --size small"
    assert f"'{explain}' says why" in again.stderr
    lab.run(*explain.split()[1:], code=1)
    lab.run("down", "repro-overlay")
    well = lab.run("repro", result, "nodeport/client/win1:to-master-p1/udp-large", code=0)
    assert "there was nothing to reproduce" in well.stdout
    assert "no such cell" in lab.run("repro", result, "pod-pod/a/b/tcp-small", code=2).stderr
    assert_nothing_is_left(lab.state)


def test_run_without_a_windows_rule_is_reproduced_without_it(lab):
    lab.run("up", "overlay", "--windows-rule-off", "WIN-NODEPORT-SELF")
    run = json.loads(lab.run("test", "overlay", "-m", "nodeport", "--json", code=1).stdout)
    cell = next(cell["id"] for cell in run["cells"] if cell["verdict"] == "unexpected-pass")
    lab.run("down", "overlay")
    again = lab.run("repro", run["run"], cell, code=1)
    assert "it reproduces: it is 'unexpected-pass'" in again.stdout
