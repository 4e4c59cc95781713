"""Machines taken off their networks and put back, and what pods miss meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.providers.failing import Beat, Pace, Silence
from lab.providers.netns import pulse, syscalls
from lab.providers.netns.entry import Entry, Tell
from lab.providers.netns.isolation import NETNS_DIRECTORY
from lab.providers.netns.processes import NODE_HOLDER, holders
from lab.providers.node.sandboxes import carriers
from lab.providers.nspawn.containers import port
from lab.providers.nspawn.networks import configure
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent

_SECONDS = 10.0


def plug(entry: Entry, intent: Intent, machine: str, *, plugged: bool) -> None:
    """Pull, or plug in, every cable of the machine at the switch's end.

    The management cable stays: the machine can still be looked at.

    Raises
    ------
    BrokenError
        When the lab is not there.

    """
    lines = tuple(
        f"link set {name} {'up' if plugged else 'down'}" for name in ports(intent, machine)
    )
    what = "plugging in" if plugged else "pulling"
    entry.call(
        f"{what} the cables of '{machine}'",
        lambda _: configure(lines),
        Deadline(_SECONDS),
    )


def ports(intent: Intent, machine: str) -> tuple[str, ...]:
    """The holder's ends of a machine's cables, without the management cable. Pure."""
    number, found = next(
        (number, one) for number, one in enumerate(intent.machines) if one.name == machine
    )
    return tuple(port(number, card) for card in range(1, len(found.interfaces) + 1))


def measure(
    entry: Entry, lab: LabHandle, beats: Sequence[Beat], change: Callable[[], None], pace: Pace
) -> tuple[Silence, ...]:
    """Send datagrams from pod to pod in a steady beat, and call ``change`` once all answer.

    Raises
    ------
    BrokenError
        Where not every pair is answered to begin with; nothing was changed then.

    """

    def inside(tell: Tell) -> tuple[Silence, ...]:
        with ExitStack() as stack:
            of_cluster = {one.pod: one.network for one in carriers() if one.token == lab.token}
            spaces: dict[str, int] = {}
            for pod, path in (of_cluster or dict(_namespaces())).items():
                spaces[pod] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, spaces[pod])
            spoken = [
                replace(one, dialect="netexec" if one.target in of_cluster else one.dialect)
                for one in beats
            ]
            return pulse.pulse(lambda pod: _enter(spaces, pod), spoken, pace, tell)

    return entry.call(
        f"measuring in lab '{lab.name}'",
        inside,
        Deadline(3 * pace.patience),
        heard=lambda _: change(),
    )


def _namespaces() -> Iterator[tuple[str, str]]:
    """Every pod that is a namespace on a machine, as the lab's holder sees them."""
    for holder in holders(NODE_HOLDER):
        directory = f"/proc/{holder.pid}/root{NETNS_DIRECTORY}"
        yield from ((name, f"{directory}/{name}") for name in os.listdir(directory))  # noqa: PTH208  names are wanted, not paths


def _enter(spaces: dict[str, int], pod: str) -> None:
    if pod not in spaces:
        raise BrokenError(f"entering pod '{pod}'", "no process of it runs", "run 'lab up' again")
    syscalls.setns(spaces[pod], syscalls.CLONE_NEWNET)
