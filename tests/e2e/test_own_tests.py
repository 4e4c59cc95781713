"""The example of a user's own tests, as its page has them run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lab_command import Lab

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


@pytest.mark.parametrize(("name", "code"), [("nowhere", 2), ("../overlay", 2)])
def test_lab_that_there_is_not_ends_own_tests_as_it_ends_lab_test(name, code, lab):
    assert run_pytest(lab, name).returncode == code
