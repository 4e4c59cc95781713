"""The example of a user's own tests, as its page has them run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from lab_command import ENOUGH_SECONDS, Lab

EXAMPLE = Path(__file__).parents[2] / "examples/own-tests"


def run_pytest(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    pytest_here = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "--lab")
    return lab.call([*pytest_here, *words], EXAMPLE)


@pytest.mark.slow
def test_own_tests_are_green_red_with_a_fault_and_run_beside_the_matrix(lab):
    lab.run("up", "overlay")
    done = run_pytest(lab, "overlay")
    assert done.returncode == 0, done.stdout
    assert "6 passed, 1 skipped" in done.stdout
    assert "lab 'overlay' has no Kubernetes" in done.stdout
    lab.run("fault", "overlay", "ip-forward-off", "--node", "worker2")
    done = run_pytest(lab, "overlay")
    assert done.returncode == 1, done.stdout
    assert "3 failed, 3 passed, 1 skipped" in done.stdout
    assert "AssertionError: worker2" in done.stdout
    lab.run("heal", "overlay")
    words = ("--sample", "os-pairs", "-k", "test_network or hairpin")
    beside = lab.run("test", "overlay", str(EXAMPLE / "test_network.py"), *words)
    assert "30 passed, 1 skipped" in beside.stdout
    assert "24 of 2,300 cells: 24 pass" in beside.stdout


MINE = """
def test_right(probe):
    assert probe("worker1-p1", "worker2-p1").verdict == "pass"

def test_typo(probe):
    probe("worker1-p1", "worker2-p7")
"""


def test_a_mistyped_name_is_a_sentence_and_failures_are_in_the_last_line(lab, tmp_path):
    lab.run("up", "overlay", "--only", "linux")
    mine = tmp_path / "test_mine.py"
    mine.write_text(MINE)
    done = run_pytest(lab, "overlay", str(mine), "-n", "2", "-q")
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "probing 'worker2-p7' from 'worker1-p1' in lab 'overlay': " in done.stdout
    assert "did you mean" in done.stdout
    assert len(done.stdout.splitlines()) < 20
    words = ("test", "overlay", str(mine), "-k", "test_mine or master-p1/worker1-p1/tcp-small")
    junit = tmp_path / "cells.xml"
    told = lab.call(lab.command(*words, f"--junitxml={junit}"), tmp_path).stdout
    assert "\ntest_mine.py .F " in told
    assert 'classname="test_mine" name="test_typo"' in junit.read_text()
    last = told.splitlines()[-1]
    assert last == "1 of 2 own tests failed: test_mine.py::test_typo"
    done = lab.run(*words, "--json", code=1)
    assert {cell["verdict"] for cell in json.loads(done.stdout)["cells"]} == {"pass"}
    assert "own tests failed" in done.stderr


def test_the_assertions_of_the_page_hold_until_a_node_stops_to_forward(lab, tmp_path):
    page = (EXAMPLE.parents[1] / "docs/how-to/own-tests.md").read_text()
    assertions = page.partition("```yaml\n")[2].partition("```")[0]
    mine = tmp_path / "mine.yaml"
    shipped = (EXAMPLE.parents[1] / "scenarios/overlay.yaml").read_text()
    mine.write_text(f"{shipped}\n{assertions}".replace("name: overlay", "name: mine", 1))
    lab.run("up", str(mine), "--only", "linux")
    done = lab.run("test", "mine", "-k", "assertions")
    assert "; 5 of 5 assertions passed; " in done.stdout
    lab.run("fault", "mine", "ip-forward-off", "--node", "worker2")
    done = lab.run("test", "mine", "-k", "assertions", code=1)
    line = "* assertion forwarding/worker2: fail: no match of '^1$' in the output: 0"
    assert line in done.stdout
    assert "4 of 5 assertions passed" in done.stdout
    repeat = "lab test mine -k assertions/forwarding/worker2"
    assert f"repeat:   {repeat}" in done.stdout
    assert "0 of 1 assertion passed" in lab.run(*repeat.split()[1:], code=1).stdout


def test_an_editor_debugs_own_tests_by_the_pages_configuration(lab, tmp_path):
    page = (EXAMPLE.parents[1] / "docs/how-to/own-tests.md").read_text()
    text = page.partition('```json title=".vscode/launch.json"\n')[2].partition("```")[0]
    (launch,) = json.loads(text)["configurations"]
    lab.run("up", "overlay", "--only", "linux")
    mine = tmp_path / "test_mine.py"
    mine.write_text(MINE)
    words = [word.replace("${file}", str(mine)) for word in launch["args"]]
    python = [sys.executable, "-m", launch["module"], "-p", "no:cacheprovider", *words]
    assert "1 failed, 1 passed" in lab.call(python).stdout
    done = subprocess.run(
        [*python, "--pdb"],
        input="print('at', 6 * 7)\nquit\n",
        env=lab.environment(),
        capture_output=True,
        text=True,
        timeout=ENOUGH_SECONDS,
        check=False,
    )
    assert "at 42" in done.stdout
    assert f"{mine}(6)test_typo()" in done.stdout, "the debugger stands in the test"


@pytest.mark.parametrize(("name", "code"), [("nowhere", 2), ("../overlay", 2)])
def test_lab_that_there_is_not_ends_own_tests_as_it_ends_lab_test(name, code, lab):
    assert run_pytest(lab, name).returncode == code


ASSERTION = """
assertions:
  - {name: nothing, node: "*", command: ["true"]}
"""


@pytest.mark.slow
def test_a_lab_of_an_earlier_version_of_its_file_is_tested_and_named(lab, tmp_path):
    scenario = tmp_path / "mine.yaml"
    lab.run("new", "mine", "--windows", "0", "-o", str(scenario))
    chosen = ("test", str(scenario), "-k", "hairpin or assertions")
    lab.run("up", str(scenario))
    assert "has changed" not in lab.run(*chosen).stderr
    scenario.write_text(f"{scenario.read_text()}{ASSERTION}")
    assert "assertions: 1, tested in 2 places" in lab.run("plan", str(scenario)).stdout
    earlier = lab.run(*chosen)
    assert f"note: '{scenario}' has changed since the lab was brought up" in earlier.stderr
    assert f"'lab up {scenario} " in earlier.stderr
    assert "assertion" not in earlier.stdout
    lab.run("up", str(scenario))
    now = lab.run(*chosen)
    assert "has changed" not in now.stderr
    assert "2 of 2 assertions passed" in now.stdout
