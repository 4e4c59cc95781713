"""Explains one request: probes it, observes its path before and after, and judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from typing import Literal

from lab._errors import LabError
from lab._log import listed
from lab.explain.bracket import AT, BEYOND, UNREPORTED, Bracket
from lab.explain.explainer import LEARNED, Explainer, PathFindings
from lab.explain.objects import put_objects_first, split_by_path
from lab.explain.topics import protocols_of, table_family
from lab.facts.command_lines import is_command
from lab.facts.difference import DEVIATION, NOT_ASKED, OBJECT, SILENT, Difference
from lab.facts.node import NodeFacts, rises
from lab.facts.objects import CLUSTER
from lab.facts.signatures import InLog, in_log
from lab.matrix.cell import Cell, Expectation
from lab.matrix.judge import expect, judge
from lab.matrix.obstructed import Obstructions
from lab.matrix.run import Send, make_probe
from lab.matrix.verdict import GREEN, Verdict
from lab.providers.provider import Evidence, ProbeSettings
from lab.scenario.scenario import Limit
from lab.topology.intent import Intent
from lab.topology.path import Flow, Hop, Path
from lab.topology.routing import covers
from lab.topology.subject import CachedMtuSubject, DeviceSubject, RouteSubject, Subject, device_of
from lab.topology.walk import walk


def flow_of(cell: Cell) -> Flow:
    """The request of a cell."""
    target = cell.target
    # a Windows pod does not complete a partial name: the cluster's DNS server asks another one
    outside = cell.name_form == "partial" and cell.source.os == "windows"
    forwarded = cell.family == "node-names" or outside
    return Flow(cell.source.name, target.address, target.port, cell.protocol, forwarded)


def select_machines(intent: Intent, paths: Iterable[Path]) -> Mapping[str, tuple[str, ...]]:
    """The machines on the paths, in the Intent's order, with their pods that are on a path."""
    places = {hop.place for path in paths for hop in path.hops}
    passed = {hop.machine for path in paths for hop in path.hops} | central_machines(intent)
    return {
        machine.name: tuple(pod.name for pod in machine.pods if pod.name in places)
        for machine in intent.everything()
        if machine.name in passed
    }


def central_machines(intent: Intent) -> set[str]:
    """Machines that every path depends on: with a logical network's databases, or an API server."""
    plane = intent.control_plane()
    return {name for name in (intent.logical and intent.logical.central, plane) if name}


FEWEST = 3
"""Lost packets that count as a loss; fewer may belong to other traffic."""
COUNTED = frozenset({"packets-dropped", "lost-between"})
"""Kinds of findings from packet counters."""
_DROPS = ("dropped", "errors")
MOST_PLACES = 24
"""Number of machines and pods whose state is compared; one takes about 0.1 s."""
_NO_COMMAND = "run 'lab up' again: no single command undoes it"


def find_losses(
    path: Path,
    before: Mapping[str, NodeFacts | LabError],
    after: Mapping[str, NodeFacts | LabError],
) -> tuple[Difference, ...]:
    """Where on the path packets were lost between two observations with probes in between."""
    risen = dict(_list_counter_rises(before, after))
    return tuple(_find_drops(path, risen)) + tuple(_find_gaps(path, risen))


def _list_counter_rises(
    before: Mapping[str, NodeFacts | LabError], after: Mapping[str, NodeFacts | LabError]
) -> Iterator[tuple[str, Mapping[str, int]]]:
    """The increase of the counters of every machine that was observed twice."""
    for name, now in after.items():
        then = before.get(name)
        if isinstance(then, NodeFacts) and isinstance(now, NodeFacts):
            yield name, {rise.name: rise.value for rise in rises(then, now)}


def drops_some(difference: Difference) -> bool:
    """Whether it drops only some packets, or those beyond a rate."""
    return difference.kind == "packets-lost" or difference.effect.partial


def _find_drops(path: Path, risen: Mapping[str, Mapping[str, int]]) -> Iterator[Difference]:
    """Devices of the path that counted dropped packets themselves."""
    visited: set[tuple[str, str]] = set()
    for number, hop in enumerate(path.hops):
        if not hop.device or hop.place != hop.machine or (hop.machine, hop.device) in visited:
            continue
        visited.add((hop.machine, hop.device))
        drops = {
            name: count
            for name, count in risen.get(hop.machine, {}).items()
            if name.startswith(f"{hop.device} ") and name.endswith(_DROPS)
        }
        if drops:
            counts = ", ".join(f"{name} {count}" for name, count in drops.items())
            yield _finding(
                "packets-dropped", hop, number, f"{counts} while it was asked", "no drops"
            )


def _find_gaps(path: Path, risen: Mapping[str, Mapping[str, int]]) -> Iterator[Difference]:
    """Pairs of interfaces of which one sent packets and the other received none."""
    for number, (sender, receiver) in enumerate(pairwise(path.hops), start=1):
        if sender.kind != "card" or receiver.kind != "card" or sender.machine == receiver.machine:
            continue
        if sender.machine not in risen or receiver.machine not in risen:
            continue
        sent = risen[sender.machine].get(f"{sender.device} sent packets", 0)
        got = risen[receiver.machine].get(f"{receiver.device} received packets", 0)
        if sent >= FEWEST and not got:
            observed = f"{sent} packets sent by {sender.device} of {sender.machine}, none arrived"
            yield _finding("lost-between", receiver, number, observed, "as many as were sent")


def _finding(kind: str, hop: Hop, number: int, observed: str, intended: str) -> Difference:
    return Difference(
        kind,
        "",
        hop.machine,
        hop.object,
        intended,
        observed,
        f"ip -statistics link show dev {hop.device}",
        "check what is between the two: cable, switch, or the hypervisor's network",
        hop.machine,
        number,
        subject=hop.subject,
    )


Observe = Callable[[Mapping[str, Sequence[str]]], Mapping[str, NodeFacts | LabError]]
"""Observes machines, and the named pods on them."""
Follow = Callable[[Cell], Bracket | None]
"""Probes a cell once more while capturing its packets; None if no loss was observed."""
Compare = Callable[[Sequence[str]], Mapping[str, Sequence[Difference] | LabError]]
"""Compares the complete state of machines and pods with how the lab makes them; the error of a
place that did not answer, and nothing for one whose state as made is not recorded."""
Read = Callable[[Collection[str]], Iterable[Evidence]]
"""Reads the logs of machines."""

LOOK_SECONDS = 120.0
"""Seconds for one observation of a path's machines; over SSH to emulated machines it takes ten."""

_TIMES = 6
"""Probes per cell: a loss of three packets in ten is then noticed with a probability of 88 %."""
_TIMES_SHARED = 1
"""A Service with several backends is tried up to 64 times by its own probe."""
_SETTINGS = ProbeSettings(timeout=2.0, in_flight=32)
_UNSENT = frozenset({"link-down", "route-missing"})


Witness = Literal["where", "difference", "kernel"]
"""Where the probe is lost, what differs there, and what the kernel says of it."""


@dataclass(frozen=True, slots=True)
class Silence:
    """A source of evidence that gave no answer."""

    witness: Witness
    places: tuple[str, ...]
    """The machines and pods, or the cluster's objects; empty for the probe that is followed."""
    reason: str


@dataclass(frozen=True, slots=True)
class NotAsked:
    """Queries that machines were not asked, as they lack what it takes: no sign of a fault."""

    queries: tuple[str, ...]
    places: tuple[str, ...]
    reason: str
    """``"there is no 'tc'"``."""

    @property
    def line(self) -> str:
        """``queues at worker1, win1: there is no 'tc'``."""
        return f"{', '.join(self.queries)} at {listed(self.places)}: {self.reason}"


def group_not_asked(differences: Iterable[tuple[str, Difference]]) -> tuple[NotAsked, ...]:
    """What the differences of the kind ``NOT_ASKED``, each with its place, have in common."""
    by_reason: dict[str, list[tuple[str, str]]] = {}
    for place, difference in differences:
        if difference.kind == NOT_ASKED:
            by_reason.setdefault(difference.observed, []).append((difference.object, place))
    return tuple(
        NotAsked(
            tuple(dict.fromkeys(query for query, _ in pairs)),
            tuple(dict.fromkeys(place for _, place in pairs)),
            reason,
        )
        for reason, pairs in by_reason.items()
    )


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
    silences: tuple[Silence, ...] = ()
    not_asked: tuple[NotAsked, ...] = ()
    unrecorded: tuple[str, ...] = ()
    """Places that could not be compared, because their state as made is not recorded: a machine
    that was rebooted, a pod that was created anew, a Windows machine."""

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
        return not self.has_problem and not self.silences


@dataclass(frozen=True, slots=True)
class LabQueries:
    """The functions that query a running lab: they send probes, and read its machines."""

    send: Send
    look: Observe
    read: Read
    compare: Compare = lambda places: dict.fromkeys(places, ())
    follow: Follow = lambda _: None


def explain(
    cells: Sequence[Cell],
    limits: Sequence[Limit],
    intent: Intent,
    lab: LabQueries,
    since: float = 0,
) -> Explanation:
    """Explain the first of the cells with an unexpected result; if there is none, the first cell.

    Failures come before unexpected passes, whose rule is the explanation: their path is not
    inspected.

    Parameters
    ----------
    cells
        The cells between two endpoints.
    limits
        What is expected not to work.
    intent
        The lab's Intent, bound to what is known only at run time.
    lab
        The functions that query it.
    since
        When everything worked last, in seconds since 1970; log lines before that are not shown.

    """
    tried = _try_cells(cells, limits, lab.send)
    failed = [trial for trial in tried if trial.failed]
    failures = (trial for trial in failed if trial.verdict != "unexpected-pass")
    worst = next(failures, (failed or tried)[0])
    if worst.verdict == "unexpected-pass":  # nothing is wrong but the rule
        return worst.explanation(PathFindings(walk(intent, flow_of(worst.cell))[0], ()))
    heard = _NotedQueries(lab)
    answering = LabQueries(lab.send, lab.look, lab.read, heard.compare, heard.follow)
    case = Case(worst, intent, tuple(limits), answering, since, tuple(walk(intent, worst.flow)))
    for stage in STAGES:
        case = stage(case)
    explanation = replace(
        case.explanation(),
        silences=heard.silences(),
        not_asked=heard.not_asked(),
        unrecorded=heard.unrecorded(),
    )
    return explanation if worst.failed else _without_unread(explanation)


def _without_unread(explanation: Explanation) -> Explanation:
    """What could not be read on the path of a cell that works is not what is wrong there."""
    findings = explanation.explained.findings
    unread = (
        Silence("difference", (finding.place,), f"{finding.object}: {finding.observed}")
        for finding in findings
        if finding.kind == SILENT
    )
    known = tuple(finding for finding in findings if finding.kind != SILENT)
    return replace(
        explanation,
        explained=replace(explanation.explained, findings=known),
        silences=(*explanation.silences, *unread),
    )


class _NotedQueries:
    """Compares states and follows packets, and records which of these got no answer."""

    def __init__(self, lab: LabQueries) -> None:
        self._lab = lab
        self._silent: dict[tuple[Witness, str], list[str]] = {}
        self._not_asked: dict[tuple[str, Difference], None] = {}
        self._unrecorded: dict[str, None] = {}

    def compare(self, places: Sequence[str]) -> Mapping[str, Sequence[Difference]]:
        answers = compare_or_errors(self._lab.compare, places)
        for place in places:
            answer = answers.get(place)
            if answer is None:
                self._unrecorded[place] = None
            elif isinstance(answer, LabError):
                self._silent.setdefault(("difference", answer.cause), []).append(place)
            else:
                self._not_asked |= {
                    (place, difference): None
                    for difference in answer
                    if difference.kind == NOT_ASKED
                }
        return compare_places(lambda _: answers, places)

    def follow(self, cell: Cell) -> Bracket | None:
        try:
            bracket = self._lab.follow(cell)
        except LabError as error:
            self._silent["where", error.cause] = []
            return None
        for place, reason in bracket.untraced if bracket else ():
            self._silent.setdefault(("kernel", reason), []).append(place)
        return bracket

    def silences(self) -> tuple[Silence, ...]:
        return tuple(
            Silence(witness, tuple(dict.fromkeys(places)), reason)
            for (witness, reason), places in self._silent.items()
        )

    def not_asked(self) -> tuple[NotAsked, ...]:
        return group_not_asked(self._not_asked)

    def unrecorded(self) -> tuple[str, ...]:
        return tuple(self._unrecorded)


def explain_obstructed(
    cells: Sequence[Cell], limits: Sequence[Limit], intent: Intent
) -> Explanation | None:
    """Explain the first of the cells that cannot be probed, as a pod that it needs does not run.

    None if all can be probed.
    """
    obstructions = Obstructions(intent)
    for cell in cells:
        if finding := obstructions.finding(cell):
            path = walk(intent, flow_of(cell))[0]
            return Explanation(
                *(cell, expect(cell, limits), "probe-error", obstructions.reason(cell)),
                *(1, 1, PathFindings(path, (replace(finding, hop=0),))),
            )
    return None


@dataclass(frozen=True, slots=True)
class Case:
    """One request that is explained: how it is asked, and what is known so far."""

    tried: _Trial
    intent: Intent
    limits: Sequence[Limit]
    lab: LabQueries
    since: float
    paths: tuple[Path, ...]
    facts: Mapping[str, NodeFacts | LabError] = field(default_factory=dict)
    """What the machines of the paths answered."""
    bracket: Bracket | None = None
    findings: tuple[Difference, ...] = ()
    """What is wrong on the path, the cause first."""
    path: Path | None = None
    """The path with the findings; None for the first one."""
    elsewhere: tuple[Difference, ...] = ()
    marginal: tuple[Difference, ...] = ()
    logged: tuple[InLog, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a probe had an unexpected result."""
        return bool(self.tried.failed)

    @property
    def scope(self) -> Mapping[str, tuple[str, ...]]:
        """The machines on the paths, with their pods."""
        return select_machines(self.intent, self.paths)

    @property
    def explained(self) -> PathFindings:
        """The path, with what is wrong on it."""
        return PathFindings(self.path or self.paths[0], self.findings)

    def with_findings(self, explained: PathFindings) -> Case:
        """The case with another path, or other findings."""
        return replace(self, path=explained.path, findings=explained.findings)

    def explanation(self) -> Explanation:
        """What a user is told."""
        return replace(
            self.tried.explanation(self.explained),
            elsewhere=self.elsewhere,
            logged=self.logged,
            bracket=self.bracket,
            marginal=self.marginal,
        )


Stage = Callable[[Case], Case]


def check_machines(case: Case) -> Case:
    """What the checks find on the machines of the paths."""
    facts = case.lab.look(case.scope)
    tried = case.tried
    explained = Explainer(case.intent, facts).explain(tried.flow, works=tried.expectation.works)
    return replace(case, facts=facts).with_findings(explained)


def follow_packets(case: Case) -> Case:
    """Where the probe is lost."""
    return replace(case, bracket=case.lab.follow(case.tried.cell)) if case.failed else case


def count_packets(case: Case) -> Case:
    """Where packets are lost by the machines' counters, if nothing else is known."""
    if not case.failed or case.findings or case.bracket is not None:
        return case
    _try_cells([case.tried.cell], case.limits, case.lab.send)
    path = case.explained.path
    return replace(case, findings=find_losses(path, case.facts, case.lab.look(case.scope)))


def check_other_machines(case: Case) -> Case:
    """What is wrong on machines off the paths, if that may be the cause.

    Even if every probe was answered: another machine with a MAC of the path takes its packets
    sometimes.
    """
    if any(finding.kind not in LEARNED | COUNTED for finding in case.findings):
        return case
    rest = {machine.name: () for machine in case.intent.everything()}
    rest = {name: pods for name, pods in rest.items() if name not in case.scope}
    whole = Explainer(case.intent, {**case.lab.look(rest), **case.facts})
    further = whole.explain(case.tried.flow, works=case.tried.expectation.works)
    case = case.with_findings(further) if further.findings else case
    elsewhere = whole.elsewhere() if case.failed and not case.findings else ()
    if near := _near(case.explained.path, elsewhere):
        case, elsewhere = replace(case, findings=near), ()
    return replace(case, elsewhere=(*elsewhere, *whole.silent(rest)))


def find_deviations(case: Case) -> Case:
    """What differs from the state that the lab made, where that may be the cause."""
    explained, compare = case.explained, case.lab.compare
    unready = _unready(explained, case.paths) if case.failed and case.intent.kubernetes else ()
    if unready and (
        deviating := _find_deviating_path(case.paths, compare_places(compare, unready))
    ):
        findings = (*deviating.findings, *case.findings)
        return replace(case, path=deviating.path, findings=findings)
    if case.failed and _in_doubt(explained, case.bracket):
        explained, beside = _with_deviations(explained, case.paths, compare, case.bracket)
        return replace(case.with_findings(explained), elsewhere=(*case.elsewhere, *beside))
    if bracket := case.bracket:
        path = explained.path
        nearest = sorted(case.findings, key=lambda finding: rank_finding(finding, path, bracket))
        return replace(case, findings=tuple(nearest))
    return case


def find_changed_objects(case: Case) -> Case:
    """What differs of the cluster's objects."""
    if not case.failed or not case.intent.kubernetes:
        return case
    objects = compare_places(case.lab.compare, [CLUSTER]).get(CLUSTER, ())
    path = case.explained.path
    needed, others = split_by_path(path, objects, case.intent.control_plane())
    causes = put_objects_first(path, case.findings, needed, case.bracket)
    named = {cause.subject for cause in causes}
    beside = (finding for _, finding in needed if finding.subject not in named)
    return replace(case, findings=causes, elsewhere=(*case.elsewhere, *others, *beside))


def complete(case: Case) -> Case:
    """Add what is wrong behind the API balancer, and a command where a check has none."""
    if not case.failed:
        return case
    lab = case.lab
    case = case.with_findings(
        _complete_findings(case.explained, case.intent, case.tried, lab.look, lab.compare)
    )
    listed = {_identity(finding) for finding in case.findings}
    beside = (finding for finding in case.elsewhere if _identity(finding) not in listed)
    return replace(case, elsewhere=tuple(beside))


def look_for_drops(case: Case) -> Case:
    """What drops some packets of a cell that works, and what else differs there."""
    if case.failed or case.findings:
        return case
    _try_cells([case.tried.cell], case.limits, case.lab.send)
    path = case.explained.path
    differs = list_deviations(path, compare_places(case.lab.compare, places_of(case.paths)))
    counted = _find_drops(path, dict(_list_counter_rises(case.facts, case.lab.look(case.scope))))
    marginal = (
        # a tunnel drops what it has no entry for: all packets of a cell, or IPv6 multicast
        *(finding for finding in counted if not _is_tunnel(finding.subject)),
        *(finding for finding in differs if drops_some(finding)),
    )
    beside = (finding for finding in differs if not drops_some(finding))
    return replace(case, marginal=marginal, elsewhere=(*case.elsewhere, *beside))


def read_logs(case: Case) -> Case:
    """What the logs of the path's machines say, if something is wrong."""
    if not case.failed and not case.findings:
        return case
    logs = case.lab.read(case.explained.path.machines)
    return replace(case, logged=find_known_lines(logs, case.since))


STAGES: tuple[Stage, ...] = (
    check_machines,
    follow_packets,
    count_packets,
    check_other_machines,
    find_deviations,
    find_changed_objects,
    complete,
    look_for_drops,
    read_logs,
)
"""How a cell is explained, in order; each looks further only if the ones before leave it open."""


def list_balancer_flows(intent: Intent, cell: Cell, answered: Collection[str]) -> Sequence[Flow]:
    """The requests of the balancer in front of the API servers to those that never answer.

    None for cells of other families.
    """
    front = intent.services_node
    if front is None or cell.family != "api":
        return ()
    silent = (intent.machine(name) for name in cell.backends if name not in answered)
    return [Flow(front.machine, machine.address(), front.api_port, "tcp") for machine in silent]


def _first_wrong(
    intent: Intent, flows: Iterable[Flow], look: Observe, compare: Compare
) -> PathFindings | None:
    """What is wrong on the path of the first request for which anything is."""
    for flow in flows:
        path = walk(intent, flow)[0]
        explained = Explainer(intent, look(select_machines(intent, [path]))).explain(flow)
        if not explained.findings:
            explained = PathFindings(path, find_end_deviations(path, compare))
        if explained.findings:
            return explained
    return None


def find_end_deviations(path: Path, compare: Compare) -> tuple[Difference, ...]:
    """The differences of state of the machine or pod that is asked."""
    return list_deviations(path, compare_places(compare, [path.there[-1].place]))


def _identity(difference: Difference) -> tuple[str, Subject, str, str]:
    """What tells a difference from others, wherever a packet meets it."""
    return difference.node, difference.subject, difference.attribute, difference.observed


def _is_tunnel(subject: Subject) -> bool:
    return isinstance(subject, DeviceSubject) and subject.kind == "tunnel"


_UNREADY = frozenset({"backend-missing", "pod-not-listening"})
"""What follows on a cluster if a pod's container ends, or its node is not ready."""


def _unready(explained: PathFindings, paths: Iterable[Path]) -> Sequence[str]:
    """The pods that are asked and their machines, if they may be missing for a reason there."""
    if not any(finding.kind in _UNREADY for finding in explained.findings[:1]):
        return ()
    ends = [path.there[-1] for path in paths]
    return [*dict.fromkeys(place for end in ends for place in (end.place, end.machine))]


def _complete_findings(
    explained: PathFindings, intent: Intent, tried: _Trial, look: Observe, compare: Compare
) -> PathFindings:
    """With what is wrong behind a balancer, and a command instead of the advice of a new lab.

    The command is the one that undoes the only difference of its machine or pod.
    """
    if not explained.findings:
        behind = list_balancer_flows(intent, tried.cell, tried.answered)
        explained = _first_wrong(intent, behind, look, compare) or explained
    first = explained.findings[:1]
    if not first or not first[0].no_command:
        return explained
    differs = compare_places(compare, [first[0].place]).get(first[0].place, ())
    if len(differs) != 1 or not is_command(differs[0].mends):
        return explained
    finding = replace(first[0], shows=differs[0].shows, mends=differs[0].mends, no_command=False)
    return replace(explained, findings=(finding, *explained.findings[1:]))


def _in_doubt(explained: PathFindings, bracket: Bracket | None) -> bool:
    """Whether the checks found nothing at the place of the loss that can cause it.

    Not what the kernel does not report, if it reports a rule that drops the probe; nor a rule, if
    it reports something else there.
    """
    if bracket is None:
        return all(finding.kind in LEARNED | COUNTED for finding in explained.findings)
    ruled = bracket.dropping()
    other = any(word.drops and word.place in bracket.at for word in bracket.kernel)
    return all(
        finding.kind in LEARNED | COUNTED
        or _rank(finding, explained.path, bracket) != AT
        or (bracket.kernel_rank(finding) and (ruled or (other and finding.barrier is not None)))
        for finding in explained.findings
    )


_CONFIGURES = frozenset({"wrong-pool", "wrong-encapsulation", "wrong-as"})
"""Kinds of what nodes are told by the cluster: packets are lost anywhere for it."""


def _rank(finding: Difference, path: Path, bracket: Bracket) -> int:
    """Distance from the loss, or the hop; what serves all machines may be on any of them."""
    if finding.kind in _CONFIGURES:
        return AT
    met = path.hops[finding.hop].place if finding.hop >= 0 else finding.place
    return min(bracket.rank(finding), bracket.rank(replace(finding, place=met)))


def _with_deviations(
    explained: PathFindings, paths: Sequence[Path], compare: Compare, bracket: Bracket | None
) -> tuple[PathFindings, Sequence[Difference]]:
    """Findings by distance from the loss, and those that the packets rule out as the cause.

    Without a bracket, differences of the whole state are not reported as findings.
    """
    if bracket is None:
        deviating = _find_deviating_path(paths, compare_places(compare, places_of(paths)))
        return explained, [
            replace(finding, hop=-1) for finding in deviating.findings
        ] if deviating else ()
    path = paths[bracket.path_index]
    everywhere = places_of([path])
    near = bracket.at | bracket.next | bracket.dropping()
    here = [place for place in everywhere if place in near]
    others: list[Difference] = []
    for places in (here, [place for place in everywhere if place not in here]):
        differs = list_deviations(path, compare_places(compare, places)) if places else ()
        causes = [difference for difference in differs if bracket.allows(difference)]
        others += (
            replace(difference, hop=-1) for difference in differs if difference not in causes
        )
        if causes:
            every = sorted(
                (*causes, *explained.findings),
                key=lambda difference: rank_finding(difference, path, bracket),
            )
            return PathFindings(path, tuple(every)), others
    return explained, others


def rank_finding(
    finding: Difference, path: Path, bracket: Bracket
) -> tuple[bool, int, bool, bool, int, int, bool, int]:
    """Consequences last; then by distance; then what the kernel drops by; then known kinds.

    Of what was passed before the loss, the last comes first; what names only a protocol that the
    probe does not have there, a hook that it does not pass, or a route for other targets, comes
    after the rest.
    """
    dark = finding.attribute == "carrier"
    cached = isinstance(finding.subject, CachedMtuSubject)
    follows = dark or cached or finding.kind in LEARNED | COUNTED
    rank, heard = _rank(finding, path, bracket), bracket.kernel_rank(finding)
    passed = bracket.before.index(finding.place) if finding.place in bracket.before else 0
    hops = (hop for hop in path.hops if hop.place == finding.place)
    packets = [packet for hop in hops for packet in (hop.packet, hop.carried) if packet]
    protocols = protocols_of(finding)
    foreign = bool(protocols and packets) and protocols.isdisjoint(
        packet.protocol for packet in packets
    )
    foreign |= not _passes_hook(finding, path)
    route = finding.subject if isinstance(finding.subject, RouteSubject) else _DEFAULT
    foreign |= bool(packets) and not any(covers(route.prefix, packet.target) for packet in packets)
    wide = -route.length  # of several routes the longest one is used
    return follows, rank, heard > 0, foreign, passed, wide, finding.kind == DEVIATION, heard


_DEFAULT = RouteSubject("default")


def _passes_hook(finding: Difference, path: Path) -> bool:
    """Whether packets of the path pass one of the hooks of a chain; true of anything else.

    A machine that carries other packets in its own passes all of them.
    """
    hooks = finding.effect.hooks
    carries = any(hop.carried for hop in path.hops if hop.place == finding.place)
    if carries or table_family(finding) in {"bridge", "arp", "netdev"}:
        return True
    own = finding.place in {hop.place for hop in (*path.there[:1], *path.there[-1:])}
    return not hooks or not hooks <= ({"forward"} if own else {"input", "output"})


def places_of(paths: Iterable[Path]) -> list[str]:
    """The places that most of the paths pass."""
    passes = Counter(
        place for path in paths for place in dict.fromkeys(hop.place for hop in path.hops)
    )
    return [place for place, _ in passes.most_common(MOST_PLACES)]


def compare_places(compare: Compare, places: Sequence[str]) -> Mapping[str, Sequence[Difference]]:
    """The differences of the state of those places that could be compared."""
    return {
        place: [difference for difference in answer if difference.kind != NOT_ASKED]
        for place, answer in compare_or_errors(compare, places).items()
        if not isinstance(answer, LabError)
    }


def compare_or_errors(
    compare: Compare, places: Sequence[str]
) -> Mapping[str, Sequence[Difference] | LabError]:
    """The answers of the places; if nothing could be compared, the error of each."""
    try:
        return compare(places)
    except LabError as error:
        return dict.fromkeys(places, error)


def _find_deviating_path(
    paths: Iterable[Path], compared: Mapping[str, Sequence[Difference]]
) -> PathFindings | None:
    """The first path with differences; a path to another backend may have none."""
    explained = (PathFindings(path, list_deviations(path, compared)) for path in paths)
    return next((candidate for candidate in explained if candidate.findings), None)


def list_deviations(
    path: Path, compared: Mapping[str, Sequence[Difference]]
) -> tuple[Difference, ...]:
    """All differences of state along a path, by place; within a place, the path's devices first."""
    findings: list[Difference] = []
    for place in dict.fromkeys(hop.place for hop in path.hops):
        at = {
            hop.device: number
            for number, hop in reversed([*enumerate(path.hops)])
            if hop.place == place
        }
        first = next(number for number, hop in enumerate(path.hops) if hop.place == place)
        differences = sorted(
            compared.get(place, ()),
            key=lambda each: bool(device_of(each.subject)) and device_of(each.subject) not in at,
        )
        machine = path.hops[first].machine
        findings += (
            finding_of(machine, place, each, at.get(device_of(each.subject), first))
            for each in differences
        )
    return tuple(findings)


def finding_of(machine: str, place: str, difference: Difference, hop: int = -1) -> Difference:
    """The difference of the state of a machine, or of a pod on it."""
    within = "" if place == machine else f"pod {place}, "
    return replace(
        difference,
        node=machine,
        object=f"{within}{difference.object}",
        mends=difference.mends or _NO_COMMAND,
        place=place,
        hop=hop,
    )


def _near(path: Path, elsewhere: Iterable[Difference]) -> tuple[Difference, ...]:
    """What prevents a machine of the path from sending, even if this packet must not be sent.

    A kernel needs a route to a Service's address, and an active interface for it, before it
    evaluates the rules that drop the packet.
    """
    first: dict[str, int] = {}
    for number, hop in enumerate(path.hops):
        first.setdefault(hop.machine, number)
    return tuple(
        replace(difference, hop=first[difference.node])
        for difference in elsewhere
        if difference.kind in _UNSENT and difference.node in first
    )


_LOG_BYTES = 1 << 20
"""Bytes at the end of a log that are searched, in 0.2 s. A daemon that cannot connect writes
more in seconds."""


def find_known_lines(pieces: Iterable[Evidence], since: float = 0) -> tuple[InLog, ...]:
    """Known lines in those pieces that are logs; none before ``since`` (seconds since 1970)."""
    known_lines: list[InLog] = []
    for piece in pieces:
        if piece.is_log:
            begin = max(0, len(piece.content) - _LOG_BYTES)
            skipped = piece.content.count(b"\n", 0, begin)
            text = piece.content[begin:].decode(errors="replace")
            known_lines += (
                replace(
                    known_line,
                    match=replace(known_line.match, number=known_line.match.number + skipped),
                )
                for known_line in in_log(piece.path, text, since)
            )
    return tuple(known_lines)


@dataclass(frozen=True, slots=True)
class _Trial:
    cell: Cell
    expectation: Expectation
    verdict: Verdict
    detail: str
    times: int
    failed: int
    answered: Collection[str]
    """The endpoints that answered the last of its unexpected probes."""

    @property
    def flow(self) -> Flow:
        """The cell's request."""
        return flow_of(self.cell)

    def explanation(self, explained: PathFindings) -> Explanation:
        """The explanation, with a path and what is wrong on it."""
        return Explanation(
            *(self.cell, self.expectation, self.verdict, self.detail, self.times, self.failed),
            explained,
        )


def _try_cells(cells: Sequence[Cell], limits: Sequence[Limit], send: Send) -> list[_Trial]:
    """Probe every cell several times, all at once."""
    of_cell = [
        range(first, first + (_TIMES_SHARED if len(cell.backends) > 1 else _TIMES))
        for first, cell in zip(count(step=_TIMES), cells, strict=False)
    ]
    probes = [
        make_probe(key, cell) for cell, keys in zip(cells, of_cell, strict=True) for key in keys
    ]
    outcomes = send(probes, _SETTINGS)
    trials = []
    for cell, keys in zip(cells, of_cell, strict=True):
        expectation = expect(cell, limits)
        judged = [judge(cell, expectation, (outcomes[key],)) for key in keys]
        wrong = [at for at, judgement in enumerate(judged) if judgement.verdict not in GREEN]
        last = (wrong or range(len(judged)))[-1]
        verdict, detail = judged[last].verdict, judged[last].detail
        answered = outcomes[keys[last]].backends
        trials.append(_Trial(cell, expectation, verdict, detail, len(keys), len(wrong), answered))
    return trials
