"""Every shipped script is PowerShell, as far as its grammar can tell: none was ever run."""

from __future__ import annotations

import pytest
from powershell_syntax import Script, load, names

from lab.imaging.windows import steps

SOUND = b"$path = 'C:\\k'\nif (Test-Path -LiteralPath $path) {\n    exit 0\n}\nexit 1\n"
BROKEN = {
    "a brace is missing": SOUND.replace(b"}\n", b""),
    "a quote is missing": SOUND.replace(b"k'", b"k"),
    "a parenthesis is missing": SOUND.replace(b"$path) {", b"$path {"),
    "else if is written as in other languages": SOUND.replace(b"}\n", b"} elseif {\n}\n"),
    "a pipe leads nowhere": SOUND.replace(b"exit 1", b"Get-Item | | Get-Item"),
    "param is broken": b"param([string]$A, )\n" + SOUND,
    "a bare argument that the grammar does not take": b"Get-Item $env:TEMP\\foo\n",
}


@pytest.mark.parametrize("name", names())
def test_script_parses_without_an_error(name):
    assert load(name).errors == ()


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN)
def test_parser_finds_what_is_broken(source):
    assert Script("sound", SOUND).errors == ()
    assert Script("broken", source).errors


def test_every_step_has_its_script_and_every_script_its_step():
    ours = {"bootstrap.ps1", "clone.ps1", steps.MODULE}
    assert {f"{step.name}.ps1" for step in steps.STEPS} | ours == set(names())
