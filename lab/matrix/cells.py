"""Families of cells, and the matrix that plan and Intent make of them. Pure.

A family is one object in a module of :mod:`lab.matrix.families`. Cells have stable ids and are
always in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Literal, cast

from lab._dataclass import dataclass
from lab._errors import MatrixError
from lab.matrix.cell import Cell, Endpoint, Expectation, Grid, GridTarget, Variant
from lab.matrix.endpoints import LabEndpoints
from lab.plan.plan import Plan
from lab.scenario.families import FamilyTerm, family_terms, services_node_families
from lab.scenario.reserved import SERVICE_PORT
from lab.scenario.terms import Family, Refusal
from lab.topology.intent import Intent

Ends = tuple[tuple[Endpoint, ...], Iterable[GridTarget]]
"""Sources and targets of a family."""

STREAM: tuple[Variant, ...] = (("tcp", "large", "tcp-stream"),)
"""The one way in which a rate is measured."""

MODEL = 'Kubernetes documentation, "The Kubernetes network model"'
SERVICES = 'Kubernetes documentation, "Service"'
DNS = 'Kubernetes documentation, "DNS for Services and Pods"'
PROXY = 'Kubernetes documentation, "Virtual IPs and Service Proxies"'
_INTENT = "the lab's Intent, which 'lab show' prints"
SOURCE_IP = 'Kubernetes documentation, "Using Source IP"'


@dataclass(frozen=True, kw_only=True)
class CellFamily(FamilyTerm):
    """One kind of cells.

    ``ends`` returns the sources and targets; ``works`` is the rule by which a cell works if no
    limit applies; ``promised`` has the rules by which a cell fails, by the kind of refusal.
    """

    ends: Callable[[LabEndpoints], Ends]
    pairs: Callable[[LabEndpoints], Ends] | None = None
    """Sources and targets of every pair that exists, where ``ends`` chooses some of them."""
    works: Expectation
    promised: Mapping[Refusal, Expectation] = field(default_factory=dict)
    dialect: Literal["lab", "health", "throughput"] = "lab"
    """The protocol of the probe: that of the lab's own programs, a
    health check, or a stream whose rate is measured; streams are sent one at a time."""
    every_address: bool = False
    """Whether all addresses of a name are compared, and not only the first."""
    name_port: int = SERVICE_PORT
    """A TCP port that is open at what a name stands for."""


def families() -> Mapping[Family, CellFamily]:
    """Every family by name, in order."""
    return cast("Mapping[Family, CellFamily]", family_terms())


def family_of(cell: Cell) -> CellFamily:
    """The family of a cell, or :data:`PAIR`."""
    return PAIR if cell.family == PAIR.name else families()[cell.family]


def family_grid(lab: LabEndpoints, name: Family, *, every: bool = False) -> Grid:
    """The cells of one family, or with ``every`` those of every pair that exists."""
    family = families()[name]
    ends = family.pairs if every and family.pairs else family.ends
    sources, targets = ends(lab)
    small = STREAM if family.dialect == "throughput" else lab.small
    return Grid(name, sources, tuple(targets), lab.variants, small, lab.mtu)


def rule(name: str, reason: str, source: str) -> Expectation:
    """The expectation of cells that work."""
    return Expectation(works=True, rule=name, reason=reason, source=source, refusal=None)


def refusal(name: str, reason: str, how: Refusal, source: str) -> Mapping[Refusal, Expectation]:
    """The expectation of cells that fail, as Kubernetes specifies: not a known limit."""
    expectation = Expectation(
        works=False, rule=name, reason=reason, source=source, refusal=how, promised=True
    )
    return {how: expectation}


PAIR = CellFamily(
    name="pair",
    order=0,
    ends=lambda _: ((), ()),
    works=rule(
        "ROUTED", "by the routes of the machines between them, packets pass there and back", _INTENT
    ),
)
"""Two endpoints that are in no family together: only explained and captured, never tested."""


def unreachable(reason: str) -> Expectation:
    """The expectation that by the Intent no answer comes; how the probe fails does not matter."""
    return Expectation(
        works=False, rule="UNREACHABLE", reason=reason, source=_INTENT, refusal=None, promised=True
    )


_PARTS_OF_AN_ID = 4
"""Family, source, target, and protocol with size."""


@dataclass(frozen=True, slots=True)
class Matrix:
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
        matches = (
            grid.find(source, target, suffix) for grid in self.grids if grid.family == family
        )
        return next(matches, None)

    def joins(self, source: str, target: str) -> bool:
        """Whether it has cells with this source and this target."""
        return any(
            end.name == source
            and source not in grid_target.excluded
            and grid_target.path(end).target.name == target
            for grid in self.grids
            for end in grid.sources
            for grid_target in grid.targets
        )


def make_matrix(plan: Plan, intent: Intent, extra: Collection[Family] = ()) -> Matrix:
    """The matrix that the plan asks for, without creating its cells.

    ``extra`` names families that are asked for though the plan does not.

    Raises MatrixError if it has no cells, or none in a family that the scenario asks for.
    """
    lab = LabEndpoints.of(plan, intent)
    grids = tuple(family_grid(lab, family) for family in select_families(plan, intent, extra))
    for grid in grids:
        if not grid.size:
            message = f"family '{grid.family}', which the scenario asks for, has no cells"
            raise _no_cells(plan, message)
    if not grids:
        raise _no_cells(plan, "the scenario asks for no cells at all")
    return Matrix(grids)


def every_pair(plan: Plan, intent: Intent) -> Matrix:
    """A cell for every pair of endpoints that a family can have, asked for by the plan or not.

    Families that are tested on request are left out, unless the plan asks for them.
    """
    lab = LabEndpoints.of(plan, intent)
    usual = (name for name, family in families().items() if not family.on_request)
    return Matrix(
        tuple(
            family_grid(lab, name, every=True) for name in select_families(plan, intent, (*usual,))
        )
    )


def select_families(
    plan: Plan, intent: Intent, extra: Collection[Family] = ()
) -> tuple[Family, ...]:
    """The families that the plan asks for and that the lab can have.

    Families of the services node need one.
    """
    left_out = () if intent.services_node else services_node_families()
    wanted = {*plan.families, *extra}.difference(left_out)
    return tuple(family for family in families() if family in wanted)


def cells(plan: Plan, intent: Intent) -> tuple[Cell, ...]:
    """Every cell that the plan asks for.

    Raises MatrixError as :func:`make_matrix` does.
    """
    return tuple(make_matrix(plan, intent).cells())


def counts(cells: Iterable[Cell]) -> dict[Family, int]:
    """The number of cells of each family that has any."""
    numbers: dict[Family, int] = {}
    for cell in cells:
        numbers[cell.family] = numbers.get(cell.family, 0) + 1
    return numbers


def _no_cells(plan: Plan, happened: str) -> MatrixError:
    return MatrixError(
        f"making the matrix of scenario '{plan.scenario}'",
        happened,
        "give its nodes more pods, or other families under 'matrix' in the scenario",
    )
