"""Facts about processes, from /proc alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab.providers.netns.holder import ARGUMENTS, MARKER

_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat, counted after the name in brackets (proc(5): 3 and 22)."""


@dataclass(frozen=True, slots=True)
class HolderProcess:
    """One running holder, found by its argument list."""

    pid: int
    started: int
    """In clock ticks since boot."""
    lab: str
    token: str
    directory: Path
    settled: bool
    """True for process 1 of the lab; False for the moment in which a holder starts."""
    ours: bool
    """Whether it runs as this very user. Only such a one may be entered: what answers from
    inside is unpickled here, and anybody may copy a lab's token from its argument list."""

    def gone(self) -> bool:
        """Whether it has ended; it takes its whole pid namespace with it first."""
        return started(self.pid) != self.started

    def age(self) -> float:
        """Seconds since it started."""
        uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
        return max(0.0, uptime - self.started / os.sysconf("SC_CLK_TCK"))


def started(pid: int, proc: str = "/proc") -> int | None:
    """When the process started, in clock ticks since boot; None if it is not running."""
    fields = _fields(pid, proc)
    return None if fields is None or fields[_STATE] in "ZX" else int(fields[_STARTED])


def halted(pid: int, proc: str = "/proc") -> bool:
    """Whether the process is stopped, by a signal or a debugger: there, and doing nothing."""
    fields = _fields(pid, proc)
    return fields is not None and fields[_STATE] in "Tt"


def _fields(pid: int, proc: str) -> list[str] | None:
    try:
        stat = Path(f"{proc}/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return stat.rpartition(")")[2].split()


def holders(marker: str = MARKER) -> tuple[HolderProcess, ...]:
    """Every holder of this user's, or of everybody's for root, oldest first."""
    return tuple(sorted(_holders(marker), key=lambda holder: (holder.started, holder.pid)))


def _holders(marker: str) -> Iterator[HolderProcess]:
    user = os.geteuid()
    wanted = os.fsencode(marker)
    for name in os.listdir("/proc"):  # noqa: PTH208  names are wanted, not paths
        if not name.isdigit():
            continue
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            # One that ends while it is looked at, or may not be looked at, is not ours.
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")[:-1]
            if len(words) <= ARGUMENTS or words[-ARGUMENTS] != wanted:
                continue
            status = Path(f"/proc/{name}/status").read_text(encoding="utf-8")
            facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            since = started(int(name))
            users = [int(word) for word in facts["Uid"].split()]
            if since is None or user not in (0, users[0]):
                continue
            lab, token, directory = (os.fsdecode(word) for word in words[-ARGUMENTS + 1 :])
            numbers = facts["NSpid"].split()
            settled = len(numbers) > 1 and numbers[-1] == "1"
            ours = set(users) == {user}
            yield HolderProcess(int(name), since, lab, token, Path(directory), settled, ours)
