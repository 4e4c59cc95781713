"""The commands that answer files hold, in the order in which Windows runs them: data.

Each line is run without a shell of its own. What it says on the first serial port has no space
before the ``>``, which ``echo`` would write too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Script = Literal["bootstrap.ps1", "clone.ps1"]
"""What is run at the first logon of an installation, and of a clone."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command."""

    line: str
    """As Windows is to run it."""
    why: str
    """Goes into the answer file beside it."""


def _says(phase: str) -> Command:
    return Command(f"cmd /c echo hybridlab: phase {phase}> COM1", f"Tell the host: {phase}")


WINDOWS_PE: tuple[Command, ...] = (_says("winpe"),)
"""Before Setup looks at the disk."""
SPECIALIZE: tuple[Command, ...] = (
    _says("specialize"),
    Command("net user Administrator /active:yes", "Let the administrator log in"),
    Command(
        r'reg.exe add "HKLM\SOFTWARE\Policies\Microsoft\Windows NT\CurrentVersion\NetworkList'
        r'\Signatures\FirstNetwork" /v Category /t REG_DWORD /d 1 /f',
        "Take the first network for a private one",
    ),
)
"""At the first start of an installation from its disk."""
CLONE_SPECIALIZE: tuple[Command, ...] = (
    *SPECIALIZE,
    Command(
        "net user Administrator /logonpasswordchg:no",
        "Ask the administrator for no new password, as sysprep leaves it",
    ),
)
"""At the first start of a clone. A generalised image now and then asks for a new password at the
first logon, where nobody is to answer (kubernetes-sigs/image-builder, pull request 2117); Amazon's
EC2Launch clears the mark in the same pass."""
_POLICY = 'powershell -Command "Set-ExecutionPolicy -ExecutionPolicy RemoteSigned -Force"'
_RUN = "powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass"


def first_logon(script: Script) -> tuple[Command, ...]:
    """At the first logon, as administrator; each waits for the one before it."""
    return (
        _says("first-logon"),
        Command(rf"cmd.exe /c {_POLICY}", "Let PowerShell run local scripts"),
        Command(
            rf"%SystemDrive%\Windows\SysWOW64\cmd.exe /c {_POLICY}",
            "Let 32-bit PowerShell run local scripts",
        ),
        Command(_scan(script), f"Run {script}, whatever letter its medium has"),
    )


def _scan(script: Script) -> str:
    """Look for a script in the root of every drive, and run it; say so if there is none."""
    return (
        f'{_RUN} -Command "'
        "$found = Get-PSDrive -PSProvider FileSystem "
        f"| ForEach-Object {{ Join-Path -Path $_.Root -ChildPath '{script}' }} "
        "| Where-Object { Test-Path -LiteralPath $_ } | Select-Object -First 1; "
        f"if ($found) {{ {_RUN} -File $found }} "
        f"else {{ cmd.exe /c 'echo hybridlab: failed first-logon: no drive has {script}> COM1' }}; "
        'exit $LASTEXITCODE"'
    )
