"""What the drawn topology is made of. Pure; lengths are pixels of the view box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.reports.picture import DrawnMachine, DrawnPod


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle from its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """Centre, horizontally."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """Lower edge."""
        return self.y + self.height

    def overlaps(self, other: Box) -> bool:
        """Whether the two share more than an edge."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.bottom
            and other.y < self.bottom
        )

    def within(self, other: Box) -> bool:
        """Whether all of this box lies in the other."""
        return (
            other.x <= self.x
            and other.y <= self.y
            and self.x + self.width <= other.x + other.width
            and self.bottom <= other.bottom
        )


@dataclass(frozen=True, slots=True)
class MachineBox:
    """A machine's box and those of its pods, which lie inside it."""

    machine: DrawnMachine
    box: Box
    pods: tuple[tuple[DrawnPod, Box], ...]
    dots: bool
    """Whether pods are drawn as dots."""


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line of a segment or of the tunnel."""

    kind: Literal["segment", "tunnel"]
    start: tuple[float, float]
    end: tuple[float, float]
    rail: bool
    """Whether it is the thing itself, or only the way to it."""


@dataclass(frozen=True, slots=True)
class Caption:
    """Words on a rail; ``x``, ``y`` is the left end of their base line."""

    kind: Literal["segment", "tunnel"]
    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class HypervisorFrame:
    """A hypervisor, around all that stands on it."""

    hypervisor: DrawnMachine
    box: Box


@dataclass(frozen=True, slots=True)
class Drawing:
    """The whole drawing, inside ``view``."""

    view: Box
    cards: tuple[MachineBox, ...]
    lines: tuple[Line, ...]
    captions: tuple[Caption, ...]
    frames: tuple[HypervisorFrame, ...] = ()
