"""Where packets are lost, by the counters of the machines' devices. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from lab._errors import LabError
from lab.facts.difference import Difference
from lab.facts.node import NodeFacts, rises
from lab.topology.path import Hop, Path

FEWEST = 3
"""Lost packets that count as a loss; fewer may belong to other traffic."""
COUNTED = frozenset({"packets-dropped", "lost-between"})
"""Kinds of findings from packet counters."""
_DROPS = ("dropped", "errors")


def find_losses(
    path: Path,
    before: Mapping[str, NodeFacts | LabError],
    after: Mapping[str, NodeFacts | LabError],
) -> tuple[Difference, ...]:
    """Where on the path packets were lost between two observations with probes in between."""
    risen = dict(list_counter_rises(before, after))
    return tuple(find_drops(path, risen)) + tuple(_find_gaps(path, risen))


def list_counter_rises(
    before: Mapping[str, NodeFacts | LabError], after: Mapping[str, NodeFacts | LabError]
) -> Iterator[tuple[str, Mapping[str, int]]]:
    """The increase of the counters of every machine that was observed twice."""
    for name, now in after.items():
        then = before.get(name)
        if isinstance(then, NodeFacts) and isinstance(now, NodeFacts):
            yield name, {rise.name: rise.value for rise in rises(then, now)}


def drops_some(difference: Difference) -> bool:
    """Whether it drops only some packets, or those beyond a rate."""
    return difference.kind == "packets-lost" or difference.effect.partial


def find_drops(path: Path, risen: Mapping[str, Mapping[str, int]]) -> Iterator[Difference]:
    """Devices of the path that counted dropped packets themselves."""
    visited: set[tuple[str, str]] = set()
    for number, hop in enumerate(path.hops):
        if not hop.device or hop.place != hop.machine or (hop.machine, hop.device) in visited:
            continue
        visited.add((hop.machine, hop.device))
        drops = {
            name: count
            for name, count in risen.get(hop.machine, {}).items()
            if name.startswith(f"{hop.device} ") and name.endswith(_DROPS)
        }
        if drops:
            counts = ", ".join(f"{name} {count}" for name, count in drops.items())
            yield _finding(
                "packets-dropped", hop, number, f"{counts} while it was asked", "no drops"
            )


def _find_gaps(path: Path, risen: Mapping[str, Mapping[str, int]]) -> Iterator[Difference]:
    """Pairs of interfaces of which one sent packets and the other received none."""
    for number, (sender, receiver) in enumerate(pairwise(path.hops), start=1):
        if sender.kind != "card" or receiver.kind != "card" or sender.machine == receiver.machine:
            continue
        if sender.machine not in risen or receiver.machine not in risen:
            continue
        sent = risen[sender.machine].get(f"{sender.device} sent packets", 0)
        got = risen[receiver.machine].get(f"{receiver.device} received packets", 0)
        if sent >= FEWEST and not got:
            observed = f"{sent} packets sent by {sender.device} of {sender.machine}, none arrived"
            yield _finding("lost-between", receiver, number, observed, "as many as were sent")


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
