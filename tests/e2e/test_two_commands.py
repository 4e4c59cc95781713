"""The main road: up, test, status, down, with real packets."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from lab_command import Lab, assert_nothing_is_left, processes_with

from lab.scenario.loader import shipped


@pytest.fixture(scope="module")
def overlay(tmp_path_factory):
    """A lab 'overlay' that is up, for tests that only look at it."""
    used = Lab(tmp_path_factory.mktemp("overlay") / "state")
    used.run("up", "overlay")
    yield used
    used.run("down", "overlay")
    assert_nothing_is_left(used.state)


@pytest.mark.parametrize("scenario", shipped())
def test_scenario_comes_up_and_every_cell_is_as_expected(lab, scenario):
    """Cells may be flaky while the machine is busy with other tests, but not four times."""
    lab.run("up", scenario)
    result = run_cells(lab, scenario)
    for _ in range(3):
        if result["counts"]["verdicts"]["flaky"]:
            result = run_cells(lab, scenario)
    expected = {"pass", "known-limit"}
    assert [cell for cell in result["cells"] if cell["verdict"] not in expected] == []
    verdicts = result["counts"]["verdicts"]
    assert verdicts["pass"] > 500
    assert verdicts["known-limit"] > 0
    assert sum(verdicts.values()) == len(result["cells"])
    lab.run("down", scenario)
    assert_nothing_is_left(lab.state)


def run_cells(lab: Lab, scenario: str) -> dict[str, Any]:
    """The result of a run; flaky cells, and only those, make it exit with 1."""
    done = lab.run("test", scenario, "--json", code=None)
    result: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if result["counts"]["verdicts"]["flaky"] else 0), done.stderr
    return result


def test_first_line_names_the_provider_and_what_is_emulated(lab):
    for words in (("up", "overlay"), ("status", "overlay"), ("down", "overlay")):
        first = lab.run(*words).stderr.splitlines()[0]
        assert first.startswith("netns: ")
        assert "win1" in first
        assert "emulated" in first


def test_second_up_changes_nothing_and_says_so(overlay):
    before = processes_with(str(overlay.state))
    again = overlay.run("up", "overlay")
    assert "nothing has changed" in again.stderr
    assert processes_with(str(overlay.state)) == before


def test_run_leaves_its_reports_and_nothing_where_it_is_called(overlay, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    overlay.run("test", "overlay", "-k", "win1 and tcp and pod-service")
    assert list(tmp_path.iterdir()) == []
    run = next((overlay.state / "labs/overlay/runs").iterdir())
    result = json.loads(overlay.run("report", "overlay", "--json").stdout)
    suite = ET.parse(run / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    cases = suite.findall("testcase")
    assert len(cases) == len(result["cells"]) > 0
    properties = {p.get("name") for p in cases[0].iter("property")}
    assert {"latency_ms", "repeat"} <= properties
    assert "<svg" in (run / "report.html").read_text()


def test_pytest_itself_runs_the_suite(overlay, tmp_path):
    words = ("--lab", "overlay", "--pyargs", "lab.suites", "-m", "hairpin", "-q")
    pytest_here = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
    done = overlay.call([*pytest_here, *words], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "40 passed" in done.stdout


def test_exec_runs_in_the_pod_with_its_exit_code(overlay):
    seen = overlay.run("exec", "overlay", "worker1-p1", "--", "ip", "-br", "-4", "address")
    assert "10.244.1.4/24" in seen.stdout
    overlay.run("exec", "overlay", "worker1-p1", "--", "sh", "-c", "exit 7", code=7)
    answer = overlay.run(
        *("exec", "overlay", "win1-p1", "--"),
        *("curl", "-s", "--max-time", "5", "http://to-worker1-p1.default.svc.cluster.local/"),
    )
    assert json.loads(answer.stdout)["endpoint"] == "worker1-p1"


def test_reading_commands_answer_in_json(overlay):
    for words in (("list",), ("status", "overlay"), ("plan", "overlay"), ("show", "overlay")):
        assert json.loads(overlay.run(*words, "--json").stdout)
