"""The scripts' own tests, run where there is a PowerShell; they parse everywhere."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from powershell_syntax import Script

TESTS = sorted((Path(__file__).parents[1] / "powershell").glob("*.ps1"))
PROGRAM = shutil.which("pwsh") or shutil.which("powershell.exe")


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_scripts_of_tests_parse(path: Path) -> None:
    assert Script(path.name, path.read_bytes()).errors == ()


@pytest.mark.skipif(PROGRAM is None, reason="there is no pwsh and no powershell.exe here")
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_functions_do_what_they_are_to_do(path: Path) -> None:
    command = [str(PROGRAM), "-NoProfile", "-File", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
