"""A fault: where it can be injected, how, and how to undo it. Pure data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from lab.topology.intent import Intent

Peer = Literal["node", "pod"]


@dataclass(frozen=True, slots=True)
class FaultCommand:
    """One shell line, and the pod or machine on which it runs as root."""

    place: str
    line: str


@dataclass(frozen=True, slots=True)
class FaultChange:
    """The commands that inject a fault and those that undo it.

    ``undo`` restores what the Intent says, however much of ``do`` was done, and can be repeated.
    """

    do: tuple[FaultCommand, ...]
    undo: tuple[FaultCommand, ...]


@dataclass(frozen=True, slots=True)
class FaultSite:
    """A machine for a fault, and the possible peers."""

    node: str
    peers: tuple[str, ...] = ()
    """The first is the default; empty for a fault of a single machine."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to break a lab."""

    name: str
    title: str
    """One sentence for people."""
    needs: str
    """What a machine needs for it, as text: ``"a tunnel"``."""
    sites: Callable[[Intent], Iterable[FaultSite]]
    change: Callable[[Intent, str, str], FaultChange]
    """Takes the Intent, the machine, and the peer (or an empty text)."""
    peer: Peer | None = None
    """Kind of the peer; None for a fault of a single machine."""
    also: tuple[str, ...] = ()
    """Other names for it, for the hint of an error."""
    asks: str = ""
    """A shell line that fails on a machine whose kernel or tools do not support the fault."""
    figures: str = ""
    """Accepted figures, as text; empty if there are none."""
    with_figures: Callable[[Sequence[str]], Fault] | None = None
    """The fault with figures, which are then part of its name. ValueError for invalid ones.
    ``undo`` is the same for all figures.
    """


def change(place: str, do: Iterable[str], undo: Iterable[str]) -> FaultChange:
    """A change on one machine or pod."""
    return FaultChange(
        tuple(FaultCommand(place, line) for line in do),
        tuple(FaultCommand(place, line) for line in undo),
    )
