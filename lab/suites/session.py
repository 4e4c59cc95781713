"""One lab under test: its cells, the chosen ones, and the run that judges them all at once."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError, PreflightError
from lab._log import say
from lab.matrix.assertion import (
    ASSERTIONS,
    AssertionResult,
    AssertionVerdict,
    item_of,
    judge_assertion,
    place_assertions,
)
from lab.matrix.cell import Cell
from lab.matrix.cells import make_matrix
from lab.matrix.failover import Failover
from lab.matrix.links import LossyLinks, follow_links
from lab.matrix.obstructed import Obstructions
from lab.matrix.run import PACE, RunInterrupted, RunPace, Send, run
from lab.matrix.sampling import LIMIT, Choice, Strategy, coverage, sample
from lab.matrix.verdict import GREEN, CellResult, RunResult
from lab.providers.failover import resolve_gateways
from lab.providers.provider import (
    MACHINES,
    Outcome,
    Probe,
    ProbeSettings,
    Provider,
    RealCluster,
    find_cluster,
)
from lab.providers.workloads import WorkloadResult, wanted
from lab.scenario.assertion import Assertion
from lab.shells.checkout import made_here
from lab.state.capacity import available, check_room
from lab.state.stamps import FORMAT
from lab.suites.running_lab import BoundLab, RunningLab, bind_intent
from lab.topology.intent import Intent

WORKLOADS = "workloads"
"""Name of the collector of workload checks, and keyword for ``-k``, as ``ASSERTIONS``."""
_BYTES_A_CELL = 10_000
"""Memory for cell, pytest item, outcome, JUnit and reports; measured: 9.5 KB with 57,000 cells."""
_STORED_A_CELL = 2_500
"""Disk space for result.json, JUnit (twice while it is copied) and report.html; measured: less
than 1.5 KB, and 2.3 KB if a third of the cells fail."""
_GIB = 1 << 30


def require(cells: int, strategy: Strategy, lab: str, limit: int = LIMIT) -> None:
    """Refuse a matrix that does not fit into memory.

    A sample by ``node-pairs`` has about ``limit`` cells; one by ``os-pairs`` always fits.

    Raises PreflightError with the figures, and a smaller alternative.
    """
    whole = strategy == "full"
    probed = cells if whole else min(cells, limit)
    needed = probed * _BYTES_A_CELL
    free = available()
    if needed > free and strategy != "os-pairs":
        raise PreflightError(
            f"probing {'every cell' if whole else 'a sample'} of lab '{lab}'",
            f"{probed:,} cells need about {needed / _GIB:,.1f} GiB of memory, and this machine "
            f"has {free / _GIB:,.1f} GiB free",
            f"--sample {'node-pairs' if cells > limit and whole else 'os-pairs'}, or fewer "
            "families under 'matrix' in the scenario",
        )


SECONDS = 2.0
"""Shortest interval between two checks."""
_SHARE = 20
"""Checks take at most one twentieth of the time: on an emulated cluster one takes 18 s."""


class LivenessWatch:
    """Checks periodically that the lab is alive.

    ``look``: raises the error that ends the test. ``clock``: seconds, monotonic.
    """

    def __init__(
        self, look: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look = look
        self._clock = clock
        self._next = 0.0

    def require(self) -> None:
        """Check now."""
        began = self._clock()
        self._look()
        ended = self._clock()
        self._next = ended + max(SECONDS, _SHARE * (ended - began))

    def glance(self) -> None:
        """Check if the last check was long enough ago."""
        if self._clock() >= self._next:
            self.require()


Progress = Callable[[str, int, int], None]
"""Called with a stage, the number of finished probes in it, and their total."""


_BEGIN_SECONDS, _BEGIN_ON_CLUSTER = 4.0, 10.0
"""The last failure is followed no later than this after the first."""
_FIRST_BATCH = 64
"""Cells in the first batch if a red cell ends the run; each batch doubles the number of cells."""
_ON_CLUSTER = replace(PACE, settle=60.0)
"""kube-proxy follows the API with a delay: 17 of 22 probes became 22 of 22 seconds later."""
_ON_EXISTING = replace(PACE, settle=15.0, first=replace(PACE.first, in_flight=32))
"""Nodes that are not the lab's have run for long, and not just been made. They have other work: of
100 connections that a pod begins at once, some take longer than a second on a busy node."""


_CELLS_ON_EXISTING = 16_000
"""More would be a load on a cluster that others use, and take longer than half a minute."""


def is_existing(provider: Provider, cluster: RealCluster | None) -> bool:
    """Whether the cluster is there without the lab, which has no machines."""
    return cluster is not None and MACHINES not in provider.abilities


def choose_pace(provider: Provider, cluster: RealCluster | None) -> RunPace:
    """How long to wait for Services and nodes before they are judged."""
    if cluster is None:
        return PACE
    return _ON_EXISTING if is_existing(provider, cluster) else _ON_CLUSTER


class MatrixSession:
    """The lab of one pytest session.

    ``matrix`` is the whole matrix, and ``cells`` the cells to choose from: all, or a sample if
    there are too many. ``cluster`` is the lab's Kubernetes if it has one. ``found`` (results by
    cell id), ``workloads`` and ``asserted`` (by id) are empty and ``run`` None until :meth:`probe`
    has judged the chosen cells and checks; ``directory`` is None until the run is stored.

    Raises MatrixError if the lab has no cells, or none in a family that its scenario asks for.
    Raises PreflightError if the cells do not fit into this machine's memory.
    """

    def __init__(self, lab: RunningLab, choice: Choice = Choice()) -> None:  # noqa: B008  frozen
        self.lab = lab
        self.cluster = find_cluster(lab.provider, lab.handle, lab.intent)
        self.intent = (
            self.cluster.foreseen()
            if self.cluster
            else resolve_gateways(lab.provider, lab.handle, lab.intent)
        )
        """From the first probe on, with the addresses that the pods have."""
        self.choose(choice)
        self.placed = tuple(place_assertions(lab.assertions, self.intent))
        self.workloads: Mapping[str, WorkloadResult] = {}
        self.asserted: Mapping[str, AssertionResult] = {}
        self.found: Mapping[str, CellResult] = {}
        self.run: RunResult | None = None
        self.interrupted: KeyboardInterrupt | None = None
        """What ended :meth:`probe` early, if anything did."""
        self.directory: Path | None = None

    def choose(self, choice: Choice) -> None:
        """Take another choice, before :attr:`cells` is looked at. Raises as the class does."""
        if is_existing(self.lab.provider, self.cluster):
            choice = replace(choice, limit=_CELLS_ON_EXISTING)
        self.choice = choice
        self.matrix = make_matrix(self.lab.plan, self.intent, choice.families)
        strategy = choice.strategy_for(self.matrix)
        require(self.matrix.size, strategy, self.lab.name, choice.limit)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The cells to choose from, by ``choice`` at the time of the first access."""
        return sample(self.matrix, self.choice)

    @property
    def checks(self) -> Mapping[str, tuple[str, ...]]:
        """The names of all checks besides the cells, by group."""
        nodes = wanted(self.intent) if self.cluster else ()
        names = {
            WORKLOADS: tuple(f"{node}/{check}" for node, check in nodes),
            ASSERTIONS: tuple(f"{assertion.name}/{place}" for assertion, place in self.placed),
        }
        return {group: checks for group, checks in names.items() if checks}

    @property
    def checked(self) -> Mapping[str, WorkloadResult | AssertionResult]:
        """The results of the checks that were made, by ``GROUP/NAME``."""
        results: dict[str, WorkloadResult | AssertionResult] = {
            f"{WORKLOADS}/{name}": workload for name, workload in self.workloads.items()
        }
        return results | {made.item: made for made in self.asserted.values()}

    def probe(
        self,
        chosen: Sequence[Cell],
        progress: Progress,
        *,
        checks: Collection[str] = (),
        enough: int = 0,
    ) -> RunResult:
        """Probe and judge the chosen cells in bulk, while no other command changes the lab.

        ``checks``: ids (``GROUP/NAME``) of the checks to make; of the workload checks all are made
        if there is one among them. ``enough``: number of red cells after which no more cells are
        judged; 0 judges all.

        On Ctrl-C and SIGTERM the run has the cells that were judged; without any it raises.

        Raises LabError when the lab's machines do not exist, or disappear while they are probed,
        when another command works on the lab, or when the disk has no room for the results.
        """
        check_room(self.lab.handle.directory, len(chosen) * _STORED_A_CELL)
        watch = LivenessWatch(self.lab.require_running)
        with self.lab.in_use("test", say):
            watch.require()
            started, begun = datetime.now(UTC), time.monotonic()
            with self.bound() as intent:
                self.intent = intent
                view = BoundLab(self.lab, intent.running())
                results = self._judge(chosen, self._send(progress, view, watch), enough)
                red = not all(result.verdict in GREEN for result in results)
                if red:
                    watch.require()  # failures mean nothing if the lab has died meanwhile
                    step = partial(_add_causes, view)
                    results = self._at_stage(progress, "looking for causes", results, step)
                if checks and len(results) == len(chosen):
                    self._at_stage(progress, "checking", results, partial(self._check, checks))
                nodes = self.cluster.versions() if self.cluster else ()
            watch.require()
        if red and self.intent.cni is None:
            begin = _BEGIN_ON_CLUSTER if self.cluster else _BEGIN_SECONDS
            step = partial(_add_places, view, begin)
            results = self._at_stage(progress, "looking for lost packets", results, step)
        self.found = {result.cell.id: result for result in results}
        run = self._as_run(results, started, time.monotonic() - begun)
        self.run = replace(
            run,
            nodes=nodes,
            workloads=tuple(self.workloads.values()),
            assertions=tuple(self.asserted.values()),
            interrupted=self.interrupted is not None,
        )
        return self.run

    def _check(
        self, checks: Collection[str], results: tuple[CellResult, ...]
    ) -> tuple[CellResult, ...]:
        """Make workload checks and assertions; the results of cells do not change."""
        if self.cluster and any(name.startswith(f"{WORKLOADS}/") for name in checks):
            self.workloads = {workload.id: workload for workload in self.cluster.workloads()}
        asserted: dict[str, AssertionResult] = {}
        for assertion, place in self.placed:
            if item_of(assertion.name, place) in checks:
                result = self._ask(assertion, place)
                asserted[result.id] = result
        self.asserted = asserted
        return results

    def _ask(self, assertion: Assertion, place: str) -> AssertionResult:
        """Run the command of an assertion on a node or in a pod, and judge it."""
        verdict: AssertionVerdict = "known-limit"
        begun = time.monotonic()
        if node := self._emulated_node(place):
            detail = f"'{node}' is emulated: it has no programs of Windows"
        else:
            verdict, detail = self._run(assertion, place)
        return AssertionResult(
            name=assertion.name,
            place=place,
            command=assertion.command,
            verdict=verdict,
            detail=detail,
            seconds=time.monotonic() - begun,
            repeat=self._repeat(item_of(assertion.name, place)),
            line=assertion.line,
        )

    def _run(self, assertion: Assertion, place: str) -> tuple[AssertionVerdict, str]:
        """Verdict and detail of an assertion."""
        try:
            machine = self.lab.provider.machine(self.lab.handle, self.intent, place)
            completed = machine.run(assertion.command, Deadline(assertion.timeout))
        except DeadlineError:
            return "fail", f"the command did not end within {assertion.timeout} s"
        except LabError as error:
            return "probe-error", error.cause
        detail = judge_assertion(assertion, completed)
        return "fail" if detail else "pass", detail

    def _emulated_node(self, place: str) -> str:
        """The emulated node that the place is, or is on; empty if it is none."""
        for machine in self.intent.machines:
            names = (machine.name, *(pod.name for pod in machine.pods))
            if place in names and machine.name in self._emulated_nodes:
                return machine.name
        return ""

    @property
    def _emulated_nodes(self) -> tuple[str, ...]:
        provider = self.lab.provider
        if MACHINES in provider.abilities or provider.pods != "namespaces":
            return ()
        return tuple(node.name for node in self.lab.plan.nodes if node.os == "windows")

    def _at_stage(
        self,
        progress: Progress,
        stage: str,
        results: tuple[CellResult, ...],
        step: Callable[[tuple[CellResult, ...]], tuple[CellResult, ...]],
    ) -> tuple[CellResult, ...]:
        """The results after a step; as they were before if Ctrl-C or SIGTERM stops it."""
        if self.interrupted is not None:
            return results
        progress(stage, 0, 1)
        try:
            return step(results)
        except KeyboardInterrupt as stop:
            self.interrupted = stop
            return tuple(replace(result, searched=False) for result in results)
        finally:
            progress(stage, 1, 1)

    def _judge(self, chosen: Sequence[Cell], send: Send, enough: int) -> tuple[CellResult, ...]:
        """Judge all cells at once; with ``enough``, in batches until there are enough red cells."""
        results: list[CellResult] = []
        cells = self._with_addresses(chosen)
        obstructions, lossy = Obstructions(self.intent), LossyLinks(self.intent)
        while len(results) < len(cells):
            size = max(_FIRST_BATCH, len(results)) if enough else len(cells)
            try:
                results += run(
                    cells[len(results) : len(results) + size],
                    self.lab.limits,
                    send,
                    time.monotonic,
                    lambda cell: self._repeat(cell.id),
                    pace=follow_links(choose_pace(self.lab.provider, self.cluster), self.intent),
                    obstacle=obstructions.reason,
                )
            except KeyboardInterrupt as stop:
                results += stop.results if isinstance(stop, RunInterrupted) else ()
                if not results:
                    raise
                self.interrupted = stop
                explained = map(obstructions.add_finding, results)
                return tuple(replace(result, searched=False) for result in explained)
            red = [at for at, result in enumerate(results) if result.verdict not in GREEN]
            if enough and len(red) >= enough:
                results = results[: red[enough - 1] + 1]
                break
        return tuple(map(lossy.add_remark, map(obstructions.add_finding, results)))

    def require_failover(self) -> None:
        """Check that :meth:`fail_over` is possible.

        Raises UsageError when the provider or the lab does not support a failover.
        """
        from lab.suites.failover import FailoverTest  # noqa: PLC0415  compares machines

        FailoverTest(self.lab, self.lab.intent)

    def fail_over(self) -> Failover:
        """Cut off the holder of a gateway and reconnect it; add the result to the run.

        Raises LabError when the lab has no gateway that could fail over, or it cannot be measured.
        """
        from lab.suites.failover import FailoverTest  # noqa: PLC0415  the same

        with self.lab.in_use("test", say, alone=True):
            with self.bound() as intent:
                failover = FailoverTest(self.lab, intent).run()
            self.lab.require_running()
        if self.run is not None:
            self.run = replace(self.run, failover=failover)
        return failover

    def bound(self) -> AbstractContextManager[Intent]:
        """The Intent for the cells; on a cluster, its probe pods exist during the block."""
        return bind_intent(self.lab, self.cluster, ready=True)

    def _with_addresses(self, chosen: Sequence[Cell]) -> Sequence[Cell]:
        """The chosen cells; on a cluster, with the addresses that its pods have."""
        if self.cluster is None:
            return chosen
        whole = make_matrix(self.lab.plan, self.intent, self.choice.families)
        by_id = {cell.id: cell for cell in sample(whole, self.choice)}
        return [by_id[cell.id] for cell in chosen]

    def _repeat(self, judged: str) -> str:
        """The command that repeats a cell or an assertion, by its id."""
        repeat = self.lab.repeat_with or f"lab test {shlex.quote(self.lab.name)} -k"
        return f"{repeat} {shlex.quote(judged)}"

    def _send(self, progress: Progress, view: BoundLab, watch: LivenessWatch) -> Send:
        def send(probes: Sequence[Probe], settings: ProbeSettings) -> Mapping[int, Outcome]:
            watch.glance()  # retries on a lab that died would take minutes
            total = len(probes)
            progress(settings.stage, 0, total)
            outcomes = view.send(
                probes, settings, lambda done: progress(settings.stage, done, total)
            )
            progress(settings.stage, total, total)
            return outcomes

        return send

    def _as_run(
        self, results: tuple[CellResult, ...], started: datetime, seconds: float
    ) -> RunResult:
        plan, provider = self.lab.plan, self.lab.provider
        return RunResult(
            run=f"{started:{FORMAT}}-{secrets.token_hex(2)}",
            lab=self.lab.name,
            scenario=plan.scenario,
            summary=plan.summary,
            topology=plan.topology,
            provider=provider.name,
            banner=self.lab.banner,
            emulated_nodes=self._emulated_nodes,
            disclaimer=provider.disclaimer(self.lab.intent),
            version=plan.version,
            started=started.isoformat(timespec="seconds"),
            seconds=seconds,
            results=results,
            coverage=coverage(self.matrix, self.choice, [result.cell for result in results]),
            windows_rules_off=tuple(self.lab.windows_rules_off),
            hosts=self.lab.intent.hosts(),
            temporary=bool(self.lab.repeat_with),
            provenance=made_here(),
        )


def _add_causes(view: BoundLab, results: tuple[CellResult, ...]) -> tuple[CellResult, ...]:
    from lab.suites.cause_search import add_causes  # noqa: PLC0415  large; not for a green run

    return add_causes(results, view)


def _add_places(
    view: BoundLab, seconds: float, results: tuple[CellResult, ...]
) -> tuple[CellResult, ...]:
    from lab.suites.cause_search import add_places  # noqa: PLC0415  large; not for a green run

    return add_places(results, view, seconds)
