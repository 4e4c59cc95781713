"""Run PowerShell steps on a Windows machine, restart it, and query its state.

A step is sent over SSH and run over WinRM; its result is the last line of its output.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, UsageError
from lab.machines.ssh.shell import wait_until_ready
from lab.machines.system import UnansweredError
from lab.shells.shell import Completed, ConnectionLostError, UnreachableError
from lab.windows.shell import DIRECTORY, SYSTEM, LimitedAttempts, WindowsShell, file_command

NEEDED = 3010
"""ERROR_SUCCESS_REBOOT_REQUIRED."""
INITIATED = 1641
"""ERROR_SUCCESS_REBOOT_INITIATED: the installer has started one itself."""
CODES = frozenset({NEEDED, INITIATED})
QUERY = (
    "$system = Get-CimInstance -ClassName Win32_OperatingSystem\n"
    "$boot = $system.LastBootUpTime.ToUniversalTime()\n"
    "$up = [math]::Floor(($system.LocalDateTime.ToUniversalTime() - $boot).TotalSeconds)\n"
    "'{0:o} {1:0}' -f $boot, $up\n"
)
"""Prints ``2026-11-21T10:00:00.0000000Z 123``: boot time, and seconds since then."""
RESTART = (f"{SYSTEM}\\shutdown.exe", "/r", "/f", "/t", "0")
LOOK_SECONDS = 2.0
"""Poll interval; each poll starts a PowerShell there."""
_ASK_SECONDS = 60.0
_UNDER_WAY = frozenset({1115, 1190})
"""Exit codes of shutdown.exe if a shutdown is already in progress."""


@dataclass(frozen=True, slots=True)
class Boot:
    """A machine's boot time, read at one moment."""

    at: str
    """LastBootUpTime, UTC. Changes when the clock is set."""
    up: float
    """Seconds since then. Not affected by setting the clock."""
    read: float
    """When it was read, in seconds of this machine's monotonic clock."""


def parse_boot(text: str, read: float) -> Boot | None:
    """Parse the output of :data:`QUERY`; None if it is malformed. Pure."""
    words = text.split()
    try:
        at, up = words
        return Boot(at, float(up), read)
    except ValueError:
        return None


def has_restarted(before: Boot, after: Boot) -> bool:
    """True if the machine has restarted between the two readings. Pure.

    A different boot time alone proves nothing: it changes when the clock is set. An uptime shorter
    than the time since the first reading does.
    """
    return after.at != before.at and after.up < after.read - before.read


def boot(shell: WindowsShell, deadline: Deadline) -> Boot:
    """Read the machine's boot time.

    Raises BrokenError when it cannot be read, or the machine is unreachable.
    """
    read = time.monotonic()
    done = shell.powershell(QUERY, deadline)
    current = parse_boot(done.stdout, read) if not done.code else None
    if current is None:
        raise BrokenError(
            f"reading when '{shell.name}' was started",
            f"it printed '{(done.stdout or done.stderr).strip()[:200]}' (exit code {done.code})",
            "run 'Get-CimInstance Win32_OperatingSystem' there",
        )
    return current


def reboot(shell: WindowsShell, deadline: Deadline) -> None:
    """Restart the machine, and wait until it accepts commands and files again.

    Raises DeadlineError with the last state when that is not confirmed in time. Raises BrokenError
    when it refuses.
    """
    before = boot(shell, deadline)
    start_reboot(shell, deadline)
    wait_for_reboot(shell, before, deadline)


def start_reboot(shell: WindowsShell, deadline: Deadline) -> None:
    """Restart the machine; no answer is not an error."""
    own = Deadline(min(deadline.left(), _ASK_SECONDS))
    with suppress(ConnectionLostError, UnreachableError, DeadlineError):
        done = shell.run(RESTART, own)
        if done.code and done.code not in _UNDER_WAY:
            raise BrokenError(
                f"restarting '{shell.name}'",
                f"shutdown.exe ended with {done.code}: {(done.stderr or done.stdout).strip()}",
            )


def wait_for_reboot(shell: WindowsShell, before: Boot, deadline: Deadline) -> None:
    """Wait until the machine has restarted since ``before`` and accepts commands and files.

    Raises DeadlineError with the last state: ``"still up since ..."``, ``"connection refused"``.
    """

    def look(own: Deadline) -> str:
        current = boot(shell, own)
        return "" if has_restarted(before, current) else f"still up since {current.at}"

    action = f"waiting for '{shell.name}' to restart"
    wait_until_ready(action, LimitedAttempts(look), deadline, LOOK_SECONDS)
    shell.wait(deadline)


MODULE = f"{DIRECTORY}\\hybridlab.psm1"
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_PRIVATE = 0o600
_SAID = 400


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step."""

    step: str
    changed: bool
    """True if it changed anything."""
    reboot: bool
    """True if the machine must be restarted for the change to take effect."""
    facts: Mapping[str, Any] = field(default_factory=dict)


class StepError(UnansweredError):
    """A step failed; the text is the step's own error, if it reported one."""


def run_step(  # noqa: PLR0913, PLR0917  all of them define a step
    shell: WindowsShell,
    script: bytes,
    module: bytes,
    name: str,
    settings: Mapping[str, Any],
    deadline: Deadline,
    *,
    restarts: bool = False,
) -> StepResult:
    r"""Send a step and run it; steps can be repeated.

    ``script``, ``module``: contents of ``<name>.ps1`` and of its module in ``C:\hybridlab``.
    ``name``: the step's name: ``containerd``. ``settings``: its parameters, as JSON; they may be
    secret, and their file is removed. ``deadline``: for everything. ``restarts``: restart the
    machine, and confirm it, if the step asks for it.

    Raises StepError when it fails, or its output cannot be read. Raises DeadlineError and
    BrokenError as :class:`~lab.windows.shell.WindowsShell`.
    """
    action = f"running step '{name}' on '{shell.name}'"
    if not _NAME.fullmatch(name):
        raise UsageError(action, "the name of a step is lower-case letters, digits and hyphens")
    before = boot(shell, deadline) if restarts else None
    path, given = f"{DIRECTORY}\\{name}.ps1", f"{DIRECTORY}\\{name}.json"
    shell.put(module, MODULE, _PRIVATE, deadline)
    shell.put(script, path, _PRIVATE, deadline)
    shell.put(json.dumps(settings, indent=1).encode("ascii"), given, _PRIVATE, deadline)
    try:
        done = shell.run(file_command(path, ("-Settings", given)), deadline)
    finally:
        shell.remove(given)
    result = parse_result(action, name, done)
    if before is not None and result.reboot:
        start_reboot(shell, deadline)
        wait_for_reboot(shell, before, deadline)
    return result


def parse_result(action: str, name: str, done: Completed) -> StepResult:
    """Parse a step's result from its exit code and the last line of its output. Pure.

    Raises StepError when the step failed, there is no result, or result and exit code disagree.
    """
    document = _last_object(done.stdout)
    hint = f"see {DIRECTORY}\\log\\{name}.log there"
    if done.code and done.code not in CODES:
        words = str(document.get("error", "")) or _complaint(done)
        raise StepError(action, f"failed with exit code {done.code}: {words}", hint)
    if document.get("step") != name or "error" in document:
        words = f"exit code {done.code}, but its last line is not a result of that step"
        raise StepError(action, f"{words}: {_complaint(done)}", hint)
    changed, reboot, facts = document.get("changed"), document.get("reboot"), document.get("facts")
    if not isinstance(changed, bool) or not isinstance(reboot, bool) or not isinstance(facts, dict):
        words = f"its result is not in the format of a step: {json.dumps(document)[:_SAID]}"
        raise StepError(action, words, hint)
    if reboot != (done.code in CODES):
        words = f"it says 'reboot': {json.dumps(reboot)}, but its exit code is {done.code}"
        raise StepError(action, words, "the two must agree: 3010 where a reboot is needed, else 0")
    return StepResult(name, changed, reboot, facts)


def _last_object(text: str) -> dict[str, Any]:
    lines = [line for line in text.lstrip("\ufeff").splitlines() if line.strip()]
    try:
        document = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _complaint(done: Completed) -> str:
    text = (done.stderr.strip() or done.stdout.strip()) or "it printed nothing"
    return text[-_SAID:]
