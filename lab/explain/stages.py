"""The stages of explaining one request: probe it, look along its path, compare, and follow it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from lab._errors import LabError
from lab.explain.bracket import Bracket
from lab.explain.check import kind_of
from lab.explain.deviations import (
    add_deviations,
    find_deviating_path,
    find_end_deviations,
    is_in_doubt,
    list_deviations,
    rank_finding,
)
from lab.explain.explainer import Explainer, PathFindings
from lab.explain.explanation import Explanation
from lab.explain.known_lines import find_known_lines
from lab.explain.lab_queries import (
    Compare,
    LabQueries,
    NoAnswer,
    NotedQueries,
    Observe,
    compare_places,
    unread_parts,
)
from lab.explain.losses import drops_some, find_drops, find_losses, find_machine_rises
from lab.explain.objects import put_objects_first, split_by_path
from lab.explain.paths import flow_of, list_balancer_flows, places_of, select_machines
from lab.facts.command_lines import is_command
from lab.facts.difference import CLUSTER, SILENT, Difference
from lab.facts.node import NodeFacts
from lab.facts.signatures import InLog
from lab.matrix.cell import Cell, Expectation
from lab.matrix.judge import expect, judge
from lab.matrix.obstructed import Obstructions
from lab.matrix.run import Send, make_probe
from lab.matrix.verdict import GREEN, Verdict
from lab.providers.provider import ProbeSettings
from lab.scenario.scenario import Limit
from lab.topology.intent import Intent
from lab.topology.path import Flow, Path
from lab.topology.subject import DeviceSubject, Subject
from lab.topology.walk import walk

_TIMES = 6
"""Probes per cell: a loss of three packets in ten is then noticed with a probability of 88 %."""
_TIMES_SHARED = 1
"""A Service with several backends is tried up to 64 times by its own probe."""
_SETTINGS = ProbeSettings(timeout=2.0, in_flight=32)


def explain_cells(
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
    heard = NotedQueries(lab)
    answering = LabQueries(lab.send, lab.look, lab.read, heard.compare, heard.follow)
    case = Case(worst, intent, tuple(limits), answering, since, tuple(walk(intent, worst.flow)))
    for stage in STAGES if intent.cni is None else API_STAGES:
        case = stage(case)
    explanation = replace(
        case.explanation(),
        unanswered=heard.unanswered(),
        not_asked=heard.not_asked(),
        unrecorded=tuple(place for place in heard.unrecorded() if not _is_windows(intent, place)),
        stateless=tuple(place for place in heard.unrecorded() if _is_windows(intent, place)),
    )
    return explanation if worst.failed else _without_unread(explanation)


def _is_windows(intent: Intent, place: str) -> bool:
    """Whether a place is a Windows machine or a pod of one."""
    places = intent.places()
    return place in places and places[place][0].os == "windows"


def _without_unread(explanation: Explanation) -> Explanation:
    """What could not be read on the path of a cell that works is not what is wrong there."""
    findings = explanation.explained.findings
    unread = (
        NoAnswer("difference", (finding.place,), reason)
        for finding in findings
        for reason in unread_parts([finding])
    )
    known = tuple(finding for finding in findings if finding.kind != SILENT)
    return replace(
        explanation,
        explained=replace(explanation.explained, findings=known),
        unanswered=(*explanation.unanswered, *unread),
    )


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
    if any(not kind_of(finding).symptom for finding in case.findings):
        return case
    rest = {machine.name: () for machine in case.intent.everything()}
    rest = {name: pods for name, pods in rest.items() if name not in case.scope}
    whole = Explainer(case.intent, {**case.lab.look(rest), **case.facts})
    further = whole.explain(case.tried.flow, works=case.tried.expectation.works)
    case = case.with_findings(further) if further.findings else case
    elsewhere = whole.list_elsewhere() if case.failed and not case.findings else ()
    if near := _near(case.explained.path, elsewhere):
        case, elsewhere = replace(case, findings=near), ()
    return replace(case, elsewhere=(*elsewhere, *whole.list_unread(rest)))


def find_deviations(case: Case) -> Case:
    """What differs from the state that the lab made, where that may be the cause."""
    explained, compare = case.explained, case.lab.compare
    unready = _unready(explained, case.paths) if case.failed and case.intent.kubernetes else ()
    if unready and (deviating := find_deviating_path(case.paths, compare_places(compare, unready))):
        findings = (*deviating.findings, *case.findings)
        return replace(case, path=deviating.path, findings=findings)
    if case.failed and is_in_doubt(explained, case.bracket):
        explained, beside = add_deviations(explained, case.paths, compare, case.bracket)
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
    plane = case.intent.control_plane()
    needed, others = split_by_path(path, objects, plane)
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
    counted = find_drops(path, find_machine_rises(case.facts, case.lab.look(case.scope)))
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
API_STAGES: tuple[Stage, ...] = (find_changed_objects, read_logs)
"""The same where only the cluster's API answers: its machines are not the lab's."""


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


def _identity(difference: Difference) -> tuple[str, Subject, str, str]:
    """What tells a difference from others, wherever a packet meets it."""
    return difference.node, difference.subject, difference.attribute, difference.observed


def _is_tunnel(subject: Subject) -> bool:
    return isinstance(subject, DeviceSubject) and subject.kind == "tunnel"


def _unready(explained: PathFindings, paths: Iterable[Path]) -> Sequence[str]:
    """The pods that are asked and their machines, if they may be missing for a reason there."""
    if not any(kind_of(finding).of_containers for finding in explained.findings[:1]):
        return ()
    ends = [path.request[-1] for path in paths]
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
        if kind_of(difference).prevents_sending and difference.node in first
    )


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
