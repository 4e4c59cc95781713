"""The house linter finds nothing in the shipped scripts, and everything that is put into them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from powershell_lint import lint
from powershell_syntax import Script, imported, load, names
from tables import CASES, table

EVERY = (*names(), *names("cluster"))
OWN = CASES / "powershell"
HEAD, BODY, TAIL = (OWN / "head.ps1").read_bytes(), (OWN / "body.ps1").read_bytes(), b"\nexit 0\n"


def findings(source):
    return lint(Script("x.ps1", source), load("hybridlab.psm1"))


@pytest.mark.parametrize("name", EVERY)
def test_script_parses_and_is_in_the_house_style(name):
    """As far as a grammar can tell: none was ever run."""
    assert load(name).errors == ()
    assert lint(load(name), imported(name)) == []


def test_sound_script_is_left_alone_and_needs_its_head_and_tail():
    assert findings(HEAD + BODY + TAIL) == []
    (said,) = findings(HEAD + BODY)
    assert "explicit exit" in said
    missing = [one for one in findings(BODY + TAIL) if "not among the first statements" in one]
    assert len(missing) == 3


@pytest.mark.parametrize("mistake", table("powershell/mistakes"))
def test_linter_finds_what_is_added(mistake):
    found = findings(HEAD + BODY + mistake["added"].encode() + b"\n" + TAIL)
    assert [one for one in found if mistake["said"] in one], found


@pytest.mark.parametrize("module", [name for name in EVERY if name.endswith(".psm1")])
def test_no_shared_function_is_there_for_nobody(module):
    called = {str(call.name).lower() for name in EVERY for call in load(name).calls}
    assert [one.name for one in load(module).functions if one.name.lower() not in called] == []


@pytest.mark.parametrize("name", EVERY)
def test_no_function_is_there_twice(name):
    own, shared = load(name), imported(name)
    functions = own.functions if own.name == shared.name else own.functions + shared.functions
    found = [one.name.lower() for one in functions]
    assert len(found) == len(set(found))


TESTS = sorted((Path(__file__).parents[1] / "powershell").glob("*.ps1"))
PROGRAM = shutil.which("pwsh") or shutil.which("powershell.exe")


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_scripts_of_tests_parse(path):
    assert Script(path.name, path.read_bytes()).errors == ()


@pytest.mark.skipif(PROGRAM is None, reason="there is no pwsh and no powershell.exe here")
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_functions_do_what_they_are_to_do(path):
    command = [str(PROGRAM), "-NoProfile", "-File", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
