"""The house linter finds nothing in the shipped scripts, and everything that is put into them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import powershell_tests
import pytest
from powershell_lint import lint
from powershell_syntax import Script, imported, load, names
from powershell_tests import TESTS, find_powershell, run_script
from tables import CASES, table

EVERY = (*names(), *names("cluster"))
OWN = CASES / "powershell"
HEAD, BODY, TAIL = (OWN / "head.ps1").read_bytes(), (OWN / "body.ps1").read_bytes(), b"\nexit 0\n"
SCRIPTS = next(path for path in TESTS if path.stem == "scripts")


def findings(source):
    return lint(Script("x.ps1", source))


@pytest.mark.parametrize("name", EVERY)
def test_script_parses_and_is_in_the_house_style(name):
    """As far as a grammar can tell; PowerShell's own parser is in ``tests/powershell``."""
    assert load(name).errors == ()
    assert lint(load(name)) == []


def test_sound_script_is_left_alone_and_needs_its_head_and_tail():
    assert findings(HEAD + BODY + TAIL) == []
    (finding,) = findings(HEAD + BODY)
    assert "explicit exit" in finding
    missing = [
        finding for finding in findings(BODY + TAIL) if "not among the first statements" in finding
    ]
    assert len(missing) == 3


@pytest.mark.parametrize("mistake", table("powershell/mistakes"))
def test_linter_finds_what_is_added(mistake):
    found = findings(HEAD + BODY + mistake["added"].encode() + b"\n" + TAIL)
    assert [one for one in found if mistake["said"] in one], found


@pytest.mark.parametrize("module", [name for name in EVERY if name.endswith(".psm1")])
def test_no_shared_function_is_there_for_nobody(module):
    called = {str(call.name).lower() for name in EVERY for call in load(name).calls}
    assert [
        function.name for function in load(module).functions if function.name.lower() not in called
    ] == []


@pytest.mark.parametrize("name", EVERY)
def test_no_function_is_there_twice(name):
    own, shared = load(name), imported(name)
    functions = own.functions if own.name == shared.name else own.functions + shared.functions
    lowered = [function.name.lower() for function in functions]
    assert len(lowered) == len(set(lowered))


@pytest.fixture
def powershell():
    program = find_powershell()
    if program is None:
        pytest.skip("no pwsh on PATH or in $POWERSHELL_HOME, and no powershell.exe")
    return program


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_powershell_passes_its_own_tests(powershell, path):
    done = run_script(powershell, path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok   " in done.stdout or " of this PowerShell, " in done.stdout


MISTAKES = (
    ("if ($true) {", "Missing closing '}'"),
    ("Get-Itme -Path x", "there is no command 'Get-Itme'"),
    ("Get-Item -Pth x", "'Get-Item' has no parameter -Pth"),
    ("Get-Item -Path x -LiteralPath y", "'Get-Item' takes no such set of parameters"),
    ("Get-Item -Force", "'Get-Item' takes no such set of parameters: Force"),
    ("Get-NetAdapter -Nmae x", "'Get-NetAdapter' has no parameter -Nmae"),
    ("[System.IO.File]::SetAccessControl('x', 1)", "System.IO.File has no member"),
    ("[System.IO.Fiel]::Exists('x')", "there is no type System.IO.Fiel"),
    ("$x = $true ? 1 : 2", "Windows PowerShell 5.1 does not parse"),
    ("$x = 1 ?? 2", "Windows PowerShell 5.1 does not parse"),
    ("Get-Date && Get-Date", "Windows PowerShell 5.1 does not parse"),
    ("$x = ${y}?.Length", "Windows PowerShell 5.1 does not parse"),
    ("function Add-X { param([Parameter(Mandatory)] $A) }; Add-X", "'Add-X' is not given -A"),
)


def test_powershell_finds_each_mistake_in_a_script(powershell, tmp_path):
    for number, (text, _) in enumerate(MISTAKES):
        (tmp_path / f"x{number}.ps1").write_text(f"\n{text}\n", encoding="ascii")
    done = run_script(powershell, SCRIPTS, "-Folder", str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    for number, (_, says) in enumerate(MISTAKES):
        assert f"FAIL x{number}.ps1:2: {says}" in done.stdout


def test_no_scripts_at_all_is_a_failure(powershell, tmp_path):
    done = run_script(powershell, SCRIPTS, "-Folder", str(tmp_path))
    assert "there are no scripts" in done.stdout
    assert done.returncode == 1


def test_without_powershell_the_last_line_is_not_run(tmp_path):
    program = Path(powershell_tests.__file__)
    environment = {"PATH": str(tmp_path), "POWERSHELL_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("NOT RUN: make test-powershell")


def test_a_powershell_that_fails_fails_the_run_and_is_found_by_its_folder(tmp_path):
    pwsh = tmp_path / "pwsh"
    pwsh.write_text('#!/bin/sh\necho "$3"; case $3 in *cluster.ps1) exit 1;; esac\n')
    pwsh.chmod(0o755)
    done = subprocess.run(
        [sys.executable, Path(powershell_tests.__file__)],
        env={"PATH": "/usr/bin:/bin", "POWERSHELL_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    last = done.stdout.splitlines()[-1]
    assert last == f"{len(TESTS) - 1} of {len(TESTS)} passed; failed: cluster.ps1"
