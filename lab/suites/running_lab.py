"""A running lab as a suite sees it, and what can be asked of its machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lab._deadline import Deadline
from lab._errors import LabError
from lab.matrix.cell import Cell
from lab.matrix.verdict import RunResult
from lab.plan.plan import Plan
from lab.providers.failover import resolve_gateways
from lab.providers.provider import (
    LOOK_SECONDS,
    LabHandle,
    Outcome,
    Probe,
    ProbeSettings,
    Provider,
    RealCluster,
    find_cluster,
)
from lab.scenario.assertion import Assertion
from lab.scenario.scenario import Limit
from lab.topology.intent import Intent

if TYPE_CHECKING:
    from lab.explain.bracket import Bracket
    from lab.facts.difference import Difference
    from lab.facts.node import NodeFacts


class RunningLab(Protocol):
    """The interface of a running lab; ``lab.lifecycle`` implements it, and so do tests."""

    @property
    def name(self) -> str:
        """The lab's name."""

    @property
    def banner(self) -> str:
        """One sentence: which provider, and what is emulated."""

    @property
    def plan(self) -> Plan:
        """The lab's plan."""

    @property
    def intent(self) -> Intent:
        """The intended network of each machine."""

    @property
    def limits(self) -> Sequence[Limit]:
        """The known limits; the first match applies."""

    @property
    def assertions(self) -> Sequence[Assertion]:
        """The assertions of its scenario."""

    @property
    def provider(self) -> Provider:
        """The provider of the machines."""

    @property
    def handle(self) -> LabHandle:
        """The lab's handle for the provider."""

    @property
    def windows_rules_off(self) -> Sequence[str]:
        """Ids of the Windows rules that the lab's emulated nodes do not obey."""

    @property
    def repeat_with(self) -> str:
        """The command that repeats a cell, without its id, of a lab that is taken down afterwards.

        Empty for ``lab test NAME -k``.
        """

    def require_running(self) -> None:
        """Check that the machines run.

        Raises BrokenError if they do not.
        """

    def in_use(
        self, command: str, say: Callable[[str], None], *, alone: bool = False
    ) -> AbstractContextManager[None]:
        """Hold the lab while ``command`` works on it; ``say`` is called with a line if it waits.

        With ``alone``, other tests wait.

        Raises LabError if another command works on the lab for too long.
        """

    def cut_off(self, machine: str) -> None:
        """Take a machine off its networks; recorded, so that a later command can reconnect it."""

    def reconnect(self, machine: str) -> None:
        """Reconnect the machine."""

    def record(self, run: RunResult, intent: Intent | None = None) -> Path:
        """Store the result of a run of ``intent``; return the directory of its files."""

    def record_page(self, directory: Path, run: RunResult, intent: Intent | None = None) -> None:
        """Write the HTML report of a run into its directory."""

    def record_junit(self, directory: Path, text: str) -> None:
        """Write the JUnit of a run into its directory."""


@contextmanager
def bind_intent(
    lab: RunningLab, cluster: RealCluster | None = None, *, ready: bool = False
) -> Iterator[Intent]:
    """The lab's Intent; on a cluster its probe pods exist in the block, with their real addresses.

    ``cluster``: the lab's, if it was found already. ``ready``: whether to wait until the pods are
    Ready; where something is to be explained, one may never be.
    """
    cluster = cluster or find_cluster(lab.provider, lab.handle, lab.intent)
    if cluster is None:
        yield resolve_gateways(lab.provider, lab.handle, lab.intent)
        return
    with cluster.probed(ready=ready) as intent:
        yield resolve_gateways(lab.provider, lab.handle, intent)


@dataclass(frozen=True, slots=True)
class BoundLab:
    """What can be asked of the machines of a running lab, whose Intent is bound."""

    lab: RunningLab
    intent: Intent

    def send(
        self,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Mapping[int, Outcome]:
        """Send probes; ``progress`` is called with the number of finished ones."""
        lab = self.lab
        return lab.provider.probe(lab.handle, self.intent, probes, settings, progress)

    def look(
        self, places: Mapping[str, Sequence[str]], seconds: float = LOOK_SECONDS
    ) -> Mapping[str, NodeFacts | LabError]:
        """Observe machines, and the named pods on them."""
        deadline = Deadline(seconds)
        return self.lab.provider.observe(self.lab.handle, self.intent, places, deadline)

    def compare(
        self, places: Sequence[str], seconds: float = LOOK_SECONDS
    ) -> Mapping[str, Sequence[Difference] | LabError]:
        """Compare the state of machines and pods with how the lab makes them."""
        deadline = Deadline(seconds)
        return self.lab.provider.deviations(self.lab.handle, self.intent, places, deadline)

    def follow(self, cell: Cell, seconds: float) -> Bracket | None:
        """Probe a cell while capturing its packets, in so many seconds for one exchange.

        None if no loss was observed. Raises LabError when packets cannot be captured.
        """
        from lab.explain.bracket import find_bracket  # noqa: PLC0415  large; not for a green run
        from lab.explain.capture.probe import follow_loss  # noqa: PLC0415  the same

        provider, handle = self.lab.provider, self.lab.handle
        limits = self.lab.limits
        captured = follow_loss(provider, handle, self.intent, cell, limits, timeout=seconds)
        return find_bracket(captured, self.intent) if captured else None
