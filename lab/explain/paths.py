"""The paths of cells, and the machines and pods on them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from lab.matrix.cell import Cell
from lab.topology.intent import Intent
from lab.topology.path import Flow, Path


def flow_of(cell: Cell) -> Flow:
    """The request of a cell."""
    target = cell.target
    # a Windows pod does not complete a partial name: the cluster's DNS server asks another one
    outside = cell.name_form == "partial" and cell.source.os == "windows"
    forwarded = cell.family == "node-names" or outside
    return Flow(cell.source.name, target.address, target.port, cell.protocol, forwarded)


MOST_PLACES = 24
"""Number of machines and pods whose state is compared; one takes about 0.1 s."""


def select_machines(intent: Intent, paths: Iterable[Path]) -> Mapping[str, tuple[str, ...]]:
    """The machines on the paths, in the Intent's order, with their pods that are on a path."""
    places = {hop.place for path in paths for hop in path.hops}
    passed = {hop.machine for path in paths for hop in path.hops} | central_machines(intent)
    return {
        machine.name: tuple(pod.name for pod in machine.pods if pod.name in places)
        for machine in intent.everything()
        if machine.name in passed
    }


def central_machines(intent: Intent) -> set[str]:
    """Machines that every path depends on: with a logical network's databases, or an API server."""
    plane = intent.control_plane()
    return {name for name in (intent.logical and intent.logical.central, plane) if name}


def places_of(paths: Iterable[Path]) -> list[str]:
    """The places that most of the paths pass."""
    passes = Counter(
        place for path in paths for place in dict.fromkeys(hop.place for hop in path.hops)
    )
    return [place for place, _ in passes.most_common(MOST_PLACES)]


def list_balancer_flows(intent: Intent, cell: Cell, answered: Collection[str]) -> Sequence[Flow]:
    """The requests of the balancer in front of the API servers to those that never answer.

    None for cells of other families.
    """
    front = intent.services_node
    if front is None or cell.family != "api":
        return ()
    silent = (intent.machine(name) for name in cell.backends if name not in answered)
    return [Flow(front.machine, machine.address(), front.api_port, "tcp") for machine in silent]
