"""What the journal holds, row by row. Times are seconds since 1970, UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LabState = Literal["starting", "up", "broken", "interrupted", "going", "down"]
"""``starting``: an ``up`` is under way or was killed; ``interrupted``: it was told to stop;
``going``: a ``down`` is under way or was killed; ``down``: gone, the name is remembered."""
StepState = Literal["intended", "done"]
ResourceState = Literal["intended", "made", "gone"]


@dataclass(frozen=True, slots=True)
class LabRow:
    """One lab, as it was asked for and how far it has got."""

    name: str
    scenario: str
    scenario_text: str
    scenario_path: str
    provider: str
    token: str
    status: LabState
    created: float
    updated: float
    """When it was last brought up, changed or tested."""
    plan_digest: str
    options: Mapping[str, object] = field(default_factory=dict)
    detail: str = ""
    """Why it is broken or interrupted, in words."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of bringing a lab up."""

    position: int
    name: str
    digest: str
    state: StepState
    at: float


@dataclass(frozen=True, slots=True)
class ResourceRow:
    """One thing that a lab is made of, ``kind`` and ``name`` in the provider's words."""

    kind: str
    name: str
    state: ResourceState


@dataclass(frozen=True, slots=True)
class FaultRow:
    """One fault that was put into a lab on purpose."""

    number: int
    """Counts up within a lab, in the order in which faults were put in."""
    token: str
    """The lab's token at the time, as of a run."""
    name: str
    node: str
    peer: str
    """Empty for a fault that concerns one machine."""
    state: StepState
    at: float
    observed: str
    """What the lab's cluster had got then, see :func:`lab.cluster.observed.to_text`; empty where
    it has none, and in rows that were written before that was kept."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of the matrix. It outlives its lab."""

    id: str
    lab: str
    token: str
    """The lab's token at the time: a lab that was taken down and brought up again has another."""
    scenario: str
    provider: str
    started: str
    """ISO 8601, UTC."""
    seconds: float
    green: bool
    counts: Mapping[str, int]
    """Cells per verdict."""


@dataclass(frozen=True, slots=True)
class CellRow:
    """One cell of a run; ``latency`` in milliseconds, None where nothing answered."""

    id: str
    family: str
    verdict: str
    latency: float | None
    detail: str
