"""The ability to take machines off their networks, and measure meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from lab.providers.provider import FAILOVER, Dialect, LabHandle, Provider
from lab.topology import gateways
from lab.topology.intent import Intent


@dataclass(frozen=True, slots=True)
class Beat:
    """One pair of pods between which datagrams go in a steady beat."""

    source: str
    target: str
    address: str
    """The target's."""
    dialect: Dialect = "lab"
    """What the target understands; the provider knows. Never kube-proxy's."""


@dataclass(frozen=True, slots=True)
class BeatPace:
    """How a beat goes. Times are seconds."""

    every: float = 0.02
    """Between two datagrams of a pair."""
    calm: float = 2.0
    """So long every beat must have been answered for all to be well."""
    least: float = 6.0
    """The shortest time from the change on: longer than a silence may take to begin."""
    patience: float = 45.0
    """The longest."""


@dataclass(frozen=True, slots=True)
class Silence:
    """The longest time in which one pair's datagrams were not answered, in seconds."""

    source: str
    target: str
    seconds: float
    sent: int
    answered: int


class FailoverProvider(Protocol):
    """What a provider adds that can take machines off their networks, and measure meanwhile."""

    def gateway_holders(self, lab: LabHandle, intent: Intent) -> Mapping[str, Sequence[str]]:
        """Machines that hold each virtual gateway now, by the node whose gateway it is.

        Raises BrokenError when the lab's machines are not there.
        """

    def cut_off(self, lab: LabHandle, intent: Intent, machine: str) -> None:
        """Take the machine off every network, as when its power fails."""

    def join_again(self, lab: LabHandle, intent: Intent, machine: str) -> None:
        """Put it back: its addresses, routes and neighbours are as they were."""

    def pulse(
        self,
        lab: LabHandle,
        beats: Sequence[Beat],
        change: Callable[[], None],
        pace: BeatPace,
    ) -> tuple[Silence, ...]:
        """Send datagrams in a steady beat, call ``change`` once all are answered, and go on.

        Raises BrokenError where not every pair is answered to begin with; nothing was changed then.
        """


def resolve_gateways(provider: Provider, lab: LabHandle, intent: Intent) -> Intent:
    """The intent with each gateway on the one machine that holds it.

    One that nobody holds, or several do, stays where it was planned: that is a fault, for others
    to tell.

    Raises BrokenError when the lab's machines are not there.
    """
    if FAILOVER not in provider.abilities or not intent.gateways:
        return intent
    return gateways.settled(intent, cast(FailoverProvider, provider).gateway_holders(lab, intent))
