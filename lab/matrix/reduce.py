"""Reduce a scenario to the smallest one that still has a given cell, with the same packets. Pure.

Nodes are removed one after another, and then pods, as long as the rest is a valid scenario whose
matrix has the cell with the same meaning: the same endpoints, addresses, backends and source
addresses. So nothing here needs to know what a topology requires, or which pods back a Service or a
NodePort.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab._errors import MatrixError, UsageError
from lab.matrix.assertion import AssertionResult
from lab.matrix.cell import Cell, Endpoint
from lab.matrix.cells import make_matrix
from lab.matrix.judge import applies_to
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.scenario import rules
from lab.scenario.scenario import MatrixChoice, NodeGroup, Scenario
from lab.topology import registry

_FEW = 3
"""Up to this many nodes, they are removed one by one."""


@dataclass(frozen=True, slots=True)
class _Found:
    cell: Cell
    plan: Plan

    def meaning(self) -> tuple[object, ...]:
        """Everything that must stay the same: not the allocated address and port of a Service."""
        cell = self.cell
        pods = {pod.name: (str(pod.address), pod.mac) for pod in self.plan.pods()}
        ends = {end for end in (cell.source.node, cell.target.node, cell.entry) if end}
        nodes = [self.plan.node(name) for name in sorted(ends)]
        return (
            cell.id,
            _end(cell.source),
            _end(cell.target),
            cell.relation,
            cell.backends,
            [pods[name] for name in cell.backends if name in pods],
            cell.sources,
            cell.answer,
            cell.mtu,
            cell.refusal,
            cell.sticky,
            [(node.name, node.address, node.mac, node.pod_cidr, node.version) for node in nodes],
        )


def _end(end: Endpoint) -> tuple[object, ...]:
    handed_out = end.kind in {"service", "nodeport"}
    address = None if end.kind == "service" else end.address
    return end.name, end.kind, end.os, end.node, address, None if handed_out else end.port


def reduce(scenario: Scenario, cell_id: str) -> Scenario:
    """The part of the scenario that the cell needs, with every address made explicit.

    Raises UsageError when the scenario's matrix has no such cell.
    """
    wanted = _find(scenario, cell_id)
    if wanted is None:
        raise UsageError(
            f"looking for cell '{cell_id}' in scenario '{scenario.name}'",
            "its matrix has no such cell",
            "give the id of a cell of that run, from its report",
        )
    meaning = wanted.meaning()
    small = _narrow(_spelt_out(scenario, wanted.plan), wanted.cell)
    for shared in small.services.shared:
        others = tuple(service for service in small.services.shared if service != shared)
        small = _choose_smaller(small, (_with_services(small, shared=others),), cell_id, meaning)
    for special in small.services.special:
        rest = tuple(service for service in small.services.special if service != special)
        small = _choose_smaller(small, (_with_services(small, special=rest),), cell_id, meaning)
    for at_once in _list_shares(len(small.nodes)):
        for some in _divide_groups(tuple(reversed(small.nodes)), at_once):
            fewer_nodes = tuple(node for node in small.nodes if node not in some)
            small = _choose_smaller(small, (small.replace(nodes=fewer_nodes),), cell_id, meaning)
    for group in small.nodes:
        fewer = (_with_pods(small, group, pods) for pods in range(group.pods or 0))
        small = _choose_smaller(small, tuple(fewer), cell_id, meaning)
    return _same_port(small, wanted.cell)


def _list_shares(nodes: int) -> Iterator[int]:
    """How many nodes to remove at once: a quarter if there are many, then fewer, finally one."""
    share = nodes // 4
    while share > _FEW:
        yield share
        share //= 2
    yield 1


def _divide_groups(nodes: Sequence[NodeGroup], each: int) -> Iterator[Sequence[NodeGroup]]:
    return (nodes[start : start + each] for start in range(0, len(nodes), each))


def _choose_smaller(
    small: Scenario, candidates: tuple[Scenario, ...], cell_id: str, meaning: tuple[object, ...]
) -> Scenario:
    """The first candidate whose cell has the same meaning; else the scenario itself."""
    for candidate in candidates:
        match = _find(candidate, cell_id)
        if match is not None and match.meaning() == meaning:
            return candidate
    return small


def _find(scenario: Scenario, cell_id: str) -> _Found | None:
    if any(rules.problems(scenario, frozenset(), registry.check)):
        return None
    plan = make_plan(scenario)
    try:
        cell = make_matrix(plan, registry.intent(plan)).find(cell_id)
    except MatrixError:
        return None
    return _Found(cell, plan) if cell else None


def _spelt_out(scenario: Scenario, plan: Plan) -> Scenario:
    """The scenario with an entry for each node, with its address, pod range and number of pods.

    Special Services name their pods, so that these are kept when others are removed.
    """
    groups = [group for group in scenario.nodes for _ in range(group.count)]
    nodes = tuple(
        group.replace(
            name=node.name,
            count=1,
            address=node.address,
            pod_cidr=node.pod_cidr,
            pods=sum(pod.role == "probe" for pod in node.pods) if group.kubelet else None,
        )
        for group, node in zip(groups, plan.nodes, strict=True)
    )
    behind = {service.name: service.backends for service in plan.services}
    behind |= {service.name: service.backends for service in plan.headless}
    special = tuple(
        service.replace(pods=behind[service.name]) for service in scenario.services.special
    )
    return _with_services(scenario.replace(nodes=nodes), special=special)


def _narrow(scenario: Scenario, cell: Cell) -> Scenario:
    return scenario.replace(
        summary=f"the part of scenario {scenario.name} that has cell {cell.id}",
        matrix=MatrixChoice(
            families=(cell.family,),
            protocols=(cell.protocol,),
            sizes=(cell.size,),
            min_throughput=scenario.matrix.min_throughput,
        ),
        exceptions=tuple(
            exception for exception in scenario.exceptions if applies_to(exception.when, cell)
        ),
        assertions=(),
    )


def keep_assertion(scenario: Scenario, result: AssertionResult) -> Scenario:
    """The scenario with this assertion alone, on this node or in this pod; its nodes are all kept.

    Raises UsageError when the scenario has no such assertion.
    """
    for assertion in scenario.assertions:
        if assertion.name == result.name:
            place = {"node": result.place} if assertion.node is not None else {"pod": result.place}
            return scenario.replace(
                summary=f"scenario {scenario.name} with assertion {result.id}",
                assertions=(assertion.replace(**place),),
            )
    raise UsageError(
        f"looking for assertion '{result.name}' in scenario '{scenario.name}'",
        "it has no such assertion",
        "give the id of an assertion of that run, from its report",
    )


def _with_services(scenario: Scenario, **changes: object) -> Scenario:
    return scenario.replace(services=scenario.services.replace(**changes))


def _with_pods(scenario: Scenario, group: NodeGroup, pods: int) -> Scenario:
    nodes = tuple(
        node.replace(pods=pods) if node.name == group.name else node for node in scenario.nodes
    )
    return scenario.replace(nodes=nodes)


def _same_port(small: Scenario, wanted: Cell) -> Scenario:
    """Shift the NodePort range so that the cell's NodePort is the same as before."""
    match = _find(small, wanted.id)
    if wanted.target.kind != "nodeport" or match is None:
        return small
    first, last = small.services.node_ports
    shifted = first + wanted.target.port - match.cell.target.port
    return _with_services(small, node_ports=(shifted, last))
