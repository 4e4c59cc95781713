"""The main road: up, test, status, down, with real packets."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from lab_command import Lab, assert_nothing_is_left, processes_with

from lab.scenario.loader import find, shipped


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


def test_up_test_and_report_name_emulated_nodes_once_and_others_do_not(lab):
    def count(*words: str) -> int:
        done = lab.run(*words)
        lines = (*done.stdout.splitlines(), *done.stderr.splitlines())
        return sum("netns" in line and "win1" in line and "emulated" in line for line in lines)

    text = "pod-pod/master-p1/worker1-p1/tcp-small"
    assert count("up", "overlay") == count("test", "overlay", "-k", text) == 1
    assert count("report", "overlay") == 1
    others = ("status", "overlay"), ("list",), ("exec", "overlay", "win1", "true")
    assert [count(*words) for words in (*others, ("down", "overlay"))] == [0, 0, 0, 0]


def test_keys_of_real_machines_are_noted_in_a_users_own_file_alone(lab, tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text(find("overlay").read_text().replace("name: overlay", "name: own", 1))
    for scenario, noted in (("overlay", False), (str(own), True)):
        stderr = lab.run("up", scenario, "--dry-run").stderr
        assert ("note: 'image' of nodes" in stderr) == noted


def test_labs_are_taken_down_by_name_and_all_at_once(lab):
    for name in ("a", "b", "c", "d"):
        lab.run("up", "overlay", "--name", name)
    stdout = lab.run("status").stdout
    assert [name for name in "abcd" if f"lab '{name}' is up" in stdout] == ["a", "b", "c", "d"]
    lab.run("down", code=2)
    done = lab.run("down", "a", "no-such-lab", "b", code=2)
    assert done.stdout == "lab 'a' is down\nlab 'b' is down\n"
    assert "no-such-lab" in done.stderr
    removed = json.loads(lab.run("down", "--all", "--json").stdout)
    assert [result["lab"] for result in removed] == ["c", "d"]
    assert json.loads(lab.run("status", "--json").stdout) == []


def test_the_only_lab_need_not_be_named_to_be_tested(lab):
    cell = ("-k", "pod-pod/master-p1/worker1-p1/tcp-small")
    assert "'lab up overlay' makes one" in lab.run("test", *cell, code=2).stderr
    lab.run("up", "overlay")
    assert "1 pass" in lab.run("test", *cell).stdout
    lab.run("up", "overlay", "--name", "other")
    assert "name one of other, overlay" in lab.run("test", *cell, code=2).stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("test", "overlay", "--bogus"), "pytest: unrecognized arguments: --bogus"),
        (("test", "overlay", "-k", "a and ("), "Wrong expression passed to '-k': a and ("),
        (("test", "overlay", "no-such-file"), "not found: no-such-file"),
        (("test", "overlay", "-p", "nothing"), "No module named 'nothing'"),
        (("test", "overlay", "--sample", "some"), "'some' is not one of 'full'"),
        (("up", "no-such-scenario"), "no shipped scenario and no file has this name"),
        (("nothing",), 'there is no command "nothing"'),
    ],
    ids=lambda words: "-".join(words) if isinstance(words, tuple) else "",
)
def test_a_mistake_is_one_sentence_with_one_prefix(overlay, words, sentence):
    done = overlay.run(*words, code=2)
    first, *others = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert sentence in first
    assert [line[:7] for line in others] in ([], ["  try: "])
    assert done.stdout == ""


def test_an_earlier_report_is_named_by_its_age_and_opens_in_a_browser(lab, tmp_path):
    lab.run("up", "overlay")
    for _ in range(2):
        lab.run("test", "overlay", "-k", "pod-pod/master-p1/worker1-p1/tcp-small")
    last, before = (lab.run("report", name).stdout for name in ("overlay", "overlay~1"))
    results = [Path(page.strip()).with_name("result.json") for page in (before, last)]
    assert [json.loads(result.read_text())["number"] for result in results] == [1, 2]
    assert lab.run("report", "overlay", Path(before).parent.name).stdout == before
    assert "only 2 runs" in lab.run("report", "overlay~2", code=2).stderr
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$*" >{tmp_path}/opened\n')
    browser.chmod(0o755)
    words = lab.command("report", "overlay~1", "--open")
    page = Path(before.strip()).as_uri()
    for command, arguments in (
        (f"{browser}", page),
        (f"{browser} --new-tab", f"--new-tab {page}"),
        (f"{browser} %s --new-tab", f"{page} --new-tab"),
        (f"{tmp_path}/none --new-tab:'{browser}:{browser}", page),
    ):
        assert lab.call(words, BROWSER=command).returncode == 0
        assert (tmp_path / "opened").read_text().strip() == arguments
        (tmp_path / "opened").unlink()
    for command in ("false", f"{tmp_path}/none --new-tab"):
        done = lab.call(words, BROWSER=command)
        assert f"$BROWSER is '{command}', which failed or is not there" in done.stderr
        assert done.returncode == 4


def test_second_up_changes_nothing_and_reports_it(overlay):
    before = processes_with(str(overlay.state))
    again = overlay.run("up", "overlay")
    assert "its scenario has not changed" in again.stderr
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
    completed = overlay.run("exec", "overlay", "worker1-p1", "--", "ip", "-br", "-4", "address")
    assert "10.244.1.4/24" in completed.stdout
    overlay.run("exec", "overlay", "worker1-p1", "--", "sh", "-c", "exit 7", code=7)
    answer = overlay.run(
        *("exec", "overlay", "win1-p1", "--"),
        *("curl", "-s", "--max-time", "5", "http://to-worker1-p1.default.svc.cluster.local/"),
    )
    assert json.loads(answer.stdout)["endpoint"] == "worker1-p1"


def test_reading_commands_answer_in_json(overlay):
    for words in (("list",), ("status", "overlay"), ("plan", "overlay"), ("show", "overlay")):
        assert json.loads(overlay.run(*words, "--json").stdout)
