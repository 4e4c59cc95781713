"""Suspend a lab: the memory of its machines goes to disk, and ``up`` goes on from there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from lab.lifecycle.interruption import terminable
from lab.lifecycle.real_machines import real_machines
from lab.lifecycle.session import OpenLab
from lab.state.lock import WAIT_SECONDS, lab_lock


@dataclass(frozen=True, slots=True)
class SuspendResult:
    """What ``suspend`` has done."""

    lab: str
    saved: tuple[str, ...]
    """The machines that ran."""
    seconds: float


def suspend(
    opened: OpenLab, command: str, say: Callable[[str], None], wait: float = WAIT_SECONDS
) -> SuspendResult:
    """Save every machine of the lab to disk.

    Raises
    ------
    UsageError
        When its machines have no memory of their own (namespaces).
    BrokenError
        When another command holds the lab, or a machine cannot be saved.

    """
    begun = time.monotonic()
    machines = real_machines(opened.provider, f"suspending lab '{opened.name}'")
    with terminable(), lab_lock(opened.handle.directory, command, wait=wait, say=say):
        saved = machines.suspend(opened.handle, opened.intent)
    return SuspendResult(opened.name, saved, time.monotonic() - begun)
