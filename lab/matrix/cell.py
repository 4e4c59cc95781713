"""One cell of the matrix: source, target, protocol and expected outcome; and a grid of cells.

A lab of 100 nodes has 36 million cells. The size of a grid grows with the number of sources plus
targets; a cell is created only when it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Literal

from lab._dataclass import dataclass
from lab.scenario.scenario import Limit
from lab.scenario.terms import Family, Os, Protocol, Refusal, Size

EndpointKind = Literal["pod", "service", "nodeport", "node", "client", "name", "api"]
Relation = Literal["self", "same-node", "other-node", "outside"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Something that sends or answers probes."""

    name: str
    """``worker1-p1``, ``to-win1-p1`` (Service), ``win1:to-win2-p1`` (NodePort on win1),
    ``client``, ``api`` (the address in front of the API servers), or a DNS name as queried."""
    kind: EndpointKind
    os: Os
    """Operating system of the machine that answers (for a Service, that of its backend)."""
    node: str | None
    """Node of the pod that answers; the node itself; None outside the cluster and for a shared
    Service, whose backends are on several nodes."""
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One (source, target, protocol, size)."""

    id: str
    """``pod-pod/worker1-p1/win1-p1/tcp-small``: unique, the same in every run, no spaces."""
    family: Family
    source: Endpoint
    target: Endpoint
    protocol: Protocol
    size: Size
    relation: Relation
    """Where the backend that must answer is, relative to the source."""
    entry: str | None
    """For NodePorts: the node that is probed."""
    name_form: Literal["short", "partial", "full"] | None
    backends: tuple[str, ...]
    """Endpoints that must answer; more than one only for a shared Service or the API (64 tries)."""
    sources: frozenset[str]
    """Source addresses that the backend may see; empty if any is allowed."""
    answer: str | None
    """For a name: the addresses that it must resolve to, sorted, separated by commas. For a health
    check: the number of backends that the node must report. Else None."""
    mtu: int
    """Bytes of an IP packet that the path carries."""
    refusal: Refusal | None = None
    """How it must fail if, by Kubernetes' rules, nothing answers; ``backends`` is then empty."""
    sticky: bool = False
    """Whether the same backend, any of them, must answer every time."""
    entry_os: Os | None = None
    """For NodePorts: operating system of the node that is probed."""
    min_throughput: int | None = None
    """Bits a second that the stream must carry; None where any rate will do."""
    unreachable: str = ""
    """Why, by the Intent, no answer comes; empty for cells of families, which have rules."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """The expected outcome of a cell, with the rule and the reason."""

    works: bool
    rule: str
    reason: str
    source: str
    refusal: str | None
    """How it fails if it is not expected to work: a :data:`~lab.scenario.scenario.Refusal`."""
    promised: bool = False
    """Whether Kubernetes specifies that the cell does not work; False for a known limit."""
    exception: int = 0
    """The number of the scenario's exception that it comes from, from 1; 0 for any other rule."""

    @classmethod
    def of_limit(cls, limit: Limit) -> Expectation:
        """The expectation of a known limit."""
        return cls(
            *(False, limit.id, limit.reason, limit.source, limit.refusal),
            exception=limit.exception,
        )

    @property
    def unmet(self) -> str:
        """``exception 1 (firewalled.yaml:47) no longer holds``; of another limit, its id."""
        if self.exception:
            return f"exception {self.exception} ({self.source}) no longer holds"
        return f"known limit {self.rule} no longer holds"

    @property
    def advice(self) -> str:
        """What to do if it no longer holds; empty unless it is the user's own exception."""
        return "remove it or narrow its 'when'" if self.exception else ""


_ID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:/]*")


def is_id(text: str) -> bool:
    """Whether a cell can have this id; it is then one word of a command, and no option."""
    return _ID.fullmatch(text) is not None


Variant = tuple[Protocol, Size, str]
"""Protocol, size, and the suffix of a cell's id for them."""


@dataclass(frozen=True, slots=True)
class GridPath:
    """One source and one target, without protocol and size."""

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
    min_throughput: int | None = None
    unreachable: str = ""


@dataclass(frozen=True, slots=True)
class GridTarget:
    """One target of a grid, for all its sources.

    The grid calls ``path`` once for each source. So the NodePort of a remote Linux pod, asked at
    ``worker1``, is one target: ``path(master_p1)`` gives ``master-p1`` as the source, the node port
    at ``worker1`` as the target, and as the backend the pod that is chosen for that source. Its
    ``group`` is ``worker1`` and its ``kind`` ``linux``; ``local`` and ``windows`` are two more
    targets there.
    """

    group: str
    """The node that is probed or answers; the target's name if that is not a single node."""
    on_node: bool
    path: Callable[[Endpoint], GridPath]
    kind: str = ""
    """Distinguishes it from other targets of its group."""
    excluded: frozenset[str] = frozenset()
    """Names of sources that do not probe it."""
    only_small: bool = False
    protocol: Protocol | None = None
    """The only protocol that it is probed over; None for all that the scenario asks for."""


@dataclass(frozen=True)
class Grid:
    """All the cells of one family."""

    family: Family
    sources: tuple[Endpoint, ...]
    targets: tuple[GridTarget, ...]
    variants: tuple[Variant, ...]
    small: tuple[Variant, ...]
    """The variants of targets that are ``only_small``; of streams the one that they have."""
    mtu: int

    @cached_property
    def size(self) -> int:
        """The number of cells."""
        names = {source.name for source in self.sources}
        return sum(
            len(self.variants_of(target)) * (len(names) - len(target.excluded & names))
            for target in self.targets
        )

    def variants_of(self, target: GridTarget) -> tuple[Variant, ...]:
        """The variants of one target."""
        every = self.small if target.only_small else self.variants
        if target.protocol is None:
            return every
        return tuple(variant for variant in every if variant[0] == target.protocol)

    def cells(self) -> Iterator[Cell]:
        """Every cell, by source, target, protocol and size."""
        for source in self.sources:
            for target in self.targets:
                if source.name not in target.excluded:
                    path = target.path(source)
                    for variant in self.variants_of(target):
                        yield self.cell(path, variant)

    @cached_property
    def sources_by_node(self) -> dict[str, list[int]]:
        """Indexes of the sources on each node; a source on no node is its own group."""
        indexes: dict[str, list[int]] = {}
        for index, source in enumerate(self.sources):
            indexes.setdefault(source.node or source.name, []).append(index)
        return indexes

    @cached_property
    def targets_by_group(self) -> dict[str, list[int]]:
        """Indexes of the targets of each group."""
        indexes: dict[str, list[int]] = {}
        for index, target in enumerate(self.targets):
            indexes.setdefault(target.group, []).append(index)
        return indexes

    def find(self, source: str, target: str, suffix: str) -> Cell | None:
        """The cell with these names and this suffix of its id; None if there is none."""
        asking = next((endpoint for endpoint in self.sources if endpoint.name == source), None)
        if asking is None:
            return None
        for grid_target in self.targets:
            if (
                source not in grid_target.excluded
                and (path := grid_target.path(asking)).target.name == target
            ):
                for variant in self.variants_of(grid_target):
                    if variant[2] == suffix:
                        return self.cell(path, variant)
        return None

    def cell(self, path: GridPath, variant: Variant) -> Cell:
        """The cell of a path and a variant."""
        protocol, size, suffix = variant
        return Cell(
            id=f"{self.family}/{path.source.name}/{path.target.name}/{suffix}",
            family=self.family,
            source=path.source,
            target=path.target,
            protocol=protocol,
            size=size,
            relation=path.relation,
            entry=path.entry,
            name_form=path.name_form,
            backends=path.backends,
            sources=path.sources,
            answer=path.answer,
            mtu=self.mtu,
            refusal=path.refusal,
            sticky=path.sticky,
            entry_os=path.entry_os,
            min_throughput=path.min_throughput,
            unreachable=path.unreachable,
        )
