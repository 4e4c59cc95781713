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
ADDED = (
    (b"gci -Path 'x'", "'gci' is an alias"),
    (b"Get-Service | % { $_ }", "'%' is an alias"),
    (b"Write-Host 'x'", "use Write-Log"),
    (b"Write-Output 'x'", "use Write-Log"),
    (b"Invoke-Expression -Command 'x'", "text is never run"),
    (b"ConvertTo-SecureString -AsPlainText 'x'", "secrets"),
    (
        b"$null = Invoke-Native -Path 'net.exe' -Arguments 'user', 'x', $env:Password",
        "a secret on a command line",
    ),
    (b"net.exe 'stop' 'x'", "exit code nobody reads"),
    (b"netsh 'int'", "exit code nobody reads"),
    (b"$p = 'x.exe'\n& $p 'y'", "exit code nobody reads"),
    (b"Get-Service 'sshd'", "is given \"'sshd'\" by position"),
    (b"Remove-Item -Force 'x'", "by position"),
    (b"Get-Thing -Nam 'x'", "no parameter -nam"),
    (b"Get-Thing", "is not given -name"),
    (b"Get-Service -Nme 'x'", "no parameter -nme"),
    (b"Get-Thingy -Name 'x'", "no function of ours"),
    (b"Write-Log -Message $thign", "$thign is read"),
    (b"$thign = 1", "$thign is set and never read"),
    (b"$home = 'x'", "$home is PowerShell's own"),
    (b"$script:Home = 'x'", "$script:home is PowerShell's own"),
    (b"$settings = 3\nWrite-Log -Message $settings", "is the parameter $Settings"),
    (b"$x = Get-Service 2>&1\nWrite-Log -Message $x", "a redirection"),
    (b". 'C:\\x.ps1'", "dot-sourcing"),
    (b"Write-Line -Word 'stage' -Rest 'x'", "does not know the line 'stage'"),
    (b"Write-Phase -Name 'done'", "the phase 'done'"),
    (b"Write-Step -Name 'One Two'", "the step 'One Two'"),
    (b"$x = 'hybridlab: phase ready'", "Write-Line does not say"),
    (b"$x = 1 ", "white space"),
    (b"\t$x = 1", "a tab"),
    (b"$x = 1\r", "white space (or CR)"),
    (b"$x = '\xe2\x80\xa6'", "not ASCII"),
    (
        b"$x = '" + b"x" * 160 + b"'",
        "longer than 160",
    ),
    (b"function DoIt {\n    [CmdletBinding()]\n    param()\n}", "not named Verb-Noun"),
    (b"function Make-It {\n    [CmdletBinding()]\n    param()\n}", "a verb that is not approved"),
    (b"function Get-It {\n    return 1\n}", "no [CmdletBinding"),
    (
        b"function Get-It {\n    [CmdletBinding()]\n    param($A)\n    return $A\n}",
        "the parameter $A has no type",
    ),
)
CHANGED = (
    (b"Set-StrictMode -Version 3.0\n", b"", "Set-StrictMode"),
    (b"-Version 3.0", b"-Version 1.0", "Set-StrictMode"),
    (b"$ErrorActionPreference = 'Stop'\n", b"", "$ErrorActionPreference"),
    (b"= 'Stop'", b"= 'Continue'", "$ErrorActionPreference"),
    (b"'SilentlyContinue'\n", b"'Continue'\n", "$ProgressPreference"),
    (b"\nexit 0\n", b"\n$x = 0\n", "explicit exit"),
    (b"\nexit 0\n", b"\nexit 0", "one line feed"),
)


def findings(source):
    return lint(Script("x.ps1", source), load("hybridlab.psm1"))


@pytest.mark.parametrize("name", EVERY)
def test_script_parses_and_is_in_the_house_style(name):
    """As far as a grammar can tell: none was ever run."""
    assert load(name).errors == ()
    assert lint(load(name), imported(name)) == []


def test_sound_script_is_left_alone():
    assert findings(HEAD + BODY + TAIL) == []


@pytest.mark.parametrize(("added", "said"), ADDED)
def test_linter_finds_what_is_added(added, said):
    found = findings(HEAD + BODY + added + b"\n" + TAIL)
    assert [one for one in found if said in one], found


@pytest.mark.parametrize(("old", "new", "said"), CHANGED)
def test_linter_finds_what_is_changed(old, new, said):
    found = findings((HEAD + BODY + TAIL).replace(old, new))
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
