"""A simulated lab for the suite: two nodes, four pods, a scripted network."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest
from simulation import Fault, Network

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError, UsageError
from lab.facts.difference import Difference
from lab.facts.node import NodeFacts
from lab.matrix.cell import Cell
from lab.matrix.cells import cells, make_matrix
from lab.matrix.verdict import RunResult
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.providers.provider import (
    CLUSTER,
    Ability,
    LabHandle,
    Outcome,
    Pods,
    Probe,
    ProbeSettings,
    RealCluster,
)
from lab.scenario.assertion import Assertion
from lab.scenario.loader import find, load
from lab.scenario.scenario import Limit, Services
from lab.shells.shell import Completed
from lab.topology import registry
from lab.topology.intent import Intent


@cache
def blueprint() -> tuple[Plan, Intent, tuple[Limit, ...], tuple[Cell, ...]]:
    scenario = load(find("overlay"))
    few = tuple(group for group in scenario.nodes if group.name in {"master", "win1"})
    plan = make_plan(scenario.replace(nodes=few, services=Services()))
    plan = replace(plan, families=("pod-pod", "hairpin", "node-service", "node-pod"))
    intent = replace(registry.intent(plan), kubernetes=None)  # its pods are namespaces
    return plan, intent, registry.limits(plan), cells(plan, intent)


def no_fault(_cell: Cell, _attempt: int, outcome: Outcome) -> Outcome:
    return outcome


@dataclass
class EchoMachine:
    """Runs ``echo``; ``hang`` does not end, and anything else finds no machine."""

    name: str

    def run(self, command: Sequence[str], deadline: Deadline) -> Completed:
        if command[0] == "hang":
            raise DeadlineError("running 'hang'", f"not done within {deadline.seconds} s")
        if command[0] != "echo":
            raise BrokenError(f"entering '{self.name}'", "it is gone")
        return Completed(0, " ".join(command[1:]), "")


@dataclass
class PaperProvider:
    network: Network
    name: str = "netns"
    pods: Pods = "namespaces"
    abilities: frozenset[Ability] = frozenset({CLUSTER})
    broken: bool = False
    dies: bool = False
    """Whether the lab disappears after it has been probed."""
    asked: int = 0
    paper_cluster: RealCluster | None = None
    seen: dict[str, NodeFacts | LabError] = field(default_factory=dict)
    """The observed facts of its machines."""
    looked_at: list[tuple[str, ...]] = field(default_factory=list)

    def cluster(self, _lab: LabHandle, _intent: Intent) -> RealCluster | None:
        return self.paper_cluster

    def observe(
        self,
        _lab: LabHandle,
        _intent: Intent,
        asked: Mapping[str, Collection[str]],
        _deadline: Deadline,
    ) -> Mapping[str, NodeFacts | LabError]:
        self.looked_at.append(tuple(asked))
        return {name: one for name, one in self.seen.items() if name in asked}

    def machine(self, _lab: LabHandle, _intent: Intent, name: str) -> EchoMachine:
        return EchoMachine(name)

    def disclaimer(self, _intent: Intent) -> str:
        return ""

    def deviations(self, *_: object) -> Mapping[str, tuple[Difference, ...]]:
        return {}

    def probe(
        self,
        _lab: LabHandle,
        _intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        if self.broken:
            raise BrokenError("probing lab 'paper'", "the holder is gone", "lab up overlay")
        self.asked += 1
        outcomes = self.network.send(probes, settings)
        progress(len(probes))
        return outcomes


@dataclass
class PaperLab:
    directory: Path
    provider: PaperProvider
    plan: Plan
    intent: Intent
    limits: Sequence[Limit]
    assertions: Sequence[Assertion] = ()
    name: str = "paper"
    banner: str = "netns: paper, nothing is real; Windows node win1 is emulated"
    windows_rules_off: Sequence[str] = ()
    repeat_with: str = ""
    running: bool = True
    held: int = 0
    recorded: list[RunResult] = field(default_factory=list)
    junits: list[tuple[Path, str]] = field(default_factory=list)
    """Directory of the run, and its JUnit."""

    @property
    def handle(self) -> LabHandle:
        return LabHandle(self.name, self.directory, "token")

    def require_running(self) -> None:
        if not self.running or (self.provider.dies and self.provider.asked):
            raise BrokenError("looking for the machines of lab 'paper'", "absent", "lab up overlay")

    @contextmanager
    def in_use(
        self,
        command: str,
        _say: Callable[[str], None],
        *,
        alone: bool = False,  # noqa: ARG002  there is no other user
    ) -> Iterator[None]:
        assert command == "test"
        self.held += 1
        yield
        self.held -= 1

    def record(self, run: RunResult, intent: Intent | None = None) -> Path:
        self.tested = intent
        self.recorded.append(run)
        return self.directory / run.run

    def record_page(self, directory: Path, run: RunResult, intent: Intent | None = None) -> None:
        pass

    def record_junit(self, directory: Path, text: str) -> None:
        self.junits.append((directory, text))


class PaperLabs:
    """The pytest plugin that opens the lab and receives the run."""

    def __init__(
        self,
        directory: Path,
        fault: Fault = no_fault,
        *,
        error: LabError | None = None,
        **changes: object,
    ) -> None:
        plan, intent, limits, _ = blueprint()
        every = tuple(make_matrix(plan, intent, ["throughput"]).cells())
        provider = PaperProvider(Network(every, limits, fault))
        self.lab = PaperLab(directory, provider, plan, intent, limits)
        for name, value in changes.items():
            assert hasattr(self.lab, name)
            setattr(self.lab, name, value)
        self.error = error
        self.taken: list[tuple[RunResult, Path]] = []
        self.progress: list[tuple[str, int, int]] = []

    def pytest_lab_open(self, name: str) -> PaperLab:
        if self.error:
            raise self.error
        if name != "paper":
            raise UsageError(f"opening lab '{name}'", "there is no such lab", "lab up overlay")
        return self.lab

    @pytest.hookimpl
    def pytest_lab_progress(self, stage: str, done: int, total: int) -> None:
        self.progress.append((stage, done, total))

    def pytest_lab_recorded(self, run: RunResult, directory: Path | None) -> None:
        self.taken.append((run, directory))
