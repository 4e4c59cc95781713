"""Group red cells into few sentences that describe them. Pure.

A candidate is the set of cells with one facet, or two (a place and a property, or two properties),
if at least nine in ten of its cells are red. Candidates are chosen greedily: each time the one that
explains the most unexplained red cells for the fewest green cells that it blames. Sets of cells are
integers used as bit masks, so that 10,000 cells and 100,000 candidates take milliseconds.

Known limits that held are left out: they count neither for nor against a candidate. Unexpected
passes are explained apart from failures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import NamedTuple

from lab._log import quantity
from lab.matrix.cell import Cell, Endpoint
from lab.matrix.run import UNPROVEN
from lab.matrix.verdict import RED, CellResult, Verdict
from lab.reports.wording import path_words, verdict_words
from lab.scenario.terms import Os

ENOUGH = 0.9
"""Smallest share of red cells in a candidate."""
BLAME = 2
"""Number of explained red cells that outweigh one blamed green cell."""
FEWEST = 2
"""Smallest number of cells of a group that no other group explains."""


Hosts = Mapping[str, str]
"""Machine to the hypervisor that it runs on."""
NOWHERE: Hosts = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Group:
    """Red cells that one sentence describes."""

    phrase: str
    note: str
    """``small ones pass``; may be empty."""
    total: int
    """Number of cells that match the phrase, without known limits."""
    cells: tuple[CellResult, ...]
    """The red cells that match, in the run's order."""
    example: CellResult
    """One of them that is in no earlier group."""

    @property
    def sentence(self) -> str:
        """``everything to and from win1 (44 of 44 cells)``."""
        numbers = f"{len(self.cells):,} of {quantity(self.total, 'cell')}"
        verdicts = Counter(result.verdict for result in self.cells)
        if set(verdicts) != {"fail"}:
            numbers += ": " + ", ".join(_some(*item) for item in verdicts.most_common())
        return f"{self.phrase} ({numbers}{'; ' if self.note else ''}{self.note})"


@dataclass(frozen=True, slots=True)
class Findings:
    """Groups of red cells, the largest first, and the red cells in no group."""

    groups: tuple[Group, ...]
    singles: tuple[CellResult, ...]


@dataclass(frozen=True, slots=True)
class LimitGroup:
    """Known limits of one rule that held."""

    rule: str
    reason: str
    source: str
    cells: tuple[CellResult, ...]

    @property
    def sentence(self) -> str:
        """``12 cells: a Windows node cannot reach a NodePort on itself (WIN-NODEPORT-SELF)``."""
        text = f"{quantity(len(self.cells), 'cell')}: {self.reason.rstrip('.')} ({self.rule})"
        hidden = sum(1 for cell in self.cells if UNPROVEN in cell.detail)
        return f"{text}; {hidden} of them {UNPROVEN}" if hidden else text


@dataclass(frozen=True, slots=True)
class _Candidate:
    facets: tuple[Facet, ...]
    cells: int
    """Bit mask over the population."""

    def simplicity(self) -> tuple[int, int, tuple[int, ...], tuple[Facet, ...]]:
        order = tuple(facet.order() for facet in self.facets)
        return self.cells.bit_count(), len(self.facets), order, self.facets


def red_groups(results: Sequence[CellResult], hosts: Hosts = NOWHERE) -> Findings:
    """Group the red cells of a run; ``hosts`` maps machines to hypervisors."""
    failures: list[CellResult] = []
    by_rule: dict[str, list[CellResult]] = {}
    for result in results:
        if result.verdict in {"known-limit", "unexpected-pass"}:
            by_rule.setdefault(result.expectation.rule, []).append(result)
        else:
            failures.append(result)
    parts = [group_cells(failures, _red_ones(failures), "pass", hosts=hosts)]
    parts += [
        group_cells(cells, _red_ones(cells), "do not", (Facet("rule", (rule,)),), hosts)
        for rule, cells in by_rule.items()
    ]
    groups = [group for each in parts for group in each.groups]
    singles = tuple(single for each in parts for single in each.singles)
    return Findings(tuple(sorted(groups, key=lambda group: -len(group.cells))), singles)


def limit_groups(results: Sequence[CellResult]) -> tuple[LimitGroup, ...]:
    """The known limits of a run by rule, most cells first."""
    by_rule: dict[str, list[CellResult]] = {}
    for result in results:
        if result.verdict == "known-limit":
            by_rule.setdefault(result.expectation.rule, []).append(result)
    groups = (
        LimitGroup(rule, cells[0].expectation.reason, cells[0].expectation.source, tuple(cells))
        for rule, cells in by_rule.items()
    )
    return tuple(sorted(groups, key=lambda group: (-len(group.cells), group.rule)))


def single_sentence(result: CellResult) -> str:
    """A sentence for one red cell that is in no group."""
    words = path_words(result.cell)
    if result.verdict == "fail":
        return f"{result.cell.family}: {words}"
    return f"{result.cell.family}: {words} ({verdict_words(result.verdict, 1)})"


def _some(verdict: Verdict, count: int) -> str:
    return f"{count:,} {verdict_words(verdict, 2 if verdict == 'fail' else count)}"


def _red_ones(population: Sequence[CellResult]) -> list[int]:
    return [index for index, result in enumerate(population) if result.verdict in RED]


def group_cells(
    population: Sequence[CellResult],
    marked: Sequence[int],
    others: str,
    of: tuple[Facet, ...] = (),
    hosts: Hosts = NOWHERE,
) -> Findings:
    """Group the marked cells of a population.

    ``population``: all cells that the phrases refer to. ``marked``: indexes of the cells to group:
    red cells, or changed ones. ``others``: predicate for cells of the other size or protocol if
    none of them is marked: ``pass``. ``of``: facets that all cells of the population have.
    ``hosts``: machine to hypervisor.
    """
    red = _mask(iter(marked))
    if not red:
        return Findings((), ())
    masks = _masks(population, hosts)
    groups: list[Group] = []
    left = red
    for chosen in _cover(_candidates(masks, red), red):
        fresh = population[next(_indexes(chosen.cells & left))]
        groups.append(
            Group(
                phrase=phrase((*(each for each in chosen.facets if each not in of), *of)),
                note=_note(chosen, red, masks, others),
                total=chosen.cells.bit_count(),
                cells=tuple(population[index] for index in _indexes(chosen.cells & red)),
                example=fresh,
            )
        )
        left &= ~chosen.cells
    return Findings(tuple(groups), tuple(population[index] for index in _indexes(left)))


def _masks(population: Sequence[CellResult], hosts: Hosts) -> dict[Facet, int]:
    members: dict[Facet, list[int]] = {}
    ends = [end for result in population for end in (result.cell.source, result.cell.target)]
    systems = {end.node: end.os for end in ends if end.node}
    pods = {end.name: end.node for end in ends if end.kind == "pod" and end.node}
    for index, result in enumerate(population):
        for facet in (*places(result.cell, systems, pods, hosts), *properties(result)):
            members.setdefault(facet, []).append(index)
    return {facet: _mask(iter(indexes)) for facet, indexes in members.items()}


def _candidates(masks: dict[Facet, int], red: int) -> list[_Candidate]:
    """Every set of one facet or two with enough red cells."""
    touched = {facet: mask for facet, mask in masks.items() if (mask & red).bit_count() >= FEWEST}
    hows = [facet for facet in touched if facet.kind in HOW]
    wheres = [facet for facet in touched if facet.kind not in HOW]
    pairs = [
        *((where, how) for where in wheres for how in hows if where != ANYWHERE),
        *((first, second) for first, second in combinations(hows, 2) if first.kind != second.kind),
    ]
    candidates = [_Candidate((facet,), mask) for facet, mask in touched.items()]
    candidates += [_Candidate(pair, touched[pair[0]] & touched[pair[1]]) for pair in pairs]
    return [candidate for candidate in candidates if _red_enough(candidate.cells, red)]


def _red_enough(cells: int, red: int) -> bool:
    hit = (cells & red).bit_count()
    return hit >= FEWEST and hit >= ENOUGH * cells.bit_count()


def _cover(candidates: list[_Candidate], red: int) -> list[_Candidate]:
    """The chosen candidates in order, without those that later ones make redundant."""
    chosen: list[_Candidate] = []
    left, most = red, 1
    while most > 0:
        candidates = [each for each in candidates if (each.cells & left).bit_count() >= FEWEST]
        worths = [_worth(each, red, left) for each in candidates]
        most = max(worths, default=0)
        if most <= 0:
            break
        ties = (each for each, worth in zip(candidates, worths, strict=True) if worth == most)
        best = min(ties, key=_Candidate.simplicity)
        chosen.append(best)
        left &= ~best.cells
    for each in tuple(chosen):
        if _needless(each, chosen, red):
            chosen.remove(each)
    return chosen


def _worth(candidate: _Candidate, red: int, left: int) -> int:
    blamed = (candidate.cells & ~red).bit_count()
    return (candidate.cells & left).bit_count() - BLAME * blamed


def _needless(candidate: _Candidate, chosen: list[_Candidate], red: int) -> bool:
    """Whether the other chosen candidates together cover all its red cells."""
    others = 0
    for each in chosen:
        if each is not candidate:
            others |= each.cells
    return not candidate.cells & red & ~others


def _note(candidate: _Candidate, red: int, masks: dict[Facet, int], verb: str) -> str:
    """``small ones pass`` if the same cells of the other size, or protocol, are all green."""
    for facet in candidate.facets:
        if facet.kind not in {"size", "protocol"}:
            continue
        rest = masks[ANYWHERE]
        for other in candidate.facets:
            rest &= masks[other] if other is not facet else ~masks[facet]
        if rest and not rest & red:
            return f"{opposite(facet)} {verb}"
    return ""


def _mask(indexes: Iterator[int]) -> int:
    listed = list(indexes)
    octets = bytearray(max(listed, default=0) // 8 + 1)
    for index in listed:
        octets[index >> 3] |= 1 << (index & 7)
    return int.from_bytes(octets, "little")


def _indexes(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


OUTSIDE = "the other machines"

HOW = ("protocol", "size", "family", "relation", "rule")
"""Kinds of property, simplest wording first."""

_TAILS = {
    "anywhere": "",
    "between-nodes": " between nodes",
    "pods-between-nodes": " on the pod network between nodes",
    "between-hosts": " between hypervisors",
    "os": " to and from {0}",
    "os-path": " from {0} to {1}",
    "os-to": " to {0}",
    "os-from": " from {0}",
    "node": " to and from {0}",
    "crossing": " between {0} and " + OUTSIDE,
    "pods-crossing": " on the pod network between {0} and the other nodes",
    "node-from": " from {0}",
    "node-to": " to {0}",
    "entry": " on {0}",
    "pair": " between {0} and {1}",
    "pods-pair": " on the pod network between {0} and {1}",
    "path": " from {0} to {1}",
    "host": " on {0}",
    "host-nodes": " to and from the machines on {0}",
    "host-crossing": " between {0} and the other hypervisors",
    "pod": " to and from pod {0}",
    "pod-from": " from pod {0}",
    "pod-to": " to pod {0}",
}
WHERE = tuple(_TAILS)
"""Kinds of place, simplest wording first."""
_OS_NAMES = {"linux": "Linux", "windows": "Windows"}
_RELATIONS = {
    "self": "answered by the source itself",
    "same-node": "answered on the source's own node",
    "other-node": "answered on another node",
    "outside": "answered outside the cluster",
}


class Facet(NamedTuple):
    """One property of a cell: a kind of :data:`WHERE` or :data:`HOW`, and its values."""

    kind: str
    values: tuple[str, ...]

    def order(self) -> int:
        """Rank; lower means simpler wording."""
        return (WHERE + HOW).index(self.kind)


ANYWHERE = Facet("anywhere", ())


def places(
    cell: Cell, systems: Mapping[str, Os], pods: Mapping[str, str], hosts: Mapping[str, str]
) -> Iterator[Facet]:
    """Every place that the cell involves.

    ``systems`` maps nodes to operating systems, ``pods`` maps pods to nodes, and ``hosts`` maps
    machines to hypervisors, if the scenario has any.
    """
    source, target = machine_of(cell.source), machine_of(cell.target)
    yield ANYWHERE
    yield from _operating_systems(cell, systems)
    ends = {end for end in (source, target, cell.entry) if end}
    for end in ends:
        yield Facet("node", (end,))
        if len(ends) > 1:
            yield Facet("crossing", (end,))
    nodes = {end for end in (cell.source.node, cell.target.node, cell.entry) if end}
    if len(nodes) > 1:
        yield Facet("between-nodes", ())
    if source:
        yield Facet("node-from", (source,))
    if target:
        yield Facet("node-to", (target,))
    if cell.entry:
        yield Facet("entry", (cell.entry,))
    if source and target and source != target:
        yield Facet("path", (source, target))
        yield Facet("pair", (min(source, target), max(source, target)))
    yield from _pod_network(cell, pods)
    yield from _hosts(cell, pods, hosts)
    yield from _pods(cell)


def properties(result: CellResult) -> Iterator[Facet]:
    """Every property of the cell that is not a place."""
    cell = result.cell
    yield Facet("protocol", (cell.protocol,))
    yield Facet("size", (cell.size,))
    yield Facet("family", (cell.family,))
    yield Facet("relation", (cell.relation,))
    yield Facet("rule", (result.expectation.rule,))


def machine_of(endpoint: Endpoint) -> str | None:
    """The machine an endpoint runs on: its node, or the client; None for a shared Service."""
    if endpoint.node or endpoint.kind != "client":
        return endpoint.node
    return endpoint.name


def list_concerned(cell: Cell) -> set[str]:
    """Names of the machines and pods that the cell starts at, passes through or ends at."""
    names = {machine_of(cell.source), machine_of(cell.target), cell.entry, *cell.backends}
    if cell.source.kind == "pod":
        names.add(cell.source.name)
    return {name for name in names if name}


def phrase(facets: Sequence[Facet]) -> str:
    """A phrase for the cells that have all of the facets: ``every large UDP probe to win1``."""
    by_kind = {facet.kind: facet for facet in facets}
    words = [
        *(by_kind["size"].values if "size" in by_kind else ()),
        *(value.upper() for value in (by_kind["protocol"].values if "protocol" in by_kind else ())),
        *(by_kind["family"].values if "family" in by_kind else ()),
    ]
    tail = "".join(_tail(facet) for facet in facets if facet.kind in _TAILS)
    noun = "probe" if "size" in by_kind or "protocol" in by_kind else "cell"
    if "entry" in by_kind:
        noun = "NodePort probe" if words else "NodePort"
    clauses = ""
    if "rule" in by_kind:
        clauses += f" of rule {by_kind['rule'].values[0]}"
    if "relation" in by_kind:
        clauses += f" {_RELATIONS[by_kind['relation'].values[0]]}"
    if tail and not words and not clauses and noun == "cell":
        return f"everything{tail}"
    return " ".join(("every", *words, noun)) + clauses + tail


def opposite(facet: Facet) -> str:
    """A noun for the cells that differ only in this facet: ``small ones``, ``TCP ones``."""
    names = {"large": "small", "small": "large", "udp": "TCP", "tcp": "UDP"}
    return f"{names[facet.values[0]]} ones"


def _tail(facet: Facet) -> str:
    values: Iterable[str] = facet.values
    if facet.kind.startswith("os"):
        values = (_OS_NAMES[value] for value in facet.values)
    return _TAILS[facet.kind].format(*values)


def _operating_systems(cell: Cell, systems: Mapping[str, Os]) -> Iterator[Facet]:
    """Operating systems of the nodes at both ends and of the entry node; the client has no node."""
    source = cell.source.os if cell.source.node else None
    target = cell.target.os if cell.target.node else None
    entry = systems.get(cell.entry) if cell.entry else None
    for system in {source, target, entry} - {None}:
        yield Facet("os", (str(system),))
    if source:
        yield Facet("os-from", (source,))
    if target:
        yield Facet("os-to", (target,))
    if source and target and source != target:
        yield Facet("os-path", (source, target))


def _pod_network(cell: Cell, pods: Mapping[str, str]) -> Iterator[Facet]:
    """The last leg to a pod that answers: from the node that forwards the packet to the pod's node.

    A tunnel or a pod route carries it; for a NodePort it starts at the node that is probed.
    """
    begin = cell.entry or cell.source.node
    answering = {pods[name] for name in cell.backends if name in pods}
    if cell.family == "dns" and cell.target.node:
        answering = {cell.target.node}
    if not begin or not answering - {begin}:
        return
    yield Facet("pods-between-nodes", ())
    for node in {begin, *answering}:
        yield Facet("pods-crossing", (node,))
    if len(answering) == 1:
        (end,) = answering
        yield Facet("pods-pair", (min(begin, end), max(begin, end)))


def _hosts(cell: Cell, pods: Mapping[str, str], hosts: Mapping[str, str]) -> Iterator[Facet]:
    """The hypervisors that the cell's machines run on; outside machines have none."""
    ends = {machine_of(cell.source), machine_of(cell.target), cell.entry}
    ends |= {pods.get(name, name) for name in cell.backends}
    ends -= {None}
    present = {hosts[end] for end in ends if end and end in hosts}
    for host in present:
        yield Facet("host", (host,))
        if len(ends) > 1:
            yield Facet("host-nodes", (host,))
        if len(present) > 1:
            yield Facet("host-crossing", (host,))
    if len(present) > 1:
        yield Facet("between-hosts", ())


def _pods(cell: Cell) -> Iterator[Facet]:
    source = cell.source.name if cell.source.kind == "pod" else None
    target = None
    if cell.target.kind in {"pod", "service", "nodeport"} and len(cell.backends) == 1:
        target = cell.backends[0]
    if source:
        yield Facet("pod-from", (source,))
    if target:
        yield Facet("pod-to", (target,))
    for pod in {source, target} - {None}:
        yield Facet("pod", (str(pod),))
