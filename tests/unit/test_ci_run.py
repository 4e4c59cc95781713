"""What continuous integration left out is the last that it says, however it ends."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / ".ci" / "run"
WITHOUT_BUNDLE = "NOT RUN: tests/api and three real clusters, because there is no bundle"


def ci(directory: Path, failing: str = "") -> subprocess.CompletedProcess[str]:
    """Run it with programs that do nothing; there is no bundle, and ``make FAILING`` fails."""
    programs = {
        ".venv/bin/python": 'case "$1" in tests/bundle/make.py | tools/audit.py) exit 3 ;; esac',
        "tools/hypervisor": "",
        "tools/setup": "",
        "bin/make": f'echo "made $1"; [ "$1" != "{failing}" ]',
    }
    for name, script in programs.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
    (directory / ".ci").mkdir()
    shutil.copy(RUN, directory / ".ci" / "run")
    return subprocess.run(
        ["bash", directory / ".ci" / "run"],
        env=os.environ | {"PATH": f"{directory / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("failing", ["", "test-slow"])
def test_what_did_not_run_is_in_the_last_lines(failing, tmp_path):
    done = ci(tmp_path, failing)
    assert bool(done.returncode) == bool(failing), done.stderr
    lines = done.stdout.splitlines()
    ran = [place for place, line in enumerate(lines) if line.startswith("made ")]
    left_out = [place for place, line in enumerate(lines) if line.startswith("NOT RUN: ")]
    assert min(left_out) > max(ran)
    assert left_out[-1] == len(lines) - 1
    assert WITHOUT_BUNDLE in lines
    for wine in ("test-wine", "test-wine-topologies"):
        not_made = f"NOT RUN: make {wine}, whose bundle is not made yet"
        assert (not_made in lines) == (not failing)  # it comes after what fails
    assert "NOT RUN: an audit of the locked packages" in lines
