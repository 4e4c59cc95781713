from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from lab.matrix.cell import Cell
from lab.matrix.cells import cells
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load
from lab.scenario.scenario import Limit
from lab.topology import registry
from lab.topology.intent import Intent


@cache
def built(name: str) -> tuple[Plan, Intent]:
    plan = make_plan(load(find(name)))
    return plan, registry.intent(plan)


@cache
def all_cells(name: str) -> tuple[Cell, ...]:
    return cells(*built(name))


@pytest.fixture
def overlay() -> tuple[Plan, Intent]:
    return built("overlay")


@pytest.fixture
def limits(overlay: tuple[Plan, Intent]) -> tuple[Limit, ...]:
    return registry.limits(overlay[0])


@pytest.fixture
def overlay_cells() -> tuple[Cell, ...]:
    return all_cells("overlay")


@pytest.fixture
def cells_of() -> Callable[[str], tuple[Cell, ...]]:
    return all_cells


@pytest.fixture
def cell_of() -> Callable[..., Cell]:
    """One cell of the overlay by its id, with changed fields."""

    def pick(identity: str, **changes: object) -> Cell:
        cell = next(cell for cell in all_cells("overlay") if cell.id == identity)
        return replace(cell, **changes)  # type: ignore[arg-type]

    return pick
