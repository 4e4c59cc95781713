"""The cables between a lab's machines and its switch: pulled and plugged in at the switch's end.

So a machine can be taken off every network at once, as when its power fails, and finds its own
addresses, routes and neighbours as they were when it is back.
"""

from __future__ import annotations

from lab._deadline import Deadline
from lab.providers.netns import namespaces
from lab.providers.netns.compile import compile as compile_intent
from lab.providers.netns.entry import Entry
from lab.providers.netns.operations import LinkDown, LinkUp, NamespaceOperations, VethAdd
from lab.topology.intent import Intent

_SECONDS = 10.0


def change(entry: Entry, intent: Intent, machine: str, *, plugged: bool) -> None:
    """Pull, or plug in, every cable of the machine.

    Raises
    ------
    BrokenError
        When the lab is not there.

    """
    wanted = operations(intent, machine, plugged=plugged)
    what = "plugging in" if plugged else "pulling"
    entry.call(
        f"{what} the cables of '{machine}'",
        lambda _: namespaces.apply(wanted),
        Deadline(_SECONDS),
    )


def operations(intent: Intent, machine: str, *, plugged: bool) -> tuple[NamespaceOperations, ...]:
    """What is done at the switches that it is plugged into: the lab's, or a hypervisor's. Pure."""
    found = []
    for one in compile_intent(intent):
        ends = [
            step.name
            for step in one.operations
            if isinstance(step, VethAdd) and step.peer_namespace == machine
        ]
        if ends:
            made = tuple(LinkUp(port) if plugged else LinkDown(port) for port in ends)
            found.append(NamespaceOperations(one.namespace, one.indexes, made))
    return tuple(found)
