"""Restarting a Windows guest, and the proof that it was restarted."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.guests.command_line import SYSTEM
from lab.guests.link import LostError, UnreachableError
from lab.guests.shell import Completed
from lab.guests.windows_shell import WindowsShell
from lab.guests.windows_waiting import Tries

NEEDED = 3010
"""ERROR_SUCCESS_REBOOT_REQUIRED."""
INITIATED = 1641
"""ERROR_SUCCESS_REBOOT_INITIATED: the installer has begun one itself."""
CODES = frozenset({NEEDED, INITIATED})
QUERY = (
    "$system = Get-CimInstance -ClassName Win32_OperatingSystem\n"
    "$boot = $system.LastBootUpTime.ToUniversalTime()\n"
    "$up = [math]::Floor(($system.LocalDateTime.ToUniversalTime() - $boot).TotalSeconds)\n"
    "'{0:o} {1:0}' -f $boot, $up\n"
)
"""Says ``2026-11-21T10:00:00.0000000Z 123``: when it was started, and for how many seconds it
has run since."""
RESTART = (f"{SYSTEM}\\shutdown.exe", "/r", "/f", "/t", "0")
LOOK_SECONDS = 2.0
"""Between two looks; each starts a PowerShell there."""
_ASK_SECONDS = 60.0
_UNDER_WAY = frozenset({1115, 1190})
"""What shutdown.exe says where one has begun already."""


@dataclass(frozen=True, slots=True)
class Boot:
    """One start of a machine, as it was read."""

    at: str
    """LastBootUpTime, UTC. It moves when the clock is set."""
    up: float
    """Seconds since then. They do not."""
    read: float
    """When that was, on our own monotonic clock, in seconds."""


def boot_of(text: str, read: float) -> Boot | None:
    """What the query has said; None if that cannot be read. Pure."""
    words = text.split()
    try:
        at, up = words
        return Boot(at, float(up), read)
    except ValueError:
        return None


def restarted(before: Boot, after: Boot) -> bool:
    """Whether the machine was started between the two. Pure.

    Another boot time alone is no proof: it changes when the clock is set. That it has been up
    for less time than has passed since we looked is one.
    """
    return after.at != before.at and after.up < after.read - before.read


def boot(shell: WindowsShell, deadline: Deadline) -> Boot:
    """When the machine was started.

    Raises
    ------
    BrokenError
        When it does not say, or cannot be reached.

    """
    read = time.monotonic()
    done = shell.powershell(QUERY, deadline)
    found = boot_of(done.stdout, read) if not done.code else None
    if found is None:
        raise BrokenError(
            f"reading when '{shell.name}' was started",
            f"it said '{(done.stdout or done.stderr).strip()[:200]}' (exit code {done.code})",
            "see what Get-CimInstance Win32_OperatingSystem says there",
        )
    return found


def reboot(shell: WindowsShell, deadline: Deadline) -> None:
    """Restart the machine, and wait until it takes commands and files again.

    Raises
    ------
    DeadlineError
        When that is not proved in time, with the last that was seen.
    BrokenError
        When it refuses.

    """
    before = boot(shell, deadline)
    ask(shell, deadline)
    prove(shell, before, deadline)


def ask(shell: WindowsShell, deadline: Deadline) -> None:
    """Have the machine restart; that it does not answer any more is no error."""
    own = Deadline(min(deadline.left(), _ASK_SECONDS))
    with suppress(LostError, UnreachableError):
        done = shell.run(RESTART, own)
        if done.code and done.code not in _UNDER_WAY:
            raise BrokenError(
                f"restarting '{shell.name}'",
                f"shutdown.exe ended with {done.code}: {(done.stderr or done.stdout).strip()}",
            )


def prove(shell: WindowsShell, before: Boot, deadline: Deadline) -> None:
    """Wait until the machine was restarted since, and takes commands and files.

    Raises
    ------
    DeadlineError
        With the last that was seen: ``"still up since ..."``, ``"connection refused"``.

    """

    def look(own: Deadline) -> str:
        found = boot(shell, own)
        return "" if restarted(before, found) else f"still up since {found.at}"

    Tries(look).wait(f"waiting for '{shell.name}' to restart", deadline, LOOK_SECONDS)
    shell.wait(deadline)


def run_with_reboot(
    shell: WindowsShell, act: Callable[[], Completed], deadline: Deadline
) -> Completed:
    """Run something, and restart the machine where its exit code asks for that.

    Parameters
    ----------
    shell
        The machine.
    act
        Runs it: ``lambda: shell.run(...)``.
    deadline
        For all of it.

    Raises
    ------
    DeadlineError, BrokenError
        As :func:`reboot` does.

    """
    before = boot(shell, deadline)
    done = act()
    if done.code in CODES:
        if done.code == NEEDED:
            ask(shell, deadline)
        prove(shell, before, deadline)
    return done
