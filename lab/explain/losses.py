"""Where packets are lost, by the counters of the machines' devices. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from lab._errors import LabError
from lab.explain.check import kind_of
from lab.facts.difference import Difference
from lab.facts.node import PACKETS, DeviceCounter, NodeFacts, find_rises
from lab.topology.path import Hop, Path

FEWEST = 3
"""Lost packets that count as a loss; fewer may belong to other traffic."""


def find_losses(
    path: Path,
    before: Mapping[str, NodeFacts | LabError],
    after: Mapping[str, NodeFacts | LabError],
) -> tuple[Difference, ...]:
    """Where on the path packets were lost between two observations with probes in between."""
    rises = find_machine_rises(before, after)
    return tuple(find_drops(path, rises)) + tuple(_find_gaps(path, rises))


def find_machine_rises(
    before: Mapping[str, NodeFacts | LabError], after: Mapping[str, NodeFacts | LabError]
) -> Mapping[str, tuple[DeviceCounter, ...]]:
    """The increase of the counters of every machine that was observed twice."""
    return {
        name: find_rises(then, now)
        for name, now in after.items()
        if isinstance(now, NodeFacts) and isinstance(then := before.get(name), NodeFacts)
    }


def drops_some(difference: Difference) -> bool:
    """Whether it drops only some packets, or those beyond a rate."""
    return kind_of(difference).partial or difference.effect.partial


Rises = Mapping[str, Sequence[DeviceCounter]]
"""The increase of counters, by machine."""


def find_drops(path: Path, rises: Rises) -> Iterator[Difference]:
    """Devices of the path that counted dropped packets themselves."""
    visited: set[tuple[str, str]] = set()
    for number, hop in enumerate(path.hops):
        if not hop.device or hop.place != hop.machine or (hop.machine, hop.device) in visited:
            continue
        visited.add((hop.machine, hop.device))
        counts = ", ".join(
            f"{rise.device} {rise.direction} {rise.event} {rise.value}"
            for rise in rises.get(hop.machine, ())
            if rise.device == hop.device and rise.loses
        )
        if counts:
            yield _finding(
                "packets-dropped", hop, number, f"{counts} while it was asked", "no drops"
            )


def _find_gaps(path: Path, rises: Rises) -> Iterator[Difference]:
    """Pairs of interfaces of which one sent packets and the other received none."""
    for number, (sender, receiver) in enumerate(pairwise(path.hops), start=1):
        if sender.kind != "card" or receiver.kind != "card" or sender.machine == receiver.machine:
            continue
        if sender.machine not in rises or receiver.machine not in rises:
            continue
        sent = _count_packets(rises[sender.machine], sender.device, "sent")
        if sent >= FEWEST and not _count_packets(
            rises[receiver.machine], receiver.device, "received"
        ):
            observed = f"{sent} packets sent by {sender.device} of {sender.machine}, none arrived"
            yield _finding("lost-between", receiver, number, observed, "as many as were sent")


def _count_packets(rises: Iterable[DeviceCounter], device: str, direction: str) -> int:
    return sum(
        rise.value
        for rise in rises
        if rise.device == device and rise.direction == direction and rise.event == PACKETS
    )


def _finding(kind: str, hop: Hop, number: int, observed: str, intended: str) -> Difference:
    return Difference(
        kind,
        "",
        hop.machine,
        hop.object,
        intended,
        observed,
        f"ip -statistics link show dev {hop.device}",
        "check what is between the two: cable, switch, or the hypervisor's network",
        hop.machine,
        number,
        subject=hop.subject,
    )
