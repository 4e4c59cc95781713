"""The labs of shipped scenarios: plan, Intent, matrix and cells, each made once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from lab.matrix.cell import Cell
from lab.matrix.cells import Matrix, make_matrix
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load
from lab.topology import registry
from lab.topology.intent import Intent


@cache
def plan_of(name: str) -> Plan:
    return make_plan(load(find(name)))


@cache
def intent_of(name: str) -> Intent:
    return registry.intent(plan_of(name))


@cache
def bare_intent_of(name: str) -> Intent:
    """As the embedded provider has it: without Kubernetes."""
    return replace(intent_of(name), kubernetes=None)


@cache
def matrix_of(name: str) -> Matrix:
    return make_matrix(plan_of(name), intent_of(name))


@cache
def cells_of(name: str) -> tuple[Cell, ...]:
    return tuple(matrix_of(name).cells())


def cell_of(name: str, identity: str) -> Cell:
    cell = matrix_of(name).find(identity)
    assert cell is not None, identity
    return cell
