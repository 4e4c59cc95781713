"""The interface of a family of cells: one object in one file of :mod:`lab.matrix.families`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from lab.matrix.cell import Endpoint, Expectation, Grid, GridTarget, Variant
from lab.matrix.endpoints import LabEndpoints
from lab.scenario import families as scenario_families
from lab.scenario.families import FamilyTerm
from lab.scenario.terms import Family, Refusal

Ends = tuple[tuple[Endpoint, ...], Iterable[GridTarget]]
"""Sources and targets of a family."""

STREAM: tuple[Variant, ...] = (("tcp", "large", "tcp-stream"),)
"""The one way in which a rate is measured."""

MODEL = 'Kubernetes documentation, "The Kubernetes network model"'
SERVICES = 'Kubernetes documentation, "Service"'
DNS = 'Kubernetes documentation, "DNS for Services and Pods"'
PROXY = 'Kubernetes documentation, "Virtual IPs and Service Proxies"'
SOURCE_IP = 'Kubernetes documentation, "Using Source IP"'


@dataclass(frozen=True, kw_only=True)
class CellFamily(FamilyTerm):
    """One kind of cells.

    ``ends`` returns the sources and targets; ``works`` is the rule by which a cell works if no
    limit applies; ``promised`` has the rules by which a cell fails, by the kind of refusal.
    """

    ends: Callable[[LabEndpoints], Ends]
    works: Expectation
    promised: Mapping[Refusal, Expectation] = field(default_factory=dict)
    dialect: Literal["lab", "health", "throughput"] = "lab"
    """The protocol of the probe: that of the lab's own programs, a
    health check, or a stream whose rate is measured; streams are sent one at a time."""
    every_address: bool = False
    """Whether all addresses of a name are compared, and not only the first."""


def families() -> Mapping[Family, CellFamily]:
    """Every family by name, in order."""
    return cast("Mapping[Family, CellFamily]", scenario_families.terms())


def family_grid(lab: LabEndpoints, name: Family) -> Grid:
    """The cells of one family."""
    family = families()[name]
    sources, targets = family.ends(lab)
    small = STREAM if family.dialect == "throughput" else lab.small
    return Grid(name, sources, tuple(targets), lab.variants, small, lab.mtu)


def rule(name: str, reason: str, source: str) -> Expectation:
    """The expectation of cells that work."""
    return Expectation(works=True, rule=name, reason=reason, source=source, refusal=None)


def refusal(name: str, reason: str, how: Refusal, source: str) -> Mapping[Refusal, Expectation]:
    """The expectation of cells that fail, as Kubernetes specifies: not a known limit."""
    found = Expectation(
        works=False, rule=name, reason=reason, source=source, refusal=how, promised=True
    )
    return {how: found}
