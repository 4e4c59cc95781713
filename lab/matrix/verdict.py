"""What was found of each cell, and of a run of them. Pure data; the reports read nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.cluster.observed import NodeVersion
from lab.cluster.workload_checks import WorkloadResult
from lab.matrix.cell import Cell, Expectation
from lab.matrix.failover import Failover
from lab.matrix.finding import Finding
from lab.matrix.sampling import Coverage
from lab.providers.provider import Outcome

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


@dataclass(frozen=True, slots=True)
class CellResult:
    """One cell, judged."""

    cell: Cell
    expectation: Expectation
    verdict: Verdict
    detail: str
    """Why, in one sentence; empty for a plain pass."""
    attempts: tuple[Outcome, ...]
    """One, or two when it was retried."""
    retried: bool
    """False also where a failure was not retried for want of time (``detail`` says so)."""
    repeat: str
    """The one command that repeats this cell."""
    finding: Finding | None = None
    """The first thing on its path that is not as intended, of a cell that failed; None where
    nothing was seen, or nobody looked."""

    @property
    def cause(self) -> str:
        """What broke a red cell, in one line; ``none found on its path`` where nobody knows."""
        return self.finding.line if self.finding else "none found on its path"


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
    """What is emulated, in words."""
    emulated_nodes: tuple[str, ...]
    version: str
    """Of Kubernetes."""
    started: str
    """ISO 8601, UTC."""
    seconds: float
    results: tuple[CellResult, ...]
    windows_rules_off: tuple[str, ...]
    scenario_text: str = ""
    """The file that the lab was made from, so that a run alone can be reproduced; empty in runs
    that were kept before that was written."""
    only: str | None = None
    """The operating system whose nodes alone were kept, if that was asked."""
    nodes: tuple[NodeVersion, ...] = ()
    """What the nodes of a real cluster run; empty where there is none."""
    workloads: tuple[WorkloadResult, ...] = ()
    """The checks of a real cluster beside its network."""
    coverage: Coverage | None = None
    """How much of its matrix was asked; None in runs that were kept before that was counted."""
    hosts: tuple[tuple[str, str], ...] = ()
    """Machines and the scenario's own hypervisors that they stand on, where it has any."""

    failover: Failover | None = None
    """What became of its gateways when their holder was lost; None where that was not asked."""

    def count(self, verdict: Verdict) -> int:
        """How many cells have the verdict."""
        return sum(1 for result in self.results if result.verdict == verdict)

    def green(self) -> bool:
        """Whether every cell passed or is a known limit that held, and every check passed."""
        if self.failover and not self.failover.well:
            return False
        cells = all(result.verdict in GREEN for result in self.results)
        return cells and all(one.verdict == "pass" for one in self.workloads)
