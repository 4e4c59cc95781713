"""``lab run``: a lab for one test, and nothing of it afterwards but its report."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from lab_command import ENOUGH_SECONDS, assert_nothing_is_left

pytestmark = pytest.mark.slow

RED = ("run", "overlay", "--windows-rule-off", "WIN-NODEPORT-SELF", "-k", "nodeport and win1")


def test_a_green_run_leaves_its_report_and_no_lab(lab):
    done = lab.run("run", "overlay", "-k", "pod-pod/master-p1/worker1-p1")
    assert "4 pass" in done.stdout
    assert done.stderr.endswith("lab 'overlay' is down\n")
    assert_nothing_is_left(lab.state)
    report = Path(lab.run("report", "overlay").stdout.strip())
    assert "pod-pod" in report.read_text(encoding="utf-8")


def test_a_red_run_is_exit_one_and_keeps_its_lab_if_asked(lab):
    gone = lab.run(*RED, code=1).stdout
    assert_nothing_is_left(lab.state)
    assert "lab explain" not in gone
    assert "repeat:   lab repro overlay nodeport/" in gone
    kept = lab.run(*RED, "--keep", code=1).stdout
    assert "explain:  lab explain overlay" in kept
    assert "repeat:   lab test overlay -k nodeport/" in kept
    lab.run("test", "overlay", "-k", "pod-pod/master-p1/worker1-p1")
    again = lab.run("run", "overlay", code=2).stderr
    assert "lab 'overlay' already exists" in again
    assert "lab 'overlay' is up" in lab.run("status", "overlay").stdout


def test_standard_output_has_the_result_alone(lab):
    done = lab.run("run", "overlay", "-k", "pod-pod/master-p1/worker1-p1", "--json")
    assert len(json.loads(done.stdout)["cells"]) == 4
    assert (f"{done.stdout}{done.stderr}").count("netns: ") == 2  # in the story, in the result


def test_bisecting_skips_what_cannot_be_judged(lab):
    lab.run(*RED, "--bisect", code=1)
    lab.run("run", "overlay", "--bisect", "-k", "no-such-cell", code=125)
    lab.run("run", "no-such-scenario", "--bisect", code=125)
    assert_nothing_is_left(lab.state)


def test_a_run_that_is_stopped_takes_its_lab_down(lab):
    process = lab.start("run", "overlay", "--full")
    assert process.stderr is not None
    for line in process.stderr:
        if "step 5 of 5" in line:
            process.send_signal(signal.SIGTERM)
            break
    process.communicate(timeout=ENOUGH_SECONDS)
    assert process.returncode == 143
    assert_nothing_is_left(lab.state)
