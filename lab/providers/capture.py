"""The capture ability: record packets at network devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from lab._deadline import Deadline
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent

Direction = Literal["in", "out", "other"]
"""Direction at the device; ``other`` is incoming for another MAC."""

SNAP_BYTES = 262_144
"""Most bytes kept per packet; more than the kernel ever delivers at once."""


@dataclass(frozen=True, slots=True)
class Tap:
    """One device, and the pod or machine in whose network namespace it is."""

    place: str
    device: str

    def __str__(self) -> str:
        return f"{self.place} {self.device}"


@dataclass(frozen=True, slots=True)
class Frame:
    """One packet at a device, from its Ethernet header on."""

    at: int
    """Nanoseconds since 1970, by the clock of the device's computer."""
    direction: Direction
    data: bytes
    length: int
    """Bytes of the whole packet; greater than ``len(data)`` if it was truncated."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The packets captured at one tap."""

    tap: Tap
    frames: tuple[Frame, ...]
    missed: int = 0
    """Packets not kept because the tap's limit was reached."""
    trouble: str = ""
    """Why nothing could be captured there; empty if it could."""


class Capturing(Protocol):
    """The methods of a provider with the ability ``CAPTURE``."""

    def capture(  # noqa: PLR0913, PLR0917  each of them differs from call to call
        self,
        lab: LabHandle,
        intent: Intent,
        taps: Sequence[Tap],
        limit: int,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[Taken, ...]:
        """Capture all packets at the taps while ``during`` runs; results in the order of the taps.

        ``during`` is called once every tap is open. ``limit`` is bytes kept per tap. A tap that
        cannot be opened does not affect the others. Nothing is left behind in any case.

        Raises BrokenError when the lab's machines do not exist. Raises DeadlineError when the
        capture does not finish in time.
        """
