"""The linter's tables for Windows PowerShell 5.1."""

from __future__ import annotations

from pathlib import Path

FORBIDDEN = {
    "write-host": "standard output is for the result alone: use Write-Log",
    "write-output": "standard output is for the result alone: use Write-Log",
    "out-host": "standard output is for the result alone: use Write-Log",
    "invoke-expression": "text is never run",
    "convertto-securestring": "secrets are the answer file's business, not the scripts'",
}

AUTOMATIC = frozenset(
    """
    _ args env error event executioncontext false foreach home host input lastexitcode matches
    myinvocation null pid profile pscmdlet pscommandpath
    psculture pshome psitem psscriptroot pswversiontable pwd sender shellid stacktrace switch this
    true
    """.split()  # noqa: SIM905  readable as a table
)
"""Variables that PowerShell sets itself: always defined, and never assigned by scripts."""

PREFERENCES = frozenset({"erroractionpreference", "progresspreference"})

COMMON = frozenset({"erroraction", "confirm"})

_LISTED = Path(__file__).parents[1] / "cases/windows/cmdlets.txt"
CMDLETS = {
    name: frozenset(parameters)
    for line in _LISTED.read_text().lower().splitlines()
    if not line.startswith("#")
    for name, *parameters in [line.split()]
}
"""Cmdlet to its parameters."""
