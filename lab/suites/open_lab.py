"""What the suite needs of a lab that is up; the lifecycle has it, tests bring their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from lab.matrix.verdict import RunResult
from lab.plan.plan import Plan
from lab.providers.provider import LabHandle, Provider
from lab.scenario.scenario import Limit
from lab.topology.intent import Intent


class SuiteLab(Protocol):
    """One lab that is up, found by its name."""

    @property
    def name(self) -> str:
        """The lab's name."""

    @property
    def banner(self) -> str:
        """One sentence: which provider, and what is emulated."""

    @property
    def plan(self) -> Plan:
        """What was decided for the lab."""

    @property
    def intent(self) -> Intent:
        """What each machine's network must be."""

    @property
    def limits(self) -> Sequence[Limit]:
        """What is expected not to work, first match wins."""

    @property
    def provider(self) -> Provider:
        """Where the machines come from."""

    @property
    def handle(self) -> LabHandle:
        """The lab, as providers get it."""

    @property
    def windows_rules_off(self) -> Sequence[str]:
        """Ids of the Windows rules that the lab's emulated nodes do not obey."""

    @property
    def repeat_with(self) -> str:
        """The command that repeats a cell, its id aside; empty for ``lab test NAME -k``."""

    def require_running(self) -> None:
        """Look at the machines.

        Raises
        ------
        BrokenError
            If they are not there.

        """

    def used(
        self, command: str, say: Callable[[str], None], *, alone: bool = False
    ) -> AbstractContextManager[None]:
        """Hold the lab while ``command`` works on it; ``say`` gets a line if it waits.

        With ``alone`` other tests wait.

        Raises
        ------
        LabError
            If another command works on it for too long.

        """

    def cut_off(self, machine: str) -> None:
        """Take a machine off its networks, so that it comes back even if this is killed."""

    def join_again(self, machine: str) -> None:
        """Put it back."""

    def record(
        self, run: RunResult, junit: Path | None = None, intent: Intent | None = None
    ) -> Path:
        """Store a run of ``intent``, write its reports; the directory that holds them."""
