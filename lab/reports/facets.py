"""What a cell has in common with others, and how that is said: the vocabulary of patterns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from lab.matrix.cell import Cell, Endpoint
from lab.matrix.verdict import CellResult
from lab.scenario.terms import Os

OUTSIDE = "the other machines"

WHERE = (
    "anywhere",
    "between-nodes",
    "pods-between-nodes",
    "between-hosts",
    "os",
    "os-path",
    "os-to",
    "os-from",
    "node",
    "crossing",
    "pods-crossing",
    "node-from",
    "node-to",
    "entry",
    "pair",
    "pods-pair",
    "path",
    "host",
    "host-nodes",
    "host-crossing",
    "pod",
    "pod-from",
    "pod-to",
)
"""Kinds of place, the simplest to say first."""
HOW = ("protocol", "size", "family", "relation", "rule")
"""Kinds of property, the simplest to say first."""

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
        """Lower is simpler to say."""
        return (WHERE + HOW).index(self.kind)


ANYWHERE = Facet("anywhere", ())


def places(
    cell: Cell, systems: Mapping[str, Os], pods: Mapping[str, str], hosts: Mapping[str, str]
) -> Iterator[Facet]:
    """Every place that the cell concerns.

    ``systems`` holds each node's operating system, ``pods`` each pod's node, and ``hosts`` what
    each machine stands on, where the scenario says so.
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
    """The machine an endpoint stands on: its node, or the client; None for a shared Service."""
    if endpoint.node or endpoint.kind != "client":
        return endpoint.node
    return endpoint.name


def concerned(cell: Cell) -> set[str]:
    """Names of the machines and pods that the cell passes through or ends at."""
    names = {machine_of(cell.source), machine_of(cell.target), cell.entry, *cell.backends}
    if cell.source.kind == "pod":
        names.add(cell.source.name)
    return {name for name in names if name}


def phrase(facets: Sequence[Facet]) -> str:
    """``every large UDP probe to win1``: the cells that have all of the facets."""
    found = {facet.kind: facet for facet in facets}
    words = [
        *(found["size"].values if "size" in found else ()),
        *(value.upper() for value in (found["protocol"].values if "protocol" in found else ())),
        *(found["family"].values if "family" in found else ()),
    ]
    tail = "".join(_tail(facet) for facet in facets if facet.kind in _TAILS)
    noun = "probe" if "size" in found or "protocol" in found else "cell"
    if "entry" in found:
        noun = "NodePort probe" if words else "NodePort"
    clauses = ""
    if "rule" in found:
        clauses += f" of rule {found['rule'].values[0]}"
    if "relation" in found:
        clauses += f" {_RELATIONS[found['relation'].values[0]]}"
    if tail and not words and not clauses and noun == "cell":
        return f"everything{tail}"
    return " ".join(("every", *words, noun)) + clauses + tail


def opposite(facet: Facet) -> str:
    """What to call the cells that differ in this facet alone: ``small ones``, ``TCP ones``."""
    names = {"large": "small", "small": "large", "udp": "TCP", "tcp": "UDP"}
    return f"{names[facet.values[0]]} ones"


def _tail(facet: Facet) -> str:
    values: Iterable[str] = facet.values
    if facet.kind.startswith("os"):
        values = (_OS_NAMES[value] for value in facet.values)
    return _TAILS[facet.kind].format(*values)


def _operating_systems(cell: Cell, systems: Mapping[str, Os]) -> Iterator[Facet]:
    """Of the nodes at both ends and the one between; the client outside is nobody's node."""
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
    """The last leg of a cell that a pod answers: from the node that sends it there to the pod's.

    That is what a tunnel or a pod route carries; for a NodePort it begins at the node asked.
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
    """The hypervisors that the cell's machines stand on; outside is nobody's."""
    ends = {machine_of(cell.source), machine_of(cell.target), cell.entry}
    ends |= {pods.get(name, name) for name in cell.backends}
    ends -= {None}
    found = {hosts[end] for end in ends if end and end in hosts}
    for host in found:
        yield Facet("host", (host,))
        if len(ends) > 1:
            yield Facet("host-nodes", (host,))
        if len(found) > 1:
            yield Facet("host-crossing", (host,))
    if len(found) > 1:
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
