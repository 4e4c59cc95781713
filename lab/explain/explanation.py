"""What explain answers about one cell."""

from __future__ import annotations

from dataclasses import dataclass

from lab.explain.bracket import BEYOND, UNREPORTED, Bracket
from lab.explain.explainer import PathFindings
from lab.explain.lab_queries import NoAnswer, NotAsked
from lab.facts.difference import OBJECT, Difference
from lab.facts.signatures import InLog
from lab.matrix.cell import Cell, Expectation
from lab.matrix.verdict import GREEN, Verdict


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of one cell, its path, and what is wrong."""

    cell: Cell
    expectation: Expectation
    verdict: Verdict
    detail: str
    """From the last unexpected probe; if there is none, from the last probe."""
    times: int
    failed: int
    """Number of probes, and of unexpected ones."""
    explained: PathFindings
    elsewhere: tuple[Difference, ...] = ()
    """What is wrong in the lab off this path, looked for if nothing is wrong on it; and differences
    of state that cause no failure.
    """
    logged: tuple[InLog, ...] = ()
    """Known log lines of the path's machines; read if something is wrong. A log may be about
    something that was fixed long ago, so these are not findings.
    """
    bracket: Bracket | None = None
    """The two points of the loss; None if the packets could not be followed."""
    marginal: tuple[Difference, ...] = ()
    """What dropped packets on the path, or drops those beyond a rate, although every probe was as
    expected."""
    unanswered: tuple[NoAnswer, ...] = ()
    not_asked: tuple[NotAsked, ...] = ()
    unrecorded: tuple[str, ...] = ()
    """Places that could not be compared, because their state as made is not recorded: a machine
    that was rebooted, a pod that was created anew."""
    stateless: tuple[str, ...] = ()
    """Windows machines and their pods: compared with their Intent, and no more of their state is
    recorded."""

    @property
    def finding(self) -> Difference | None:
        """The first thing that is wrong on the path."""
        return self.explained.findings[0] if self.explained.findings else None

    @property
    def witnesses(self) -> tuple[str, ...]:
        """Which of ``"where"``, ``"difference"`` and ``"kernel"`` support the finding."""
        finding, bracket = self.finding, self.bracket
        if finding is None or bracket is None:
            return () if finding is None else ("difference",)
        # what follows from an object is where the packets are
        findings = self.explained.findings if finding.kind == OBJECT else (finding,)
        heard = any(bracket.kernel_rank(difference) < UNREPORTED for difference in findings)
        near = heard or any(bracket.rank(difference) != BEYOND for difference in findings)
        return (*(("where",) if near else ()), "difference", *(("kernel",) if heard else ()))

    @property
    def has_problem(self) -> bool:
        """Whether the outcome is not as expected, or something on the path is wrong."""
        return self.verdict not in GREEN or self.finding is not None

    @property
    def well(self) -> bool:
        """Whether the outcome is as expected, nothing is wrong, and every witness answered."""
        return not self.has_problem and not self.unanswered
