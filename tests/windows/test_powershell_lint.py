"""The house linter finds nothing in the shipped scripts, and everything that is put into them."""

from __future__ import annotations

import pytest
from powershell_lint import lint
from powershell_syntax import Script, imported, load, names

EVERY = (*names(), *names("cluster"))
HEAD = b"""[CmdletBinding()]
param([Parameter(Mandatory)] [string]$Settings)

Set-StrictMode -Version 3.0
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'
Import-Module -Name (Join-Path -Path $PSScriptRoot -ChildPath 'hybridlab.psm1') -Force

function Get-Thing {
    [CmdletBinding()]
    param([Parameter(Mandatory)] [string]$Name)
    return "$Name in $Settings"
}

"""
TAIL = b"\nexit 0\n"
BODY = b"$thing = Get-Thing -Name 'x'\nWrite-Log -Message $thing\n"
ADDED = {
    "an alias": (b"gci -Path 'x'", "'gci' is an alias"),
    "the alias of one character": (b"Get-Service | % { $_ }", "'%' is an alias"),
    "Write-Host": (b"Write-Host 'x'", "use Write-Log"),
    "Write-Output": (b"Write-Output 'x'", "use Write-Log"),
    "Invoke-Expression": (b"Invoke-Expression -Command 'x'", "text is never run"),
    "a password made of plain text": (b"ConvertTo-SecureString -AsPlainText 'x'", "secrets"),
    "a secret on a command line": (
        b"$null = Invoke-Native -Path 'net.exe' -Arguments 'user', 'x', $env:Password",
        "a secret on a command line",
    ),
    "a program beside the wrapper": (b"net.exe 'stop' 'x'", "exit code nobody reads"),
    "a program with no suffix": (b"netsh 'int'", "exit code nobody reads"),
    "a program by the call operator": (b"$p = 'x.exe'\n& $p 'y'", "exit code nobody reads"),
    "a value by position": (b"Get-Service 'sshd'", "is given \"'sshd'\" by position"),
    "a value after a switch": (b"Remove-Item -Force 'x'", "by position"),
    "a parameter that is not there": (b"Get-Thing -Nam 'x'", "no parameter -nam"),
    "a mandatory parameter that is left out": (b"Get-Thing", "is not given -name"),
    "a cmdlet's misspelt parameter": (b"Get-Service -Nme 'x'", "no parameter -nme"),
    "a misspelt function": (b"Get-Thingy -Name 'x'", "no function of ours"),
    "a variable that is never set": (b"Write-Log -Message $thign", "$thign is read"),
    "a variable that nobody reads": (b"$thign = 1", "$thign is set and never read"),
    "PowerShell's own variable is set": (b"$home = 'x'", "$home is PowerShell's own"),
    "the same in a scope": (b"$script:Home = 'x'", "$script:home is PowerShell's own"),
    "a parameter is set by another spelling": (
        b"$settings = 3\nWrite-Log -Message $settings",
        "is the parameter $Settings",
    ),
    "a redirection": (b"$x = Get-Service 2>&1\nWrite-Log -Message $x", "a redirection"),
    "dot-sourcing": (b". 'C:\\x.ps1'", "dot-sourcing"),
    "a word that the host does not know": (
        b"Write-Line -Word 'stage' -Rest 'x'",
        "does not know the line 'stage'",
    ),
    "a phase that the host does not know": (b"Write-Phase -Name 'done'", "the phase 'done'"),
    "a step's name in capitals": (b"Write-Step -Name 'One Two'", "the step 'One Two'"),
    "a line for the host by hand": (b"$x = 'hybridlab: phase ready'", "Write-Line does not say"),
    "white space at an end": (b"$x = 1 ", "white space"),
    "a tab": (b"\t$x = 1", "a tab"),
    "a line end of DOS": (b"$x = 1\r", "white space (or CR)"),
    "a character beyond ASCII": ("$x = '\u2026'".encode(), "not ASCII"),
    "a line too long": (b"$x = '" + b"x" * 160 + b"'", "longer than 160"),
    "a function that is not Verb-Noun": (
        b"function DoIt {\n    [CmdletBinding()]\n    param()\n}",
        "not named Verb-Noun",
    ),
    "a verb that is not approved": (
        b"function Make-It {\n    [CmdletBinding()]\n    param()\n}",
        "a verb that is not approved",
    ),
    "a function without CmdletBinding": (
        b"function Get-It {\n    return 1\n}",
        "no [CmdletBinding",
    ),
    "a parameter without a type": (
        b"function Get-It {\n    [CmdletBinding()]\n    param($A)\n    return $A\n}",
        "the parameter $A has no type",
    ),
}
CHANGED = {
    "no strict mode": ((b"Set-StrictMode -Version 3.0\n", b""), "Set-StrictMode"),
    "a laxer strict mode": ((b"-Version 3.0", b"-Version 1.0"), "Set-StrictMode"),
    "no error preference": ((b"$ErrorActionPreference = 'Stop'\n", b""), "$ErrorActionPreference"),
    "errors pass": ((b"= 'Stop'", b"= 'Continue'"), "$ErrorActionPreference"),
    "progress is shown": ((b"'SilentlyContinue'\n", b"'Continue'\n"), "$ProgressPreference"),
    "no exit": ((TAIL, b"\n$x = 0\n"), "explicit exit"),
    "no line feed at the end": ((TAIL, b"\nexit 0"), "one line feed"),
}


def findings(source):
    return lint(Script("x.ps1", source), load("hybridlab.psm1"))


@pytest.mark.parametrize("name", EVERY)
def test_script_parses_and_is_in_the_house_style(name):
    """As far as a grammar can tell: none was ever run."""
    assert load(name).errors == ()
    assert lint(load(name), imported(name)) == []


def test_sound_script_is_left_alone():
    assert findings(HEAD + BODY + TAIL) == []


@pytest.mark.parametrize(("added", "said"), ADDED.values(), ids=ADDED)
def test_linter_finds_what_is_added(added, said):
    found = findings(HEAD + BODY + added + b"\n" + TAIL)
    assert [one for one in found if said in one], found


@pytest.mark.parametrize(("change", "said"), CHANGED.values(), ids=CHANGED)
def test_linter_finds_what_is_changed(change, said):
    found = findings((HEAD + BODY + TAIL).replace(*change))
    assert [one for one in found if said in one], found


def test_program_whose_exit_code_is_read_is_no_finding():
    body = b"$p = 'x.exe'\n& $p 'y'\nif ($LASTEXITCODE -ne 0) {\n    throw 'x'\n}\n"
    assert findings(HEAD + body + TAIL) == []


def test_block_may_be_called():
    body = b"""function Invoke-It {
    [CmdletBinding()]
    param([Parameter(Mandatory)] [scriptblock]$Body)
    & $Body
}
Invoke-It -Body { Get-Service -Name 'x' }
"""
    assert findings(HEAD + body + TAIL) == []


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
