"""What counters tell that state does not: where packets were sent and did not arrive. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from lab._errors import LabError
from lab.cluster.observers.facts import NodeFacts, rises
from lab.matrix.explain.finding import Finding
from lab.topology.path import Hop, Path

FEWEST = 3
"""Packets that were sent and of which none arrived; fewer may be somebody else's."""
COUNTED = frozenset({"packets-dropped", "lost-between"})
"""The kinds of what is found here."""
_DROPS = ("dropped", "errors")


def lost(
    path: Path,
    before: Mapping[str, NodeFacts | LabError],
    after: Mapping[str, NodeFacts | LabError],
) -> tuple[Finding, ...]:
    """Where on the path packets were lost between two looks, during which it was asked."""
    risen = dict(_risen(before, after))
    return tuple(_dropped(path, risen)) + tuple(_between(path, risen))


def _risen(
    before: Mapping[str, NodeFacts | LabError], after: Mapping[str, NodeFacts | LabError]
) -> Iterator[tuple[str, Mapping[str, int]]]:
    """By how much the counters rose of every machine that was seen twice."""
    for name, now in after.items():
        then = before.get(name)
        if isinstance(then, NodeFacts) and isinstance(now, NodeFacts):
            yield name, {one.name: one.value for one in rises(then, now)}


def _dropped(path: Path, risen: Mapping[str, Mapping[str, int]]) -> Iterator[Finding]:
    """Devices of the path that have themselves counted packets as lost."""
    told: set[tuple[str, str]] = set()
    for number, hop in enumerate(path.hops):
        if not hop.device or hop.place != hop.machine or (hop.machine, hop.device) in told:
            continue
        told.add((hop.machine, hop.device))
        drops = {
            name: count
            for name, count in risen.get(hop.machine, {}).items()
            if name.startswith(f"{hop.device} ") and name.endswith(_DROPS)
        }
        if drops:
            said = ", ".join(f"{name} {count}" for name, count in drops.items())
            yield _finding("packets-dropped", hop, number, f"{said} while it was asked", "no drops")


def _between(path: Path, risen: Mapping[str, Mapping[str, int]]) -> Iterator[Finding]:
    """Pairs of cards of which one sent, and the other heard nothing at all."""
    for number, (one, other) in enumerate(pairwise(path.hops), start=1):
        if one.kind != "card" or other.kind != "card" or one.machine == other.machine:
            continue
        if one.machine not in risen or other.machine not in risen:
            continue
        sent = risen[one.machine].get(f"{one.device} sent packets", 0)
        got = risen[other.machine].get(f"{other.device} received packets", 0)
        if sent >= FEWEST and not got:
            observed = f"{sent} packets sent by {one.device} of {one.machine}, and none arrived"
            yield _finding("lost-between", other, number, observed, "as many as were sent")


def _finding(kind: str, hop: Hop, number: int, observed: str, intended: str) -> Finding:
    return Finding(
        kind,
        "",
        hop.machine,
        hop.object,
        intended,
        observed,
        f"ip -statistics link show dev {hop.device}",
        "see what is between the two: cable, switch, or the hypervisor's network",
        hop.machine,
        number,
    )
