"""What the suite needs of a lab that is up; the lifecycle has it, tests bring their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from lab.matrix.verdict import RunResult
from lab.plan.plan import Plan
from lab.providers.provider import LabHandle, Provider
from lab.scenario.scenario import Limit
from lab.topology.intent import Intent


class OpenLab(Protocol):
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
        """The lab, as the provider is told of it."""

    def record(self, run: RunResult, junit: Path | None) -> Path:
        """Store a run, write its reports, and return the directory that holds them."""
