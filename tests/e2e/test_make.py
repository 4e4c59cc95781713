"""The face: what `make` does before and around `lab`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = """#!/bin/sh
# A Python that knows as much of venv and pip as tools/setup asks of it.
case "$*" in
*"-m venv"*)
    mkdir -p .venv/bin && cp "$0" .venv/bin/python
    [ -e interrupt ] && kill -9 $PPID && exit 1
    touch .venv/pip ;;
*"-m pip"*)
    [ -e .venv/pip ] || { echo "No module named pip" >&2; exit 1; }
    printf '#!/bin/sh\\nprintf "%%s|" "$@"; echo\\n' >.venv/bin/lab && chmod +x .venv/bin/lab ;;
esac
"""
"""The `lab` that it installs prints its words."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with a stub for Python, and so without any download."""
    for name in ("Makefile", "pyproject.toml", "requirements.txt", "tools/setup"):
        target = tmp_path / "clone" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    stub = tmp_path / "python"
    stub.write_text(PYTHON)
    stub.chmod(0o755)
    return tmp_path / "clone"


def call(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=clone,
        env={**os.environ, "PYTHON": str(clone.parent / "python"), "SETUP": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_interrupted_set_up_is_done_anew_by_the_next_one(clone: Path) -> None:
    (clone / "interrupt").touch()
    assert call(clone, "tools/setup", "run").returncode == -signal.SIGKILL
    (clone / "interrupt").unlink()
    done = call(clone, "tools/setup", "run")
    assert done.returncode == 0, done.stderr
    again = call(clone, "tools/setup", "run")
    assert (again.returncode, again.stderr) == (0, "")


@pytest.mark.parametrize("path", ["mine.yaml", "a dir/my file.yaml"])
def test_lab_of_a_scenario_file_is_tested_by_the_name_in_the_file(clone: Path, path: str) -> None:
    (clone / path).parent.mkdir(exist_ok=True)
    (clone / path).write_text('# mine\nname: "my-lab"  # of my own\nsummary: name\n')
    done = call(clone, "make", "--silent", "lab-up", f"SCENARIO={path}")
    assert done.stdout == f"up|{path}|\ntest|my-lab|\n", done.stderr
    done = call(clone, "make", "--silent", "lab-down", f"SCENARIO={path}")
    assert done.stdout == "down|my-lab|\n"


def test_shipped_scenario_and_a_name_of_ones_own(clone: Path) -> None:
    assert call(clone, "make", "--silent", "lab-up").stdout == "up|overlay|\ntest|overlay|\n"
    done = call(clone, "make", "--silent", "lab-up", "NAME=x", "TEST=0", "ONLY=linux")
    assert done.stdout == "up|overlay|--name|x|--only|linux|\n"


def test_night_of_all_scenarios_or_of_some(clone: Path) -> None:
    assert call(clone, "make", "--silent", "nightly").stdout == "nightly|\n"
    some = ("SCENARIOS=a b.yaml", "PROVIDER=netns", "OUTPUT=a dir", "ONLY=linux")
    done = call(clone, "make", "--silent", "nightly", *some)
    assert done.stdout == ("nightly|a|b.yaml|--provider|netns|--only|linux|--output|a dir|\n"), (
        done.stderr
    )
