"""Failover of virtual gateways: which machine to cut off, whom to probe, and the result. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lab._errors import UsageError
from lab.providers.failover import Beat, Silence
from lab.topology.intent import Intent, MachineIntent


@dataclass(frozen=True, slots=True)
class Turn:
    """One change: the holder cut off, or reconnected."""

    silences: tuple[Silence, ...]
    """The outage of every pair that was watched."""
    holders: Mapping[str, str | None]
    """The holders afterwards, by the node whose gateway it is."""
    wrong: tuple[str, ...]
    """Differences from the Intent on the connected machines, as sentences."""

    @property
    def longest(self) -> float:
        """The longest outage, in seconds."""
        return max((silence.seconds for silence in self.silences), default=0.0)


@dataclass(frozen=True, slots=True)
class Failover:
    """A holder cut off and reconnected."""

    lost: str
    before: Mapping[str, str | None]
    """The holders before, by the node whose gateway it is."""
    away: Turn
    back: Turn

    @property
    def trouble(self) -> str:
        """Why the failover failed, in one sentence; empty if it did not."""
        for phase, turn in (("is away", self.away), ("is back", self.back)):
            left = [node for node, holder in turn.holders.items() if holder is None]
            if left:
                return f"no machine holds the gateway of {left[0]} while {self.lost} {phase}"
            if turn.wrong:
                return f"while {self.lost} {phase}: {turn.wrong[0]}"
        stuck = [node for node, name in self.away.holders.items() if name == self.lost]
        return f"{self.lost} is away and still holds the gateway of {stuck[0]}" if stuck else ""

    def silence(self, turn: Turn, *, outward: bool) -> Silence | None:
        """The longest outage from behind the gateways (``outward``), or toward them."""
        behind = [
            silence
            for silence in turn.silences
            if (silence.source.rpartition("-p")[0] in self.before) == outward
        ]
        return max(behind, key=lambda silence: silence.seconds, default=None)

    @property
    def well(self) -> bool:
        """Whether other machines took over, and every route followed."""
        return not self.trouble


def holder_to_lose(intent: Intent, lab: str) -> str:
    """The machine to cut off: the holder of the first gateway.

    Raises UsageError when the lab has no gateway that another machine could take over.
    """
    action = f"testing the failover of lab '{lab}'"
    if not intent.gateways:
        raise UsageError(
            action,
            f"topology '{intent.topology}' has no gateway that could fail over",
            "a lab of scenario upstream-vrrp",
        )
    first = intent.gateways[0]
    if len(first.candidates) == 1:
        raise UsageError(
            action,
            f"only {first.holder} may hold the gateway of {first.node}",
            "a scenario with more Linux nodes",
        )
    assert first.holder is not None, "planned, or seen"
    return first.holder


def beats(intent: Intent, lost: str) -> tuple[Beat, ...]:
    """The pairs to watch: pods behind the lost machine's gateways, and pods of other Linux nodes.

    Every pair is probed in both directions, with the first pod of each node.
    """
    behind = [gateway.node for gateway in intent.gateways if gateway.holder == lost]
    linux = [
        machine
        for machine in intent.machines
        if machine.kind == "node" and machine.os == "linux"
        if machine.name not in {lost, *behind}
    ]
    return tuple(_pair_beats(intent, behind, linux))


def _pair_beats(intent: Intent, behind: list[str], linux: list[MachineIntent]) -> Iterator[Beat]:
    for name in behind:
        for other in linux:
            ends = [_first_pod(machine) for machine in (intent.machine(name), other)]
            if None not in ends:
                (first, its), (two, other_its) = (end for end in ends if end)
                yield Beat(first, two, other_its)
                yield Beat(two, first, its)


def _first_pod(machine: MachineIntent) -> tuple[str, str] | None:
    return next(
        ((pod.name, pod.address.partition("/")[0]) for pod in machine.pods if pod.role == "probe"),
        None,
    )
