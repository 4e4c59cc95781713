"""The families of cells that a scenario can name: every :class:`FamilyTerm` of a plug-in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from lab._plugins import objects

if TYPE_CHECKING:
    from lab.scenario.special import SpecialService
    from lab.scenario.terms import Family


@dataclass(frozen=True, kw_only=True)
class FamilyTerm:
    """A family, and which scenarios have cells of it."""

    name: Family
    order: int
    """Position among the families, and of its cells among the cells."""
    special: Callable[[SpecialService], bool] | None = None
    """Whether a special Service has cells of it; None if the family needs no such Service."""
    needs: str = ""
    """What a special Service needs to have cells of it, as written in the file."""
    services_node: bool = False
    """Whether its cells probe the services node."""
    tcp_only: bool = False
    on_request: bool = False
    """Whether its cells are asked only where somebody names it: the scenario, or ``-m``."""


@cache
def family_terms() -> Mapping[Family, FamilyTerm]:
    """Every family by name, in order."""
    ordered = sorted(objects("families", FamilyTerm), key=lambda family: family.order)
    return {family.name: family for family in ordered}


def usual_families() -> tuple[Family, ...]:
    """The families that every lab has cells of and is tested for."""
    return tuple(
        name
        for name, term in family_terms().items()
        if term.special is None and not term.services_node and not term.on_request
    )


def families_on_request() -> tuple[Family, ...]:
    """Those that are asked only where somebody names them."""
    return tuple(name for name, term in family_terms().items() if term.on_request)


def services_node_families() -> tuple[Family, ...]:
    """The families that only a lab with a services node has cells of."""
    return tuple(name for name, term in family_terms().items() if term.services_node)


def families_of(services: Iterable[SpecialService]) -> tuple[Family, ...]:
    """The usual families and those of the special Services, without duplicates."""
    special = (
        name
        for service in services
        for name, term in family_terms().items()
        if term.special and term.special(service)
    )
    return tuple(dict.fromkeys((*usual_families(), *special)))
