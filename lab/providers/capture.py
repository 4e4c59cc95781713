"""What a provider adds that can take down packets where they pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from lab._deadline import Deadline
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent

Direction = Literal["in", "out", "other"]
"""Seen from the device: ``other`` came in for another MAC."""

SNAP_BYTES = 262_144
"""Of one packet as much as this is kept: more than the kernel ever hands over in one piece."""


@dataclass(frozen=True, slots=True)
class Tap:
    """One device, and the pod or machine in whose network namespace it is."""

    place: str
    device: str

    def __str__(self) -> str:
        return f"{self.place} {self.device}"


@dataclass(frozen=True, slots=True)
class Frame:
    """One packet as it passed a device, from its Ethernet header on."""

    at: int
    """Nanoseconds since 1970, by the clock of the computer that the device is on."""
    direction: Direction
    data: bytes
    length: int
    """Bytes of the whole; more than there is ``data`` where it was cut."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What passed one tap."""

    tap: Tap
    frames: tuple[Frame, ...]
    missed: int = 0
    """Packets that passed and were not kept: the tap's share was used up."""
    trouble: str = ""
    """Why nothing could be taken down there; empty where it could."""


class Capturing(Protocol):
    """What a provider has that can take down packets."""

    def capture(  # noqa: PLR0913, PLR0917  each of them differs from call to call
        self,
        lab: LabHandle,
        intent: Intent,
        taps: Sequence[Tap],
        limit: int,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[Taken, ...]:
        """Take down all that passes the taps while ``during`` runs; in the order of the taps.

        ``during`` is called once every tap is open. ``limit`` is bytes kept of each. A tap that
        cannot be opened takes nothing from the others. Nothing is left behind, however it ends.

        Raises BrokenError when the lab's machines are not there. Raises DeadlineError when it has
        not ended in time.
        """
