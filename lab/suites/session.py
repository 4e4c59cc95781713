"""One lab under test: its cells, the chosen ones, and the run that judges them all at once."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol, cast

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError, PreflightError, UsageError
from lab._log import listed, say
from lab.explain.bracket import Bracket, find_bracket
from lab.explain.capture.probe import follow_loss
from lab.explain.causes import with_causes, with_marginal, with_places
from lab.explain.explainer import compare_lab, list_unlearned
from lab.explain.lab_queries import LOOK_SECONDS, compare_or_errors
from lab.facts.difference import Difference
from lab.facts.node import NodeFacts
from lab.facts.objects import CLUSTER_NAME
from lab.matrix.cell import Cell
from lab.matrix.cells import make_matrix
from lab.matrix.failover import Failover, Turn, beats, holder_to_lose
from lab.matrix.obstructed import Obstructions
from lab.matrix.run import PACE, RunInterrupted, Send, run
from lab.matrix.sampling import LIMIT, Choice, Strategy, coverage, sample
from lab.matrix.verdict import GREEN, CellResult, RunResult
from lab.plan.plan import Plan
from lab.providers.provider import (
    FAILOVER,
    MACHINES,
    BeatPace,
    FailoverProvider,
    LabHandle,
    Outcome,
    Probe,
    ProbeSettings,
    Provider,
    RealCluster,
    find_cluster,
    resolve_gateways,
)
from lab.providers.workloads import WorkloadResult, wanted
from lab.scenario.scenario import Limit
from lab.shells.parallel import run_jobs
from lab.state.capacity import available, check_room
from lab.state.stamps import FORMAT
from lab.topology import gateways
from lab.topology.intent import Intent


class SuiteLab(Protocol):
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

    def join_again(self, machine: str) -> None:
        """Reconnect the machine."""

    def record(self, run: RunResult, intent: Intent | None = None) -> Path:
        """Store the result of a run of ``intent``; return the directory of its files."""

    def record_page(self, directory: Path, run: RunResult, intent: Intent | None = None) -> None:
        """Write the HTML report of a run into its directory."""

    def record_junit(self, directory: Path, text: str) -> None:
        """Write the JUnit of a run into its directory."""


@contextmanager
def bind_intent(
    lab: SuiteLab, cluster: RealCluster | None = None, *, ready: bool = False
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
class LabView:
    """What can be asked of the machines of a running lab, whose Intent is bound."""

    lab: SuiteLab
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
        provider, handle = self.lab.provider, self.lab.handle
        limits = self.lab.limits
        captured = follow_loss(provider, handle, self.intent, cell, limits, timeout=seconds)
        return find_bracket(captured, self.intent) if captured else None


_BYTES_A_CELL = 10_000
"""Memory for cell, pytest item, outcome, JUnit and reports; measured: 9.5 KB with 57,000 cells."""
_STORED_A_CELL = 2_500
"""Disk space for result.json, JUnit (twice while it is copied) and report.html; measured: less
than 1.5 KB, and 2.3 KB if a third of the cells fail."""
_GIB = 1 << 30


def require(cells: int, strategy: Strategy, lab: str) -> None:
    """Refuse a matrix that does not fit into memory.

    A sample by ``node-pairs`` has about :data:`LIMIT` cells; one by ``os-pairs`` always fits.

    Raises PreflightError with the figures, and a smaller alternative.
    """
    whole = strategy == "full"
    probed = cells if whole else min(cells, LIMIT)
    needed = probed * _BYTES_A_CELL
    free = available()
    if needed > free and strategy != "os-pairs":
        raise PreflightError(
            f"probing {'every cell' if whole else 'a sample'} of lab '{lab}'",
            f"{probed:,} cells need about {needed / _GIB:,.1f} GiB of memory, and this machine "
            f"has {free / _GIB:,.1f} GiB free",
            f"--sample {'node-pairs' if cells > LIMIT and whole else 'os-pairs'}, or fewer "
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


Progress = Callable[[int, int], None]
"""Called with the number of finished probes of a pass, and their total."""


_FOLLOWED = 0.6
"""Seconds for one exchange that is followed: a retransmission would show nothing new."""
_BEGIN_SECONDS, _BEGIN_ON_CLUSTER, _PLACES_SECONDS = 4.0, 10.0, 15.0
"""The last failure is followed no later than this after the first; then all that is waited for."""
_RUN_LOOK_SECONDS = 30.0
"""A machine that hangs costs a run no more than this; over SSH to emulated ones it takes ten."""
_FIRST_BATCH = 64
"""Cells in the first batch if a red cell ends the run; each batch doubles the number of cells."""
_ON_CLUSTER = replace(PACE, settle=60.0)
"""kube-proxy follows the API with a delay: 17 of 22 probes became 22 of 22 seconds later."""


class LabSession:
    """The lab of one pytest session.

    ``product`` is the whole matrix, and ``cells`` the cells to choose from: all, or a sample if
    there are too many. ``cluster`` is the lab's Kubernetes if it has one, and ``checks`` its
    workload checks. ``found`` (results by cell id) is empty and ``run`` None until :meth:`probe`
    has judged the chosen cells; ``directory`` is None until the run is stored.

    Raises MatrixError if the lab has no cells, or none in a family that its scenario asks for.
    Raises PreflightError if the cells do not fit into this machine's memory.
    """

    def __init__(self, lab: SuiteLab, choice: Choice = Choice()) -> None:  # noqa: B008  frozen
        self.lab = lab
        self.cluster = find_cluster(lab.provider, lab.handle, lab.intent)
        self.intent = (
            self.cluster.foreseen()
            if self.cluster
            else resolve_gateways(lab.provider, lab.handle, lab.intent)
        )
        """From the first probe on, with the addresses that the pods have."""
        self.choose(choice)
        self.checks = wanted(self.intent) if self.cluster else ()
        self.workloads: Mapping[str, WorkloadResult] = {}
        self.found: Mapping[str, CellResult] = {}
        self.run: RunResult | None = None
        self.interrupted: KeyboardInterrupt | None = None
        """What ended :meth:`probe` early, if anything did."""
        self.directory: Path | None = None

    def choose(self, choice: Choice) -> None:
        """Take another choice, before :attr:`cells` is looked at. Raises as the class does."""
        self.choice = choice
        self.matrix = make_matrix(self.lab.plan, self.intent, choice.families)
        require(self.matrix.size, choice.strategy_for(self.matrix), self.lab.name)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The cells to choose from, by ``choice`` at the time of the first access."""
        return sample(self.matrix, self.choice)

    def probe(
        self,
        chosen: Sequence[Cell],
        progress: Progress,
        *,
        workloads: bool = False,
        enough: int = 0,
    ) -> RunResult:
        """Probe and judge the chosen cells in bulk, while no other command changes the lab.

        With ``workloads``, the checks of its cluster are made, too. ``enough``: number of red cells
        after which no more cells are judged; 0 judges all.

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
                view = LabView(self.lab, intent.running())
                results = self._judge(chosen, self._send(progress, view, watch), enough)
                if not all(result.verdict in GREEN for result in results):
                    watch.require()  # failures mean nothing if the lab has died meanwhile
                results = self._unless_interrupted(
                    results,
                    lambda results: with_causes(
                        results,
                        view.intent,
                        lambda places: view.look(places, _RUN_LOOK_SECONDS),
                        lambda places: _compare(view, places, _RUN_LOOK_SECONDS),
                    ),
                )
                if self.cluster and workloads and len(results) == len(chosen):
                    self._unless_interrupted(results, self._check_workloads)
                nodes = self.cluster.versions() if self.cluster else ()
            watch.require()
        begin = _BEGIN_ON_CLUSTER if self.cluster else _BEGIN_SECONDS
        results = self._unless_interrupted(
            results, lambda results: _add_places(results, view, begin)
        )
        results = with_marginal(results, view.intent)
        self.found = {result.cell.id: result for result in results}
        made = self._as_run(results, started, time.monotonic() - begun)
        self.run = replace(
            made,
            nodes=nodes,
            workloads=tuple(self.workloads.values()),
            interrupted=self.interrupted is not None,
        )
        return self.run

    def _check_workloads(self, results: tuple[CellResult, ...]) -> tuple[CellResult, ...]:
        """Make the workload checks of the cluster; the results of cells do not change."""
        assert self.cluster is not None
        self.workloads = {workload.id: workload for workload in self.cluster.workloads()}
        return results

    def _unless_interrupted(
        self,
        results: tuple[CellResult, ...],
        step: Callable[[tuple[CellResult, ...]], tuple[CellResult, ...]],
    ) -> tuple[CellResult, ...]:
        """The results after a step; as they were before if Ctrl-C or SIGTERM stops it."""
        if self.interrupted is not None:
            return results
        try:
            return step(results)
        except KeyboardInterrupt as stop:
            self.interrupted = stop
            return tuple(replace(result, searched=False) for result in results)

    def _judge(self, chosen: Sequence[Cell], send: Send, enough: int) -> tuple[CellResult, ...]:
        """Judge all cells at once; with ``enough``, in batches until there are enough red cells."""
        results: list[CellResult] = []
        cells = self._with_addresses(chosen)
        obstructions = Obstructions(self.intent)
        while len(results) < len(cells):
            size = max(_FIRST_BATCH, len(results)) if enough else len(cells)
            try:
                results += run(
                    cells[len(results) : len(results) + size],
                    self.lab.limits,
                    send,
                    time.monotonic,
                    self._repeat,
                    pace=_ON_CLUSTER if self.cluster else PACE,
                    obstacle=obstructions.reason,
                )
            except KeyboardInterrupt as stop:
                results += stop.results if isinstance(stop, RunInterrupted) else ()
                if not results:
                    raise
                self.interrupted = stop
                explained = map(obstructions.explain, results)
                return tuple(replace(result, searched=False) for result in explained)
            red = [at for at, result in enumerate(results) if result.verdict not in GREEN]
            if enough and len(red) >= enough:
                results = results[: red[enough - 1] + 1]
                break
        return tuple(map(obstructions.explain, results))

    def require_failover(self) -> None:
        """Check that :meth:`fail_over` is possible.

        Raises UsageError when the provider or the lab does not support a failover.
        """
        FailoverTest(self.lab, self.lab.intent)

    def fail_over(self) -> Failover:
        """Cut off the holder of a gateway and reconnect it; add the result to the run.

        Raises LabError when the lab has no gateway that could fail over, or it cannot be measured.
        """
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
        made = {cell.id: cell for cell in sample(whole, self.choice)}
        return [made[cell.id] for cell in chosen]

    def _repeat(self, cell: Cell) -> str:
        repeat = self.lab.repeat_with or f"lab test {shlex.quote(self.lab.name)} -k"
        return f"{repeat} {shlex.quote(cell.id)}"

    def _send(self, progress: Progress, view: LabView, watch: LivenessWatch) -> Send:
        def send(probes: Sequence[Probe], settings: ProbeSettings) -> Mapping[int, Outcome]:
            watch.glance()  # retries on a lab that died would take minutes
            total = len(probes)
            progress(0, total)
            return view.send(probes, settings, lambda done: progress(done, total))

        return send

    def _as_run(
        self, results: tuple[CellResult, ...], started: datetime, seconds: float
    ) -> RunResult:
        plan, provider = self.lab.plan, self.lab.provider
        windows = tuple(node.name for node in plan.nodes if node.os == "windows")
        return RunResult(
            run=f"{started:{FORMAT}}-{secrets.token_hex(2)}",
            lab=self.lab.name,
            scenario=plan.scenario,
            summary=plan.summary,
            topology=plan.topology,
            provider=provider.name,
            banner=self.lab.banner,
            emulated_nodes=() if MACHINES in provider.abilities else windows,
            version=plan.version,
            started=started.isoformat(timespec="seconds"),
            seconds=seconds,
            results=results,
            coverage=coverage(self.matrix, self.choice, [result.cell for result in results]),
            windows_rules_off=tuple(self.lab.windows_rules_off),
            hosts=self.lab.intent.hosts(),
            temporary=bool(self.lab.repeat_with),
        )


def _compare(
    view: LabView, places: Sequence[str], seconds: float
) -> Mapping[str, Sequence[Difference] | LabError]:
    """The differences of the places; what did not answer is said: its causes are not known."""
    answers = compare_or_errors(lambda names: view.compare(names, seconds), places)
    silent: dict[str, list[str]] = {}
    for place, answer in answers.items():
        if isinstance(answer, LabError):
            silent.setdefault(answer.cause, []).append(place or CLUSTER_NAME)
    for reason, names in silent.items():
        say(f"causes at {listed(names)} are not known: {reason}")
    return answers


def _add_places(
    results: tuple[CellResult, ...], view: LabView, seconds: float
) -> tuple[CellResult, ...]:
    """The results; for failures without a cause, with the place where packets are lost.

    The last one is followed no later than ``seconds`` after the first.
    """
    followed: set[str] = set()

    @cache
    def ends() -> Deadline:
        return Deadline(_PLACES_SECONDS)  # from the first one on

    def follow(cell: Cell) -> Bracket | None:
        if not ends().left():
            return None
        followed.add(cell.id)
        job = {cell.id: lambda: view.follow(cell, _FOLLOWED)}
        try:
            return run_jobs({"": job}, {}, ends())[cell.id]
        except LabError:
            return None

    def compare(places: Sequence[str]) -> Mapping[str, Sequence[Difference] | LabError]:
        return _compare(view, places, ends().left())

    with_place = with_places(results, view.intent, compare, follow, time.monotonic, seconds)
    left = sum(result.unexplained and result.cell.id not in followed for result in with_place)
    if left:
        say(f"no time to follow {left} failures")
    return with_place


_SETTLE_SECONDS = 30.0
"""For routes to follow after pods get answers again; BGP recovers in 2 to 5 s."""
_LOOK_SECONDS = 20.0
_PACE = BeatPace()


class FailoverTest:
    """One failover of one lab.

    Raises UsageError when the provider cannot cut machines off, or the lab has no gateway to fail
    over.
    """

    def __init__(self, lab: SuiteLab, intent: Intent) -> None:
        if FAILOVER not in lab.provider.abilities:
            raise UsageError(
                f"testing the failover of lab '{lab.name}'",
                f"provider '{lab.provider.name}' cannot take a machine off its networks",
                "'--provider netns' and '--provider nspawn' can",
            )
        self._lab = lab
        self._failing = cast(FailoverProvider, lab.provider)
        self._intent = resolve_gateways(lab.provider, lab.handle, intent)
        self._lost = holder_to_lose(self._intent, lab.name)

    def run(self) -> Failover:
        """Cut off the holder, reconnect it, and return what was seen.

        Raises BrokenError when pods do not answer at the start, or the lab's machines do not exist.
        """
        lab, lost = self._lab, self._lost
        before = self._holders()
        say(f"failover: {lost} is taken off its networks")
        try:
            away = self._turn(lambda: lab.cut_off(lost), away=True)
            say(f"failover: {away.longest:.1f} s of silence; {lost} is put back")
            back = self._turn(lambda: lab.join_again(lost), away=False)
        finally:
            lab.join_again(lost)
        return Failover(lost, before, away, back)

    def _turn(self, change: Callable[[], None], *, away: bool) -> Turn:
        watched = beats(self._intent, self._lost)
        silences = self._failing.pulse(self._lab.handle, watched, change, _PACE)
        wrong = self._wrong(away=away)
        return Turn(silences, self._holders(), wrong)

    def _wrong(self, *, away: bool) -> tuple[str, ...]:
        """Differences from the Intent with the current holders, after time to settle."""
        try:
            Deadline(_SETTLE_SECONDS).wait(
                "waiting for every route to follow",
                lambda: self._differences(away=away),
                until=lambda differences: not differences,
                every=0.5,
            )
        except DeadlineError:
            return self._differences(away=away)
        return ()

    def _differences(self, *, away: bool) -> tuple[str, ...]:
        lab = self._lab
        now = resolve_gateways(lab.provider, lab.handle, self._intent)
        wanted = gateways.without(now, self._lost) if away else now
        places = {machine.name: [pod.name for pod in machine.pods] for machine in wanted.machines}
        answers = lab.provider.observe(lab.handle, wanted, places, Deadline(_LOOK_SECONDS))
        facts_of = {
            name: answer for name, answer in answers.items() if not isinstance(answer, LabError)
        }
        silent = [
            f"{name}: {answer}" for name, answer in answers.items() if isinstance(answer, LabError)
        ]
        silent += [
            f"{unread.pod or name}: {unread.part} cannot be read: {unread.reason}"
            for name, facts in facts_of.items()
            for unread in facts.unread
        ]
        # a cluster removes a lost node from Services with a delay
        compare = list_unlearned if wanted.kubernetes else compare_lab
        return (*silent, *(str(difference) for difference in compare(wanted, facts_of)))

    def _holders(self) -> Mapping[str, str | None]:
        """The holder of each gateway; None unless there is exactly one."""
        holders = self._failing.gateway_holders(self._lab.handle, self._intent)
        return {node: names[0] if len(names) == 1 else None for node, names in holders.items()}
