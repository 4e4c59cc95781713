"""The interface of failover: a provider cuts a machine off, and measures how long pods wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from lab._dataclass import dataclass
from lab.providers.provider import FAILOVER, Dialect, LabHandle, Provider

if TYPE_CHECKING:
    from lab.topology.intent import Intent


@dataclass(frozen=True, slots=True)
class Beat:
    """One pair of pods that exchange datagrams at a fixed interval."""

    source: str
    target: str
    address: str
    """The target's address."""
    dialect: Dialect = "lab"
    """The dialect that the target understands: ``lab`` or ``netexec``; the provider chooses."""


@dataclass(frozen=True, slots=True)
class BeatPace:
    """Timing of the datagrams, in seconds."""

    every: float = 0.02
    """Interval between two datagrams of a pair."""
    calm: float = 2.0
    """A pair counts as steady once every datagram was answered for this long."""
    least: float = 6.0
    """Shortest measurement after the change; longer than an outage may take to begin."""
    patience: float = 45.0
    """Longest measurement."""


@dataclass(frozen=True, slots=True)
class Silence:
    """One pair's longest time without an answer, in seconds."""

    source: str
    target: str
    seconds: float
    sent: int
    answered: int


class FailoverProvider(Protocol):
    """The methods of a provider with the ability ``FAILOVER``."""

    def gateway_holders(self, lab: LabHandle, intent: Intent) -> Mapping[str, Sequence[str]]:
        """The machines that hold each node's virtual gateway now, by node.

        Raises BrokenError when the lab's machines do not exist.
        """

    def cut_off(self, lab: LabHandle, intent: Intent, machine: str) -> None:
        """Disconnect the machine from every network, as if it had lost power."""

    def reconnect(self, lab: LabHandle, intent: Intent, machine: str) -> None:
        """Reconnect the machine; its addresses, routes and neighbours are as before."""

    def pulse(
        self,
        lab: LabHandle,
        beats: Sequence[Beat],
        change: Callable[[], None],
        pace: BeatPace,
    ) -> tuple[Silence, ...]:
        """Send datagrams at a fixed interval, call ``change`` once all are answered, and continue.

        Raises BrokenError if some pair is not answered before the change; then ``change`` was not
        called.
        """


def resolve_gateways(provider: Provider, lab: LabHandle, intent: Intent) -> Intent:
    """The intent with each virtual gateway on the machine that holds it.

    A gateway that no machine or several machines hold stays where it was planned; explain reports
    that fault.

    Raises BrokenError when the lab's machines do not exist.
    """
    if FAILOVER not in provider.abilities or not intent.gateways:
        return intent
    from lab.topology import gateways  # noqa: PLC0415  few labs have any

    return gateways.settle_gateways(
        intent, cast(FailoverProvider, provider).gateway_holders(lab, intent)
    )
