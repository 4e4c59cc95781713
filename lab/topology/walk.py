"""The intended paths of a question and of its answers, walked through the Intent. Pure."""

from __future__ import annotations

from lab.topology.intent import Intent
from lab.topology.logical_walk import LogicalWalking
from lab.topology.path import Flow, Path
from lab.topology.walking import Walking


def walk(intent: Intent, flow: Flow) -> tuple[Path, ...]:
    """The paths of one question: one for each backend that may answer it, in order.

    Raises
    ------
    KeyError
        If the Intent has no pod or machine of the source's name.

    """
    made = LogicalWalking if intent.logical else Walking
    first = made(intent, flow, 0)
    paths = [first.path()]
    paths += [made(intent, flow, number).path() for number in range(1, first.choices)]
    return tuple(paths)
