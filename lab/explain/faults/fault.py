"""What a fault is: where it can be done, how it is done and how it is undone. Pure data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from lab.topology.intent import Intent

Peer = Literal["node", "pod"]


@dataclass(frozen=True, slots=True)
class FaultCommand:
    """One shell line, and the pod or machine on which it is run as root."""

    place: str
    line: str


@dataclass(frozen=True, slots=True)
class FaultChange:
    """What breaks, and what mends.

    ``undo`` leads to what the Intent says, whatever of ``do`` was done, and is as good when it
    is repeated.
    """

    do: tuple[FaultCommand, ...]
    undo: tuple[FaultCommand, ...]


@dataclass(frozen=True, slots=True)
class FaultSite:
    """A machine that a fault can be done on, and the other ends there are to choose from."""

    node: str
    peers: tuple[str, ...] = ()
    """The first is taken where nobody says; empty for a fault that concerns one machine."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to break a lab."""

    name: str
    title: str
    """One sentence for a person."""
    needs: str
    """What a machine must have for it, in words: ``"a tunnel"``."""
    sites: Callable[[Intent], Iterable[FaultSite]]
    change: Callable[[Intent, str, str], FaultChange]
    """From the Intent, the machine and the peer (empty where there is none)."""
    peer: Peer | None = None
    """What the other end is; None for a fault that concerns one machine."""
    also: tuple[str, ...] = ()
    """What people call it too; an error then names the fault that is meant."""
    asks: str = ""
    """A shell line that fails on a machine whose kernel or tools cannot do it."""
    figures: str = ""
    """The figures that it can be given, in words; empty where it has none."""
    with_figures: Callable[[Sequence[str]], Fault] | None = None
    """The same with figures, which are then a part of its name. ValueError for other words. What
    undoes it is the same for all figures."""


def change(place: str, do: Iterable[str], undo: Iterable[str]) -> FaultChange:
    """A change of one machine or pod."""
    return FaultChange(
        tuple(FaultCommand(place, line) for line in do),
        tuple(FaultCommand(place, line) for line in undo),
    )
