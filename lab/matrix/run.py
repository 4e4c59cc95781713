"""The engine: settle, probe everything at once, retry failures, judge.

It does no I/O: ``send`` sends probes and ``clock`` measures time, so that every path through the
engine can be tested without a network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.matrix.cell import Cell, Expectation
from lab.matrix.cells import family_of
from lab.matrix.judge import SHARED_TRIES, STICKY_TRIES, Judgement, expect, judge
from lab.matrix.verdict import CellResult, Verdict
from lab.providers.provider import Outcome, Probe, ProbeSettings, ProbesInterrupted
from lab.scenario.scenario import Limit
from lab.scenario.terms import Family

Dependency = str
"""``node 'win1'`` or ``Service 'to-win1-p1'``, for a sentence."""

_PREFERENCE = {"same-node": 0, "self": 1, "other-node": 2, "outside": 3}
"""Preferred relations first: a path inside one node depends on no other node."""


def list_dependencies(cell: Cell) -> tuple[Dependency, ...]:
    """The nodes and the Service that the cell's answer depends on."""
    named = [f"node '{name}'" for name in (cell.source.node, cell.entry, cell.target.node) if name]
    if cell.target.kind == "service":
        named.append(f"Service '{cell.target.name}'")
    elif cell.target.kind == "nodeport":
        named.append(f"Service '{cell.target.name.partition(':')[2]}'")
    elif cell.target.kind == "name":
        named.append("the DNS Service")
    return tuple(dict.fromkeys(named))


def choose_representatives(
    cells: Sequence[Cell], expectations: Sequence[Expectation]
) -> dict[Dependency, int]:
    """For each dependency, the index of the cell that represents it.

    Only cells that are expected to work are used; a dependency without any is not waited for. Small
    probes are preferred to large ones, and paths within one node to longer ones.
    """
    best: dict[Dependency, tuple[tuple[bool, int], int]] = {}
    for index, cell in enumerate(cells):
        if not expectations[index].works:
            continue
        rank = (cell.size != "small", _PREFERENCE[cell.relation])
        for dependency in list_dependencies(cell):
            known = best.get(dependency)
            if known is None or rank < known[0]:
                best[dependency] = (rank, index)
    return {dependency: index for dependency, (_, index) in best.items()}


def wait_for_dependencies(
    chosen: Mapping[Dependency, int],
    passes: Callable[[Sequence[int]], frozenset[int]],
    deadline: Deadline,
) -> frozenset[Dependency]:
    """Probe the chosen cells until all have passed; return the dependencies that never passed.

    A lab that does not settle is judged anyway: its cells say more than an error would. ``passes``
    tries the cells with the given indexes once and returns those that passed; only the missing ones
    are tried again.
    """
    missing = dict(chosen)

    def look() -> tuple[Dependency, ...]:
        passed = passes(sorted(set(missing.values())))
        for dependency, index in tuple(missing.items()):
            if index in passed:
                del missing[dependency]
        return tuple(missing)

    if not missing:
        return frozenset()
    try:
        deadline.wait(
            "waiting for Services and nodes to answer",
            look,
            until=lambda left: not left,
            every=0.1,
        )
    except DeadlineError:
        return frozenset(missing)
    return frozenset()


Send = Callable[[Sequence[Probe], ProbeSettings], Mapping[int, Outcome]]

_ROUNDS_AHEAD = 4
"""Batches of ``in_flight`` retries that are sent before the clock is checked again."""


_FIRST = ProbeSettings(timeout=1.0, in_flight=256)
_SECOND = ProbeSettings(timeout=2.0, in_flight=64, stage="probing again")
"""Longer than the one second after which TCP retransmits its first packet; a quarter in flight."""
_STREAMS = ProbeSettings(timeout=5.0, in_flight=1, stage="measuring streams")
"""A stream is measured for a second and a half; two at once would share what a link carries."""


@dataclass(frozen=True, slots=True)
class RunPace:
    """Time limits of a run, in seconds.

    ``budget`` is for the whole second pass, in which ``each`` cells of every (source node, target
    node, family) are retried before any other. ``settle`` limits the wait before the first pass.
    ``streams`` is for cells whose throughput is measured, in both passes.
    """

    first: ProbeSettings = _FIRST
    second: ProbeSettings = _SECOND
    streams: ProbeSettings = _STREAMS
    budget: float = 60.0
    each: int = 3
    settle: float = 2.0


PACE = RunPace()


def run(  # noqa: PLR0913  every seam of the engine is handed in here
    cells: Sequence[Cell],
    limits: Sequence[Limit],
    send: Send,
    clock: Callable[[], float],
    repeat: Callable[[Cell], str],
    *,
    pace: RunPace = PACE,
    obstacle: Callable[[Cell], str] = lambda _: "",
) -> tuple[CellResult, ...]:
    """Probe and judge every cell; the results are in the order of the cells.

    If Services or nodes do not answer within ``pace.settle``, the cells are judged anyway, and the
    detail of a failed cell names those that it depends on. Failures are retried until
    ``pace.budget`` is spent; the detail of the others says that they were not retried. The detail
    of a known limit says so if nothing else on its path got through either, as it then proves
    nothing.

    ``limits``: the first match applies. ``send``: sends the probes, and returns an outcome for
    every key, which is the cell's index. ``clock``: seconds, monotonic. ``repeat``: the command
    that repeats a cell. ``pace``: timeouts and budgets. ``obstacle``: why a cell cannot be probed,
    as a pod of it does not run; it is not sent, and its verdict is ``probe-error``.

    Raises RunInterrupted on Ctrl-C and SIGTERM, with the cells that were judged until then.
    """
    engine = _Engine(cells, limits, send, pace, obstacle)
    engine.settle()
    try:
        engine.first_pass()
        engine.second_pass(clock)
    except KeyboardInterrupt as stop:
        engine.interrupted = True
        raise RunInterrupted(engine.results(repeat)) from stop
    return engine.results(repeat)


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM during a run; the signal's exception is the first ``__cause__``."""

    def __init__(self, results: tuple[CellResult, ...]) -> None:
        self.results = results
        super().__init__()


class _Engine:
    def __init__(
        self,
        cells: Sequence[Cell],
        limits: Sequence[Limit],
        send: Send,
        pace: RunPace,
        obstacle: Callable[[Cell], str],
    ) -> None:
        self.cells = cells
        self.send = send
        self.pace = pace
        self.expectations: list[Expectation] = [expect(cell, limits) for cell in cells]
        self.probes: list[Probe] = [
            make_probe(index, cell, unanswered=self.expectations[index].refusal == "timeout")
            for index, cell in enumerate(cells)
        ]
        self.unsent = {
            index: Outcome.failed(index, "error", why)
            for index, cell in enumerate(cells)
            if (why := obstacle(cell))
        }
        self.attempts: dict[int, tuple[Outcome, ...]] = {}
        self.judgements: dict[int, Judgement] = {}
        """By the index of a cell, like ``attempts``; complete unless the run is interrupted."""
        self.interrupted = False
        self.unsettled: frozenset[Dependency] = frozenset()

    def settle(self) -> None:
        """Wait until one probe per Service and node has passed; keep those that never did."""
        quick = [
            at
            for at, pending in enumerate(self.probes)
            if not _is_stream(pending) and at not in self.unsent
        ]
        chosen = choose_representatives(
            [self.cells[at] for at in quick], [self.expectations[at] for at in quick]
        )
        chosen = {dependency: quick[at] for dependency, at in chosen.items()}
        self.unsettled = wait_for_dependencies(
            chosen, self._select_passing, Deadline(self.pace.settle)
        )

    def first_pass(self) -> None:
        self._attempt(range(len(self.cells)), self.pace.first)

    def second_pass(self, clock: Callable[[], float]) -> None:
        """Retry failures, few at a time, until the budget is spent.

        If the first cells of every group all fail again, too many probes at once were not the
        reason, and the others are sent as many at a time as in the first pass.
        """
        failed = [
            index for index, judgement in self.judgements.items() if judgement.verdict == "fail"
        ]
        order = order_retries(failed, self.cells, self.pace.each)
        groups = Counter(group_of(self.cells[index]) for index in failed)
        sampled = sum(min(count, self.pace.each) for count in groups.values())
        settings = self.pace.second
        ends = clock() + self.pace.budget
        done, end = 0, sampled
        while done < len(order) and (left := ends - clock()) > 0:
            if done == sampled:
                end = len(order)
                if all(self.judgements[index].verdict == "fail" for index in order[:done]):
                    settings = replace(settings, in_flight=self.pace.first.in_flight)
            rounds = max(1, min(_ROUNDS_AHEAD, int(left / settings.timeout)))
            batch = order[done : min(done + rounds * settings.in_flight, end)]
            self._attempt(batch, settings)
            done += len(batch)

    def _attempt(self, indexes: Sequence[int], settings: ProbeSettings) -> None:
        """Probe the cells once, and judge each with an outcome."""
        stop: ProbesInterrupted | None = None
        probes = [self.probes[index] for index in indexes if index not in self.unsent]
        try:
            outcomes = self._send_streams_last(probes, settings) if probes else {}
        except ProbesInterrupted as error:
            outcomes, stop = error.outcomes, error
        outcomes = {**outcomes, **self.unsent}
        for index in indexes:
            if stop is None or index in outcomes:
                self.attempts[index] = (*self.attempts.get(index, ()), outcomes[index])
                self.judgements[index] = self._judge(index)
        if stop is not None:
            raise stop

    def _send_streams_last(
        self, probes: Sequence[Probe], settings: ProbeSettings
    ) -> Mapping[int, Outcome]:
        """Send the probes; streams are sent when all others have been answered."""
        streams = [pending for pending in probes if _is_stream(pending)]
        if not streams:
            return self.send(probes, settings)
        others = [pending for pending in probes if not _is_stream(pending)]
        outcomes = dict(self.send(others, settings)) if others else {}
        try:
            return {**outcomes, **self.send(streams, self.pace.streams)}
        except ProbesInterrupted as stop:
            raise ProbesInterrupted({**outcomes, **stop.outcomes}) from stop

    def results(self, repeat: Callable[[Cell], str]) -> tuple[CellResult, ...]:
        """The results of the cells that were judged."""
        judged = sorted(self.judgements)
        doubtful = find_unproven(
            [self.cells[index] for index in judged],
            [self.expectations[index] for index in judged],
            [self.judgements[index].verdict for index in judged],
        )
        return tuple(
            self._result(index, repeat(self.cells[index]), doubtful=position in doubtful)
            for position, index in enumerate(judged)
        )

    def _result(self, index: int, repeat: str, *, doubtful: bool) -> CellResult:
        """The result of one cell, with details beyond the verdict."""
        cell, attempts = self.cells[index], self.attempts[index]
        verdict, detail = self.judgements[index]
        retried = len(attempts) > 1
        if verdict == "fail" and not retried:
            spent = f"the {self.pace.budget:g} s for retries were spent"
            detail += f"; not retried: {'the run was interrupted' if self.interrupted else spent}"
        if verdict == "fail" and self.unsettled:
            named = [
                dependency for dependency in list_dependencies(cell) if dependency in self.unsettled
            ]
            if named:
                detail += f"; {' and '.join(named)} had not settled when the run began"
        if doubtful:
            path = f"'{cell.target.node}' from '{cell.source.node}'"
            doubt = f"{UNPROVEN}: nothing that should have reached {path} did"
            detail = f"{detail}; {doubt}" if detail else doubt
        expectation = self.expectations[index]
        return CellResult(cell, expectation, verdict, detail, attempts, retried, repeat)

    def _select_passing(self, indexes: Sequence[int]) -> frozenset[int]:
        outcomes = self.send([self.probes[index] for index in indexes], self.pace.first)
        return frozenset(
            index
            for index in indexes
            if judge(self.cells[index], self.expectations[index], (outcomes[index],)).verdict
            == "pass"
        )

    def _judge(self, index: int) -> Judgement:
        return judge(self.cells[index], self.expectations[index], self.attempts[index])


def make_probe(key: int, cell: Cell, *, unanswered: bool = False) -> Probe:
    """Build the probe of a cell; it is not sent."""
    family = family_of(cell)
    return Probe(
        key=key,
        source=cell.source.name,
        protocol=cell.protocol,
        size=cell.size,
        address=cell.target.address,
        port=cell.target.port,
        mtu=cell.mtu,
        name=cell.target.name if cell.target.kind == "name" else None,
        tries=_tries(cell),
        dialect=family.dialect,
        every=family.every_address,
        name_port=family.name_port,
        unanswered=unanswered,
    )


def _is_stream(probe: Probe) -> bool:
    return probe.dialect == "throughput"


def _tries(cell: Cell) -> int:
    if cell.sticky:
        return STICKY_TRIES
    return SHARED_TRIES if len(cell.backends) > 1 else 1


UNPROVEN = "not tested"
"""Part of the detail of an unproven cell."""
NodePair = tuple[str, str]
"""The node of the source and the node that answers."""


def find_unproven(
    cells: Sequence[Cell], expectations: Sequence[Expectation], verdicts: Sequence[Verdict]
) -> frozenset[int]:
    """The indexes of cells that time out as expected, but would also do so on a broken path.

    For these, the run has controls (cells of the same path that should work), and none of them
    worked. A cell without controls is not included.
    """
    tried: set[NodePair] = set()
    through: set[NodePair] = set()
    for cell, expectation, verdict in zip(cells, expectations, verdicts, strict=True):
        path = _node_pair(cell)
        if path is not None and expectation.works and _is_direct(cell):
            tried.add(path)
            if verdict in {"pass", "flaky"}:
                through.add(path)
    broken = tried - through
    return frozenset(
        index
        for index, cell in enumerate(cells)
        if verdicts[index] in {"known-limit", "pass"}
        and expectations[index].refusal == "timeout"
        and _node_pair(cell) in broken
    )


def _node_pair(cell: Cell) -> NodePair | None:
    source, target = cell.source.node, cell.target.node
    return None if source is None or target is None else (source, target)


def _is_direct(cell: Cell) -> bool:
    return cell.entry in {None, cell.source.node, cell.target.node}


Group = tuple[str, str, Family]


def group_of(cell: Cell) -> Group:
    """Source node, target node and family: such cells usually fail for the same reason.

    For a NodePort, the target node is the one probed. The name of an endpoint without a node is
    used instead of the node's name.
    """
    target = cell.entry or cell.target.node or cell.target.name
    return (cell.source.node or cell.source.name, target, cell.family)


def order_retries(failed: Sequence[int], cells: Sequence[Cell], each: int) -> tuple[int, ...]:
    """The failed cells' indexes in the order of retries.

    First one cell of every group, then a second of every group, and so on up to ``each``; then all
    others. Within a round, the order of ``failed`` is kept.
    """
    rounds: list[list[int]] = [[] for _ in range(each + 1)]
    ranks: dict[Group, int] = {}
    for index in failed:
        key = group_of(cells[index])
        rank = ranks.get(key, 0)
        ranks[key] = rank + 1
        rounds[min(rank, each)].append(index)
    return tuple(index for members in rounds for index in members)
