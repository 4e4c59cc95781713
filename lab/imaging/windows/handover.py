"""From "the guest says that it is ready" to "the guest generalises itself": over its two shells."""

from __future__ import annotations

from dataclasses import replace

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError
from lab.guests.shell import Reach
from lab.guests.windows_questions import answers
from lab.guests.windows_reach import WindowsReach
from lab.guests.windows_shell import WindowsShell
from lab.imaging.job import Job
from lab.imaging.windows import record as records
from lab.imaging.windows.following import Watch
from lab.imaging.windows.machine import Building
from lab.imaging.windows.phases import Progress
from lab.imaging.windows.record import Record, Stage
from lab.imaging.windows.steps import GOLDEN_ORDER

_WITNESS_SECONDS = 90.0
"""For asking a machine that is being given up; most take no question any more."""
_SEAL = "sysprep"
"""The last step, after whose answer the machine generalises itself."""


class Handover:
    """What is done in the machine by this command, and what it keeps of that for the next one."""

    def __init__(self, job: Job, machine: Building, record: Record) -> None:
        self.record = record
        self._job = job
        self._machine = machine
