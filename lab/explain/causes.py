"""The causes of a run's failures: what is wrong on their paths, or at the places of loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from lab._errors import LabError
from lab.explain.bracket import Bracket
from lab.explain.deviations import find_end_deviations, list_deviations, rank_finding
from lab.explain.explainer import Explainer
from lab.explain.lab_queries import Compare, Follow, Observe, compare_places
from lab.explain.losses import drops_some
from lab.explain.objects import list_concerns, put_objects_first, split_by_path
from lab.explain.paths import (
    central_machines,
    flow_of,
    list_balancer_flows,
    places_of,
    select_machines,
)
from lab.facts.difference import CLUSTER, OBJECT, Difference
from lab.matrix.cell import Cell
from lab.matrix.run import group_of, order_retries
from lab.matrix.verdict import CellResult
from lab.topology.intent import Intent
from lab.topology.path import Path
from lab.topology.walk import walk

MOST_CELLS = 48
"""Number of failures whose paths are walked to find the machines that they share."""
MOST_MACHINES = 16
"""Number of those machines that are observed; one takes a few hundredths of a second, over SSH one
second.
"""
_EACH = 2
"""Failures of each (source node, target node, family) that come before any other."""
MOST_CAUSES = 20_000
"""Number of failures that are walked, the most telling first; a thousand take about a second."""
_EACH_CAUSE = 3


def of_failures(intent: Intent, cells: Sequence[Cell]) -> Mapping[str, tuple[str, ...]]:
    """The machines to observe for many failed cells at once: those that most paths pass."""
    chosen = order_retries(list(range(len(cells))), cells, _EACH)[:MOST_CELLS]
    paths = [path for index in chosen for path in walk(intent, flow_of(cells[index]))]
    passes = Counter(name for path in paths for name in path.machines)
    most = {name for name, _ in passes.most_common(MOST_MACHINES)} | central_machines(intent)
    return {name: pods for name, pods in select_machines(intent, paths).items() if name in most}


def with_causes(
    results: Sequence[CellResult], intent: Intent, look: Observe, compare: Compare = lambda _: {}
) -> tuple[CellResult, ...]:
    """The results; failures get the findings on their paths, if there are any.

    One observation of the machines that most failures pass serves them all; without failures there
    is none. If the lab cannot be observed, the results are unchanged.

    Parameters
    ----------
    results
        Results of one run, with the lab still in the same state.
    intent
        The lab's Intent, bound to what is known only at run time.
    look
        Observes machines.
    compare
        Compares the cluster's objects with how the lab makes them.

    """
    updated = list(results)
    failed = _failed(updated)
    if not failed:
        return tuple(results)
    objects = _objects(intent, compare)
    if intent.cni is not None:
        return _by_objects(updated, failed, intent, objects)
    try:
        facts = look(of_failures(intent, [updated[at].cell for at in failed]))
    except LabError:
        return tuple(results)
    explainer = Explainer(intent, facts)
    for at in order_retries(failed, [result.cell for result in updated], _EACH_CAUSE)[:MOST_CAUSES]:
        works = updated[at].expectation.works
        explained = explainer.explain(flow_of(updated[at].cell), works=works)
        near, _ = split_by_path(explained.path, objects, intent.control_plane())
        if findings := put_objects_first(explained.path, explained.findings, near, None):
            updated[at] = replace(updated[at], finding=findings[0])
    return tuple(updated)


def _by_objects(
    results: list[CellResult], failed: Sequence[int], intent: Intent, objects: Sequence[Difference]
) -> tuple[CellResult, ...]:
    """The results; failures get the object of the API that is nearest to their path."""
    for at in failed[:MOST_CAUSES] if objects else ():
        path = walk(intent, flow_of(results[at].cell))[0]
        near, _ = split_by_path(path, objects, intent.control_plane())
        if near:
            results[at] = replace(results[at], finding=near[0][1])
    return tuple(results)


def _objects(intent: Intent, compare: Compare) -> Sequence[Difference]:
    """The differences of the cluster's objects; none without a cluster."""
    return compare_places(compare, [CLUSTER]).get(CLUSTER, ()) if intent.kubernetes else ()


def _failed(results: Sequence[CellResult]) -> list[int]:
    """Indices of the failures without a cause."""
    return [at for at, result in enumerate(results) if result.unexplained]


def with_places(  # noqa: PLR0913, PLR0917  results, three ways to ask the lab, and how long
    results: Sequence[CellResult],
    intent: Intent,
    compare: Compare,
    follow: Follow,
    clock: Callable[[], float],
    seconds: float,
) -> tuple[CellResult, ...]:
    """The results; failures without a cause get the differences at the place of their loss.

    Cells are followed one after another, the last one begun within ``seconds``, but at least one of
    each protocol. The cause of one is the cause of all cells with its protocol whose paths pass it;
    if nothing differs, the cells between the same nodes, and those whose paths pass the two points
    between which the probe is lost, get these points.
    """
    updated = list(results)
    failed = _failed(updated)
    if not failed:
        return tuple(results)
    first_ones = order_retries(failed, [result.cell for result in updated], _EACH_CAUSE)[
        :MOST_CAUSES
    ]
    paths = {at: walk(intent, flow_of(updated[at].cell)) for at in first_ones}
    compared: dict[str, Sequence[Difference]] = {}
    cluster = (CLUSTER,) if intent.kubernetes else ()
    ends, followed = clock() + seconds, set[str]()
    of_protocol = {updated[at].cell.protocol: at for at in reversed(first_ones)}
    for first in dict.fromkeys((*sorted(of_protocol.values()), *first_ones)):
        cell = updated[first].cell
        if updated[first].finding or (clock() > ends and cell.protocol in followed):
            continue
        followed.add(cell.protocol)
        bracket = follow(cell)
        if bracket is None:
            updated = _add_balancer_causes(updated, first, intent, compare)
            continue
        path = paths[first][bracket.path_index]
        if unknown := [place for place in (*places_of([path]), *cluster) if place not in compared]:
            compared |= {**dict.fromkeys(unknown, ()), **compare_places(compare, unknown)}
        objects = compared.get(CLUSTER, ())
        causes = [
            deviation for deviation in list_deviations(path, compared) if bracket.allows(deviation)
        ]
        causes.sort(key=lambda deviation: rank_finding(deviation, path, bracket))
        near, _ = split_by_path(path, objects, intent.control_plane())
        cause = next(iter(put_objects_first(path, causes, near, bracket)), _lost_at(path, bracket))
        needs = next(
            (difference.concerns for difference in objects if difference.subject == cause.subject),
            (),
        )
        for at, ways in paths.items():
            other = updated[at].cell
            hops = chain(*(enumerate(way.hops) for way in ways))
            number = next((number for number, hop in hops if hop.place == cause.place), -1)
            alike = group_of(other) == group_of(cell) or _passes(ways, bracket)
            if cause.kind == OBJECT:
                alike = any({*needs} & list_concerns(way).keys() for way in ways)
            elif causes:
                alike = number >= 0
            alike = alike and other.protocol == cell.protocol
            if updated[at].finding is None and (alike or at == first):
                updated[at] = replace(updated[at], finding=replace(cause, hop=number))
    return tuple(updated)


def _add_balancer_causes(
    results: list[CellResult], first: int, intent: Intent, compare: Compare
) -> list[CellResult]:
    """The results; what differs at an API server that never answered is the cause of such cells."""
    result = results[first]
    answered = result.attempts[-1].backends if result.attempts else ()
    for flow in list_balancer_flows(intent, result.cell, answered):
        for cause in find_end_deviations(walk(intent, flow)[0], compare)[:1]:
            alike = {at for at in _failed(results) if results[at].cell.family == result.cell.family}
            return [
                replace(each, finding=replace(cause, hop=-1)) if at in alike else each
                for at, each in enumerate(results)
            ]
    return results


MOST_MARGINAL = 1_000
"""Number of passed cells that are walked; that many take about a second."""


def with_marginal(results: Sequence[CellResult], intent: Intent) -> tuple[CellResult, ...]:
    """The results; what drops only some packets is the finding of passed cells on its path, too."""
    causes = dict.fromkeys(
        result.finding for result in results if result.finding and drops_some(result.finding)
    )
    protocols = {(result.finding, result.cell.protocol) for result in results}
    updated = list(results)
    walked = 0
    for at, result in enumerate(updated):
        if not causes or result.verdict != "pass" or walked == MOST_MARGINAL:
            continue
        walked += 1
        places = {hop.place for path in walk(intent, flow_of(result.cell)) for hop in path.hops}
        met = (each for each in causes if each and each.place in places)
        cause = next((each for each in met if (each, result.cell.protocol) in protocols), None)
        updated[at] = replace(result, finding=cause and replace(cause, hop=-1))
    return tuple(updated)


def _passes(ways: Sequence[Path], bracket: Bracket) -> bool:
    """Whether one of the paths leads from the one point of the loss to the other."""
    if bracket.last is None or bracket.missing is None:
        return False
    last, missing = (
        (point.tap.place, point.tap.device) for point in (bracket.last, bracket.missing)
    )
    for way in ways:
        passed = [(hop.place, hop.device) for hop in way.hops]
        if last in passed and missing in passed[passed.index(last) + 1 :]:
            return True
    return False


def _lost_at(path: Path, bracket: Bracket) -> Difference:
    """A finding with the two points, for a loss without a known difference."""
    number = next((n for n, hop in enumerate(path.hops) if hop.place in bracket.loss_places), 0)
    hop = path.hops[number]
    return Difference(
        "lost-here",
        "",
        hop.machine,
        "a probe is lost",
        "",
        "; ".join((bracket.sentence, *bracket.dropped())),
        "lab capture",
        "see the logs of the machines there",
        hop.place,
        number,
        subject=hop.subject,
    )
