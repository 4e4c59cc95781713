"""The intended paths of a request and its answers, whatever the topology. Pure."""

from __future__ import annotations

from lab.topology.intent import Intent
from lab.topology.kernel_walk import KernelWalk
from lab.topology.logical_walk import LogicalWalk
from lab.topology.path import Flow, Path


def walk(intent: Intent, flow: Flow) -> tuple[Path, ...]:
    """The paths of one request, one for each backend that may answer, in order.

    Raises
    ------
    KeyError
        If the Intent has no pod or machine named ``flow.source``.

    """
    made = LogicalWalk if intent.logical else KernelWalk
    first = made(intent, flow, 0)
    paths = [first.path()]
    paths += [made(intent, flow, number).path() for number in range(1, first.choices)]
    return tuple(paths)
