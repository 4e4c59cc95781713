"""Which machines and pods must be looked at to explain cells. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from lab.matrix.cell import Cell
from lab.matrix.run import retry_order
from lab.topology.intent import Intent
from lab.topology.path import Flow, Path
from lab.topology.walk import walk

MOST_CELLS = 48
"""Of a run's failures so many are walked to learn which machines they have in common."""
MOST_MACHINES = 16
"""So many of them are looked at; one takes a few hundredths of a second, over SSH a second."""
_EACH = 2
"""Failures of each (source node, target node, family) that come before any other."""


def flow_of(cell: Cell) -> Flow:
    """The question that a cell asks."""
    target = cell.target
    forwarded = cell.family == "node-names"
    return Flow(cell.source.name, target.address, target.port, cell.protocol, forwarded)


def asked(intent: Intent, paths: Iterable[Path]) -> Mapping[str, tuple[str, ...]]:
    """The machines on the paths, in the Intent's order, and which of their pods are, too."""
    places = {hop.place for path in paths for hop in path.hops}
    passed = {hop.machine for path in paths for hop in path.hops} | _central(intent)
    return {
        machine.name: tuple(pod.name for pod in machine.pods if pod.name in places)
        for machine in intent.everything()
        if machine.name in passed
    }


def _central(intent: Intent) -> set[str]:
    """The machines that every path hangs on: with a logical network's databases, or an API."""
    plane = intent.control_plane()
    return {name for name in (intent.logical and intent.logical.central, plane) if name}


def of_failures(intent: Intent, cells: Sequence[Cell]) -> Mapping[str, tuple[str, ...]]:
    """What to look at for many failed cells at once: where most of them pass."""
    chosen = retry_order(list(range(len(cells))), cells, _EACH)[:MOST_CELLS]
    paths = [path for index in chosen for path in walk(intent, flow_of(cells[index]))]
    passes = Counter(name for path in paths for name in path.machines)
    most = {name for name, _ in passes.most_common(MOST_MACHINES)} | _central(intent)
    return {name: pods for name, pods in asked(intent, paths).items() if name in most}
