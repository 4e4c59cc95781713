"""The product that the matrix promises, spelt out apart from the code that makes the cells."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from shipped import cells_of, plan_of

from lab.matrix.cell import Cell
from lab.scenario.families import services_node_families, usual_families
from lab.scenario.loader import shipped
from lab.scenario.terms import Os

Kind = tuple[object, ...]

SYSTEMS: tuple[Os, ...] = ("linux", "windows")
BOTH_SIZES = tuple(product(("tcp", "udp"), ("small", "large")))
ONLY_SMALL = (("tcp", "small"), ("udp", "small"))
BETWEEN_NODES = ("same-node", "other-node")

WHOLE = [name for name in shipped() if set(usual_families()) <= set(plan_of(name).families)]
"""Scenarios that ask for every usual family."""
WINDOWS = frozenset(
    node.name for name in shipped() for node in plan_of(name).nodes if node.os == "windows"
)


class Possible:
    """What the nodes of a scenario allow: a pair on different nodes needs two of them."""

    def __init__(self, name: str) -> None:
        plan = plan_of(name)
        self.nodes = plan.nodes
        self.serves = plan.services_node() is not None
        self.workers = {
            system: [node for node in self.nodes if node.os == system and node.pod_cidr]
            for system in SYSTEMS
        }
        self.systems = tuple(system for system in SYSTEMS if self.workers[system])

    def pairs(self, relation: str) -> Iterator[tuple[Os, Os]]:
        for source, target in product(self.systems, self.systems):
            if relation == "other-node":
                if source != target or len(self.workers[source]) > 1:
                    yield source, target
            elif source == target:
                yield source, target


def promised(possible: Possible) -> Iterator[Kind]:
    """Every combination that must have a cell: family first, protocol and size last."""
    for relation in BETWEEN_NODES:
        for pair in possible.pairs(relation):
            for variant in BOTH_SIZES:
                yield ("pod-pod", relation, *pair, *variant)
                yield ("pod-service", relation, *pair, *variant)
                yield ("node-service", relation, *pair, *variant)
                yield ("node-pod", relation, *pair, *variant)
                yield ("pod-node", relation, *pair, *variant)
    for system in possible.systems:
        for variant in BOTH_SIZES:
            yield ("hairpin", system, *variant)
            yield ("pod-external", system, *variant)
        for variant in ONLY_SMALL:
            yield ("pod-service, shared", system, *variant)
            for form in ("short", "partial", "full"):
                yield ("dns", form, system, *variant)
    yield from _node_ports(possible)
    if possible.serves:
        yield from _of_services_node(possible)


def _of_services_node(possible: Possible) -> Iterator[Kind]:
    for kind, system in product(("pod", "node"), possible.systems):
        yield ("api", kind, system, "tcp", "small")
        for variant in ONLY_SMALL:
            yield ("node-names", kind, system, *variant)
    yield ("api", "client", "linux", "tcp", "small")


def _node_ports(possible: Possible) -> Iterator[Kind]:
    askers = (
        ("client", "outside"),
        *product(("pod", "node"), possible.systems, ("own", "other")),
    )
    for place, relation in (("local", "same-node"), ("remote", "other-node")):
        for entry, backend in possible.pairs(relation):
            for asker, variant in product(askers, BOTH_SIZES):
                yield ("nodeport", *asker, entry, place, backend, *variant)


def kinds(cell: Cell) -> Kind:
    """The combination that a cell stands for."""
    if cell.family in services_node_families():
        return (cell.family, cell.source.kind, cell.source.os, cell.protocol, cell.size)
    return _kind_of_others(cell)


def _kind_of_others(cell: Cell) -> Kind:
    variant = (cell.protocol, cell.size)
    source, target = cell.source, cell.target
    if cell.family == "nodeport":
        place = "local" if cell.entry == target.node else "remote"
        entry = "windows" if cell.entry in WINDOWS else "linux"
        if source.kind == "client":
            return ("nodeport", "client", "outside", entry, place, target.os, *variant)
        own = "own" if cell.entry == source.node else "other"
        return ("nodeport", source.kind, source.os, own, entry, place, target.os, *variant)
    if cell.family in {"hairpin", "pod-external"}:
        return (cell.family, source.os, *variant)
    if cell.family == "dns":
        return ("dns", cell.name_form, source.os, *variant)
    if len(cell.backends) > 1:
        return ("pod-service, shared", source.os, *variant)
    return (cell.family, cell.relation, source.os, target.os, *variant)


def _can_be(kind: Kind, possible: Possible) -> bool:
    """A NodePort asked on one's own node has that node's system; on another's takes two nodes."""
    if kind[0] != "nodeport" or kind[1] == "client":
        return True
    _, _, source, own, entry, *_ = kind
    if own == "own":
        return source == entry
    return source != entry or len(possible.workers[source]) > 1  # type: ignore[index]


@pytest.mark.parametrize("name", WHOLE)
def test_every_promised_combination_has_a_cell(name):
    possible = Possible(name)
    made = {kinds(cell) for cell in cells_of(name)}
    wanted = {kind for kind in promised(possible) if _can_be(kind, possible)}
    asked = {*usual_families(), *(services_node_families() if possible.serves else ())}
    assert {kind[0] for kind in wanted} >= asked
    assert sorted(map(str, wanted - made)) == []


@pytest.mark.parametrize("name", WHOLE)
def test_every_node_port_is_asked_at_every_node_by_every_pod_node_and_the_client(name):
    plan = plan_of(name)
    hosts = [node.name for node in plan.nodes if node.pod_cidr]
    sources = [*(pod.name for pod in plan.probe_pods()), *hosts, "client"]
    asked = {(c.source.name, c.entry) for c in cells_of(name) if c.family == "nodeport"}
    assert asked == set(product(sources, hosts))
