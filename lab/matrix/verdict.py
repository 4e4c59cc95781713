"""The results of cells and of runs, and what is wrong on their paths. Pure data for the reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab._log import quantity
from lab.facts.difference import Difference
from lab.matrix.assertion import AssertionResult
from lab.matrix.cell import Cell, Expectation
from lab.matrix.failover import Failover
from lab.matrix.sampling import Coverage
from lab.providers.provider import Outcome
from lab.providers.workloads import WorkloadResult
from lab.state.provenance import Provenance
from lab.topology.observed import NodeVersion

Verdict = Literal["pass", "fail", "flaky", "probe-error", "known-limit", "unexpected-pass"]

VERDICTS: tuple[Verdict, ...] = (
    "pass",
    "known-limit",
    "fail",
    "flaky",
    "unexpected-pass",
    "probe-error",
)
GREEN: frozenset[Verdict] = frozenset({"pass", "known-limit"})
RED: frozenset[Verdict] = frozenset(VERDICTS) - GREEN
"""Verdicts that are not as expected."""


@dataclass(frozen=True, slots=True)
class CellResult:
    """One cell, judged."""

    cell: Cell
    expectation: Expectation
    verdict: Verdict
    detail: str
    """The reason, in one sentence; empty for a pass."""
    attempts: tuple[Outcome, ...]
    """One, or two if it was retried."""
    retried: bool
    """False also if a failure was not retried for lack of time (``detail`` says so)."""
    repeat: str
    """The command that repeats this cell."""
    finding: Difference | None = None
    """The first difference from the Intent on the path of a failed cell, or what drops some packets
    on the path of a passed one; None if none was found, or the path was not inspected."""
    searched: bool = True
    """False if the run was interrupted before the cause of its failures was searched."""

    @property
    def unexplained(self) -> bool:
        """Whether it is a failure whose cause has to be searched, or was not found."""
        return self.verdict in {"fail", "flaky"} and self.finding is None

    @property
    def cause(self) -> str:
        """The cause of a red cell, in one line, also if it is unknown.

        That of an unexpected pass is its rule.
        """
        if self.verdict == "unexpected-pass":
            return self.expectation.unmet
        if self.finding:
            return self.finding.line
        return "none found on its path" if self.searched else "not searched: interrupted"

    def cause_of(self, cells: int) -> str:
        """The cause, with the number of red cells that have it."""
        if self.verdict != "unexpected-pass":
            return f"{self.cause}: {quantity(cells, 'cell')}"
        work = f"{self.cause}: {cells:,} {'cell works' if cells == 1 else 'cells work'}"
        return "; ".join(filter(None, (work, self.expectation.advice)))


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run of the matrix on one lab."""

    run: str
    """Id, sortable by time: ``20261121-101500-7f3a``."""
    lab: str
    scenario: str
    summary: str
    topology: str
    provider: str
    banner: str
    """A sentence on what is emulated."""
    emulated_nodes: tuple[str, ...]
    """Nodes of another operating system that a provider without machines emulates."""
    version: str
    """Version of Kubernetes."""
    started: str
    """ISO 8601, UTC."""
    seconds: float
    results: tuple[CellResult, ...]
    windows_rules_off: tuple[str, ...]
    scenario_text: str = ""
    """Content of the scenario file, so that a run can be reproduced by itself; empty in runs of
    earlier versions."""
    only: str | None = None
    """The operating system given by ``--only``."""
    nodes: tuple[NodeVersion, ...] = ()
    """Versions on the nodes of a real cluster; empty if there is none."""
    workloads: tuple[WorkloadResult, ...] = ()
    """The workload checks of a real cluster."""
    assertions: tuple[AssertionResult, ...] = ()
    """The assertions of the scenario that were made; empty in runs of earlier versions."""
    coverage: Coverage | None = None
    """How much of the matrix was probed; None in runs of earlier versions."""
    hosts: tuple[tuple[str, str], ...] = ()
    """Machines with the scenario's hypervisors that they run on; empty if it has none."""

    failover: Failover | None = None
    """The failover of its gateways; None if it was not tested."""
    number: int = 0
    """Increases with the runs of labs of this name, whatever the clock says; 0 in runs of earlier
    versions, and in files from elsewhere, where another journal counted."""
    disclaimer: str = ""
    """See :meth:`Provider.disclaimer`; empty in runs of earlier versions."""
    interrupted: bool = False
    """Whether Ctrl-C or SIGTERM ended it; then not every chosen cell need be judged."""
    temporary: bool = False
    """Whether its lab is taken down afterwards; then 'lab repro' repeats a cell, in another lab."""
    provenance: Provenance | None = None
    """What it was made with; None in runs of earlier versions."""

    def count(self, verdict: Verdict) -> int:
        """The number of cells with the verdict."""
        return sum(1 for result in self.results if result.verdict == verdict)

    def green(self) -> bool:
        """Whether every cell passed or is a known limit that held, and every other check passed.

        False for an interrupted run.
        """
        if self.interrupted or (self.failover and not self.failover.well):
            return False
        cells = all(result.verdict in GREEN for result in self.results)
        checks: tuple[WorkloadResult | AssertionResult, ...] = (*self.workloads, *self.assertions)
        return cells and all(check.verdict in GREEN for check in checks)
