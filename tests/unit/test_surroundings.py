"""What the tests run under: neither how they were started nor what else goes on may show."""

import os
import signal
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from processes import run_program

HERE = Path(__file__).parent
IGNORING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_ctrl_c_reaches_tests_that_were_started_with_it_ignored():
    told = HERE / "lifecycle" / "test_lifecycle_up.py"
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = run_program(
        [sys.executable, "-c", IGNORING, *pytest_, str(told), "-k", "a_stopped_up"], check=False
    )
    assert "2 passed" in done.stdout, done.stdout


def test_every_installed_package_takes_the_python_of_debian_12():
    needs = {
        distribution.name: distribution.metadata.get_all("Requires-Python", [""])[0]
        for distribution in distributions()
    }
    assert "pytest" in needs
    refusing = {name: need for name, need in needs.items() if "3.11.2" not in SpecifierSet(need)}
    assert refusing == {}


def test_what_a_test_starts_hears_ctrl_c():
    done = run_program(["sh", "-c", "kill -INT $$; exit 7"], check=False)
    assert done.returncode == -signal.SIGINT


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_what_others_mount_does_not_count_and_what_a_test_mounts_does(mounts, tmp_path):
    before = mounts()
    there = ["nsenter", f"--target={os.getppid()}", "--mount", "--"]
    for where, seen in ((there, 0), ([], 1)):
        done = run_program([*where, "mount", "-t", "tmpfs", "none", tmp_path], check=False)
        if done.returncode:
            pytest.skip("root may not mount here")
        try:
            assert len(list((mounts() - before).elements())) == seen
        finally:
            run_program([*where, "umount", tmp_path])
    assert not mounts() - before
