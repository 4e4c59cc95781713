"""One cell of the matrix: who asks whom, how, and what must come of it; and a grid of them.

A lab of 100 nodes has 36 million cells. What a grid holds grows with the sources and with the
targets; a cell is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from lab.scenario.scenario import Limit
from lab.scenario.terms import Family, Os, Protocol, Refusal, Size

EndpointKind = Literal["pod", "service", "nodeport", "node", "client", "name", "api"]
Relation = Literal["self", "same-node", "other-node", "outside"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A thing that sends or answers."""

    name: str
    """``worker1-p1``, ``to-win1-p1`` (Service), ``win1:to-worker1-p1`` (NodePort on win1),
    ``client``, ``api`` (the address in front of the API servers), or a DNS name as asked."""
    kind: EndpointKind
    os: Os
    """Of the machine that answers (for a Service: its backend's)."""
    node: str | None
    """Of the pod that answers; the node itself; None outside the cluster and for a shared
    Service, whose backends stand on several nodes."""
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One (source, target, protocol, size)."""

    id: str
    """``pod-pod/worker1-p1/win1-p1/tcp-small``: unique, stable from run to run, no spaces."""
    family: Family
    source: Endpoint
    target: Endpoint
    protocol: Protocol
    size: Size
    relation: Relation
    """Where the backend that must answer stands, seen from the source."""
    entry: str | None
    """For NodePorts: the node that is asked."""
    name_form: Literal["short", "partial", "full"] | None
    backends: tuple[str, ...]
    """Endpoints that must answer; more than one only for a shared Service or the API (64 tries)."""
    sources: frozenset[str]
    """Addresses the backend may see; empty where any will do."""
    answer: str | None
    """Of a name: the addresses that must be answered, in their order with commas between. For a
    health check: the number of backends that the node must speak of. None elsewhere."""
    mtu: int
    """Bytes of an IP packet that the path carries."""
    refusal: Refusal | None = None
    """How it must fail where Kubernetes has nobody answer it; ``backends`` is then empty."""
    sticky: bool = False
    """Whether one of the backends must answer every time, whichever it is."""
    entry_os: Os | None = None
    """For NodePorts: of the node that is asked."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a cell is expected to do, by which rule, and why."""

    works: bool
    rule: str
    reason: str
    source: str
    refusal: str | None
    """How it fails when it is not to work: a :data:`~lab.scenario.scenario.Refusal`."""
    promised: bool = False
    """Whether it is Kubernetes' own promise that the cell does not work, and no limit."""

    @classmethod
    def of_limit(cls, limit: Limit) -> Expectation:
        """The expectation that a limit stands for."""
        return cls(False, limit.id, limit.reason, limit.source, limit.refusal)


Variant = tuple[Protocol, Size, str]
"""Protocol, size, and how the two end a cell's id."""


@dataclass(frozen=True, slots=True)
class GridPath:
    """One source and one target, before protocol and size."""

    source: Endpoint
    target: Endpoint
    relation: Relation
    backends: tuple[str, ...]
    sources: frozenset[str] = frozenset()
    entry: str | None = None
    entry_os: Os | None = None
    name_form: Literal["short", "partial", "full"] | None = None
    answer: str | None = None
    refusal: Refusal | None = None
    sticky: bool = False


@dataclass(frozen=True, slots=True)
class GridTarget:
    """One column of a grid: what all its sources ask."""

    group: str
    """The node that is asked or answers, or the name of what stands on no single node."""
    on_node: bool
    path: Callable[[Endpoint], GridPath]
    kind: str = ""
    """What tells it from others of its group that lead elsewhere."""
    never: frozenset[str] = frozenset()
    """Names of sources that do not ask it."""
    only_small: bool = False
    protocol: Protocol | None = None
    """The one protocol that it is asked over; None for all that the scenario asks for."""


@dataclass(frozen=True)
class Grid:
    """All the cells of one family."""

    family: Family
    sources: tuple[Endpoint, ...]
    targets: tuple[GridTarget, ...]
    variants: tuple[Variant, ...]
    small: tuple[Variant, ...]
    """The variants of targets that are ``only_small``."""
    mtu: int

    @cached_property
    def size(self) -> int:
        """How many cells it has."""
        names = {source.name for source in self.sources}
        return sum(
            len(self.variants_of(target)) * (len(names) - len(target.never & names))
            for target in self.targets
        )

    def variants_of(self, target: GridTarget) -> tuple[Variant, ...]:
        """Those in which a target is asked."""
        every = self.small if target.only_small else self.variants
        if target.protocol is None:
            return every
        return tuple(one for one in every if one[0] == target.protocol)

    def cells(self) -> Iterator[Cell]:
        """Every cell, by source, target, protocol and size."""
        for source in self.sources:
            for target in self.targets:
                if source.name not in target.never:
                    path = target.path(source)
                    for variant in self.variants_of(target):
                        yield self.cell(path, variant)

    @cached_property
    def askers(self) -> dict[str, list[int]]:
        """Places of the sources on each node; what stands on none is by itself."""
        found: dict[str, list[int]] = {}
        for place, source in enumerate(self.sources):
            found.setdefault(source.node or source.name, []).append(place)
        return found

    @cached_property
    def asked(self) -> dict[str, list[int]]:
        """Places of the targets of each group."""
        found: dict[str, list[int]] = {}
        for place, target in enumerate(self.targets):
            found.setdefault(target.group, []).append(place)
        return found

    def find(self, source: str, target: str, suffix: str) -> Cell | None:
        """The cell of those names and of that end of an id; None where there is none."""
        asking = next((one for one in self.sources if one.name == source), None)
        if asking is None:
            return None
        for asked in self.targets:
            if source not in asked.never and (path := asked.path(asking)).target.name == target:
                for variant in self.variants_of(asked):
                    if variant[2] == suffix:
                        return self.cell(path, variant)
        return None

    def cell(self, path: GridPath, variant: Variant) -> Cell:
        """One cell."""
        protocol, size, suffix = variant
        return Cell(
            f"{self.family}/{path.source.name}/{path.target.name}/{suffix}",
            self.family,
            path.source,
            path.target,
            protocol,
            size,
            path.relation,
            path.entry,
            path.name_form,
            path.backends,
            path.sources,
            path.answer,
            self.mtu,
            path.refusal,
            path.sticky,
            path.entry_os,
        )
