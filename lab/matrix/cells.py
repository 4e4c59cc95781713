"""The cells of the matrix from plan and Intent, always in the same order, with stable ids. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from lab._errors import MatrixError
from lab.matrix.cell import Cell, Grid
from lab.matrix.endpoints import LabEndpoints
from lab.matrix.family import families, family_grid
from lab.plan.plan import Plan
from lab.scenario.families import services_node_families
from lab.scenario.terms import Family
from lab.topology.intent import Intent

_PARTS_OF_AN_ID = 4
"""Family, source, target, and protocol with size."""


@dataclass(frozen=True, slots=True)
class Product:
    """The whole matrix: a grid for each family, in the order of the families."""

    grids: tuple[Grid, ...]

    @property
    def size(self) -> int:
        """The number of cells."""
        return sum(grid.size for grid in self.grids)

    def counts(self) -> dict[Family, int]:
        """The number of cells of each family."""
        return {grid.family: grid.size for grid in self.grids}

    def cells(self) -> Iterator[Cell]:
        """Every cell: by family, source, target, protocol and size."""
        for grid in self.grids:
            yield from grid.cells()

    def find(self, cell_id: str) -> Cell | None:
        """The cell with this id, without creating the others; None if there is none."""
        parts = cell_id.split("/")
        if len(parts) != _PARTS_OF_AN_ID:
            return None
        family, source, target, suffix = parts
        found = (grid.find(source, target, suffix) for grid in self.grids if grid.family == family)
        return next(found, None)


def product(plan: Plan, intent: Intent, besides: Collection[Family] = ()) -> Product:
    """The matrix that the plan asks for, without creating its cells.

    ``besides`` names families that are asked for though the plan does not.

    Raises
    ------
    MatrixError
        If it has no cells, or none in a family that the scenario asks for.

    """
    lab = LabEndpoints.of(plan, intent)
    grids = tuple(family_grid(lab, family) for family in asked_of(plan, intent, besides))
    for one in grids:
        if not one.size:
            asked = f"family '{one.family}', which the scenario asks for, has no cells"
            raise _empty(plan, asked)
    if not grids:
        raise _empty(plan, "the scenario asks for no cells at all")
    return Product(grids)


def asked_of(plan: Plan, intent: Intent, besides: Collection[Family] = ()) -> tuple[Family, ...]:
    """The families that the plan asks for and that the lab can have.

    Families of the services node need one.
    """
    left_out = () if intent.services_node else services_node_families()
    asked = {*plan.families, *besides}.difference(left_out)
    return tuple(one for one in families() if one in asked)


def cells(plan: Plan, intent: Intent) -> tuple[Cell, ...]:
    """Every cell that the plan asks for.

    Raises
    ------
    MatrixError
        As :func:`product` does.

    """
    return tuple(product(plan, intent).cells())


def counts(made: Iterable[Cell]) -> dict[Family, int]:
    """The number of cells of each family that has any."""
    found: dict[Family, int] = {}
    for cell in made:
        found[cell.family] = found.get(cell.family, 0) + 1
    return found


def _empty(plan: Plan, happened: str) -> MatrixError:
    return MatrixError(
        f"making the matrix of scenario '{plan.scenario}'",
        happened,
        "give its nodes more pods, or other families under 'matrix' in the scenario",
    )
