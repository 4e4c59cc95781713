"""Why a node does not come into its cluster: the kubelet's own words, and what they mean."""

from __future__ import annotations

from collections.abc import Iterable

from lab._deadline import Deadline
from lab._errors import LabError
from lab.cluster.signatures import match
from lab.cluster.windows import places
from lab.guests.powershell import quoted
from lab.guests.windows_shell import WindowsShell
from lab.guests.windows_steps import StepError

TAIL = 60
"""Lines of a log that are read."""
_TOLD = 5
_SECONDS = 60.0


def log_tail(shell: WindowsShell, service: str, deadline: Deadline) -> tuple[str, ...]:
    """The last lines of a service's log; none where they cannot be had. Never raises."""
    path = quoted(places.log(service))
    script = (
        f"if (Test-Path -LiteralPath {path}) {{\n"
        f"    Get-Content -LiteralPath {path} -Tail {TAIL}\n"
        "}\n"
    )
    try:
        done = shell.powershell(script, deadline)
    except LabError:
        return ()
    return tuple(line.rstrip() for line in done.stdout.splitlines() if line.strip())


def explained(error: StepError, service: str, tail: Iterable[str]) -> StepError:
    """The error with the end of a log, and with its cause and cure where they are known. Pure."""
    lines = tuple(tail)
    found = match((*error.happened.splitlines(), *lines))
    happened = error.happened
    if lines:
        happened += f"\n  {service} says last:\n    " + "\n    ".join(lines[-_TOLD:])
    else:
        happened += f"\n  {service} has said nothing in {places.log(service)}"
    if not found:
        return StepError(error.doing, happened, error.cure)
    first = found[0]
    return StepError(error.doing, f"{happened}\n  that means: {first.cause}", first.cure)


def explain(shell: WindowsShell, error: StepError, service: str) -> StepError:
    """As :func:`explained`, with the log as it is now."""
    return explained(error, service, log_tail(shell, service, Deadline(_SECONDS)))
