"""One cell of the matrix: who asks whom, how, and what must come of it. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
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
