"""One lab under test: its cells, the items chosen, and the run that judges them all at once."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Protocol, cast

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError, PreflightError, UsageError
from lab._log import say
from lab.cluster.workload_checks import WorkloadResult, wanted
from lab.explain.bracket import Bracket, find_bracket
from lab.explain.capture.probe import follow_loss
from lab.explain.causes import with_causes, with_places
from lab.explain.comparison import compare_lab, unlearned
from lab.explain.question import LOOK_SECONDS, Look
from lab.facts.difference import StateDifference
from lab.matrix.cell import Cell
from lab.matrix.cells import product
from lab.matrix.failover import Failover, Turn, beats, holder_to_lose
from lab.matrix.run import PACE, Send, run
from lab.matrix.sampling import LIMIT, Choice, Strategy, coverage, sample
from lab.matrix.verdict import GREEN, CellResult, RunResult
from lab.plan.plan import Plan
from lab.providers.failover import BeatPace, FailoverProvider, resolve_gateways
from lab.providers.provider import (
    FAILOVER,
    MACHINES,
    LabHandle,
    Outcome,
    Probe,
    ProbeSettings,
    Provider,
    find_cluster,
)
from lab.scenario.scenario import Limit
from lab.state.capacity import available, check_room
from lab.state.stamps import FORMAT
from lab.topology import gateways
from lab.topology.intent import Intent


class SuiteLab(Protocol):
    """One lab that is up, found by its name: the lifecycle has it, tests bring their own."""

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


_BYTES_A_CELL = 10_000
"""Cell, pytest item, outcome, JUnit and reports; measured: 9.5 KB a cell with 57,000 of them."""
_STORED_A_CELL = 2_500
"""result.json, JUnit twice while it is handed over, report.html and journal; measured: 1.5 KB,
and 2.3 KB where a third of the cells fail."""
_GIB = 1 << 30


def require(cells: int, strategy: Strategy, lab: str) -> None:
    """Refuse what does not fit.

    A sample by ``node-pairs`` has about :data:`LIMIT` cells; one by ``os-pairs`` always fits.

    Raises
    ------
    PreflightError
        With the figures, and what can be asked instead.

    """
    whole = strategy == "full"
    asked = cells if whole else min(cells, LIMIT)
    needed = asked * _BYTES_A_CELL
    free = available()
    if needed > free and strategy != "os-pairs":
        raise PreflightError(
            f"asking {'every cell' if whole else 'a sample'} of lab '{lab}'",
            f"{asked:,} cells need about {needed / _GIB:,.1f} GiB of memory, and this machine "
            f"has {free / _GIB:,.1f} GiB free",
            f"--sample {'node-pairs' if cells > LIMIT and whole else 'os-pairs'}, or fewer "
            "families under 'matrix' in the scenario",
        )


def require_disk(cells: int, directory: Path) -> None:
    """Refuse to probe what could not be stored afterwards.

    Raises
    ------
    FullError
        With what is free and what is needed.

    """
    check_room(directory, cells * _STORED_A_CELL)


SECONDS = 2.0
"""Between two looks at least."""
_SHARE = 20
"""A look takes a twentieth of the time at most: at an emulated cluster one takes 18 s."""


class LivenessWatch:
    """Looks at the lab now and then.

    Parameters
    ----------
    look
        Raises what is to end the test.
    clock
        Seconds, monotonic.

    """

    def __init__(
        self, look: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look = look
        self._clock = clock
        self._next = 0.0

    def require(self) -> None:
        """Look now."""
        began = self._clock()
        self._look()
        ended = self._clock()
        self._next = ended + max(SECONDS, _SHARE * (ended - began))

    def glance(self) -> None:
        """Look if the last time is long enough ago."""
        if self._clock() >= self._next:
            self.require()


Progress = Callable[[int, int], None]
"""Told how many of how many probes of a pass have ended."""


_FOLLOWED = 0.6
"""Seconds for one exchange that is followed: a second packet would show nothing new."""
_FIRST_BATCH = 64
"""Cells that are asked first where a red one ends the run; each batch doubles what was asked."""
_ON_CLUSTER = replace(PACE, settle=60.0)
"""kube-proxy follows the API in its own time: 17 of 22 probes became 22 of 22 seconds later."""


class LabSession:
    """A lab between pytest's start and end.

    ``product`` is all that could be asked and ``cells`` what is to choose from: a sample of it,
    where there is too much. ``cluster`` is the lab's Kubernetes where it has one, and ``checks``
    what is to be checked there. ``found`` (results by cell id) is empty and ``run`` None until
    :meth:`probe` has judged the chosen cells; ``directory`` is None until the run is stored.

    Raises
    ------
    MatrixError
        If the lab has no cells, or none in a family that its scenario asks for.
    PreflightError
        If all cells are asked for, and this machine cannot hold them.

    """

    def __init__(self, lab: SuiteLab, choice: Choice = Choice()) -> None:  # noqa: B008  frozen
        self.lab = lab
        self.choice = choice
        self.cluster = find_cluster(lab.provider, lab.handle, lab.intent)
        self.intent = (
            self.cluster.foreseen()
            if self.cluster
            else resolve_gateways(lab.provider, lab.handle, lab.intent)
        )
        """From the first probe on with what its pods have got."""
        self.product = product(lab.plan, self.intent)
        require(self.product.size, choice.strategy_for(self.product), lab.name)
        self.checks = wanted(self.intent) if self.cluster else ()
        self.workloads: Mapping[str, WorkloadResult] = {}
        self.found: Mapping[str, CellResult] = {}
        self.run: RunResult | None = None
        self.directory: Path | None = None

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The cells to choose from, as ``choice`` says when they are first looked at."""
        return sample(self.product, self.choice)

    def probe(
        self,
        chosen: Sequence[Cell],
        progress: Progress,
        *,
        workloads: bool = False,
        enough: int = 0,
    ) -> RunResult:
        """Judge the chosen cells, in bulk, while no other command changes the lab.

        With ``workloads`` the checks of its cluster are made too. Of ``enough`` red cells the
        last is the last that is judged; 0 judges all.

        Raises
        ------
        LabError
            When the lab's machines are not there, or went while they were probed, or another
            command works on them, or the disk cannot take what will be found.

        """
        require_disk(len(chosen), self.lab.handle.directory)
        watch = LivenessWatch(self.lab.require_running)
        with self.lab.used("test", say):
            watch.require()
            started, begun = datetime.now(UTC), time.monotonic()
            with self.bound() as intent:
                self.intent = intent
                results = self._judge(chosen, self._send(progress, intent, watch), enough)
                if not all(result.verdict in GREEN for result in results):
                    watch.require()  # silence of a lab that died meanwhile says nothing
                results = with_causes(results, intent, self._look(intent))
                if self.cluster and workloads and len(results) == len(chosen):
                    self.workloads = {one.id: one for one in self.cluster.workloads()}
                nodes = self.cluster.versions() if self.cluster else ()
            watch.require()
        if self.cluster is None:
            results = self._placed(results, intent)
        self.found = {result.cell.id: result for result in results}
        made = self._as_run(results, started, time.monotonic() - begun)
        self.run = replace(made, nodes=nodes, workloads=tuple(self.workloads.values()))
        return self.run

    def _judge(self, chosen: Sequence[Cell], send: Send, enough: int) -> tuple[CellResult, ...]:
        """All cells at once; where a few red ones are ``enough``, in batches up to the last."""
        results: list[CellResult] = []
        cells = self._with_addresses(chosen)
        while len(results) < len(cells):
            size = max(_FIRST_BATCH, len(results)) if enough else len(cells)
            results += run(
                cells[len(results) : len(results) + size],
                self.lab.limits,
                send,
                time.monotonic,
                self._repeat,
                pace=_ON_CLUSTER if self.cluster else PACE,
            )
            red = [at for at, one in enumerate(results) if one.verdict not in GREEN]
            if enough and len(red) >= enough:
                return tuple(results[: red[enough - 1] + 1])
        return tuple(results)

    def require_failover(self) -> None:
        """See that :meth:`fail_over` has something to lose.

        Raises
        ------
        UsageError
            When the provider, or the lab, has nothing that could fail over.

        """
        FailoverTest(self.lab, self.lab.intent)

    def fail_over(self) -> Failover:
        """Lose the holder of a gateway and have it back; what was seen is part of the run.

        Raises
        ------
        LabError
            When the lab has no gateway that could fail over, or it cannot be measured.

        """
        with self.lab.used("test", say, alone=True):
            with self.bound() as intent:
                found = FailoverTest(self.lab, intent).run()
            self.lab.require_running()
        if self.run is not None:
            self.run = replace(self.run, failover=found)
        return found

    @contextmanager
    def bound(self) -> Iterator[Intent]:
        """What the cells are made from: on a cluster, with its pods there."""
        if self.cluster is None:
            yield self.intent
            return
        with self.cluster.probed() as intent:
            yield resolve_gateways(self.lab.provider, self.lab.handle, intent)

    def _with_addresses(self, chosen: Sequence[Cell]) -> Sequence[Cell]:
        """The chosen cells; on a cluster with what its pods have got."""
        if self.cluster is None:
            return chosen
        bound = product(self.lab.plan, self.intent)
        made = {cell.id: cell for cell in sample(bound, self.choice)}
        return [made[cell.id] for cell in chosen]

    def _repeat(self, cell: Cell) -> str:
        repeat = self.lab.repeat_with or f"lab test {shlex.quote(self.lab.name)} -k"
        return f"{repeat} {shlex.quote(cell.id)}"

    def _send(self, progress: Progress, intent: Intent, watch: LivenessWatch) -> Send:
        lab = self.lab

        def send(probes: Sequence[Probe], settings: ProbeSettings) -> Mapping[int, Outcome]:
            watch.glance()  # what is tried again of a lab that died takes minutes
            total = len(probes)
            progress(0, total)
            return lab.provider.probe(
                lab.handle, intent, probes, settings, lambda done: progress(done, total)
            )

        return send

    def _look(self, intent: Intent) -> Look:
        lab = self.lab
        return lambda asked: lab.provider.observe(lab.handle, intent, asked, Deadline(LOOK_SECONDS))

    def _placed(self, results: tuple[CellResult, ...], intent: Intent) -> tuple[CellResult, ...]:
        """With where the failures without a cause are lost; as they are, if it cannot be seen."""
        lab = self.lab

        def compare(places: Sequence[str]) -> Mapping[str, Sequence[StateDifference]]:
            return lab.provider.deviations(lab.handle, intent, places, Deadline(LOOK_SECONDS))

        def follow(cell: Cell) -> Bracket | None:
            try:
                captured = follow_loss(
                    *(lab.provider, lab.handle, intent, cell, lab.limits), timeout=_FOLLOWED
                )
            except LabError:
                return None
            return find_bracket(captured, intent) if captured else None

        return with_places(results, intent, compare, follow, time.monotonic)

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
            coverage=coverage(self.product, self.choice, [result.cell for result in results]),
            windows_rules_off=tuple(self.lab.windows_rules_off),
            hosts=self.lab.intent.hosts(),
        )


_SETTLE_SECONDS = 30.0
"""For routes to follow, after pods are answered again; BGP comes back in 2 to 5 s."""
_LOOK_SECONDS = 20.0
_PACE = BeatPace()


class FailoverTest:
    """One failover of one lab.

    Raises
    ------
    UsageError
        When the provider cannot take machines away, or the lab has no gateway to fail over.

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
        """Lose the holder, have it back, and say what was seen.

        Raises
        ------
        BrokenError
            When pods do not answer to begin with, or the lab's machines are not there.

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
        """What is not as it must be with the holders of now, once there has been time."""
        try:
            Deadline(_SETTLE_SECONDS).wait(
                "waiting for every route to follow",
                lambda: self._differences(away=away),
                until=lambda found: not found,
                every=0.5,
            )
        except DeadlineError:
            return self._differences(away=away)
        return ()

    def _differences(self, *, away: bool) -> tuple[str, ...]:
        lab = self._lab
        now = resolve_gateways(lab.provider, lab.handle, self._intent)
        wanted = gateways.without(now, self._lost) if away else now
        asked = {one.name: [pod.name for pod in one.pods] for one in wanted.machines}
        answers = lab.provider.observe(lab.handle, wanted, asked, Deadline(_LOOK_SECONDS))
        seen = {name: one for name, one in answers.items() if not isinstance(one, LabError)}
        silent = [f"{name}: {one}" for name, one in answers.items() if isinstance(one, LabError)]
        # a cluster takes Services from a lost node in its own time
        compare = unlearned if wanted.kubernetes else compare_lab
        return (*silent, *(str(one) for one in compare(wanted, seen)))

    def _holders(self) -> Mapping[str, str | None]:
        """Who alone holds each gateway."""
        found = self._failing.gateway_holders(self._lab.handle, self._intent)
        return {node: names[0] if len(names) == 1 else None for node, names in found.items()}
