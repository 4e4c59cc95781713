"""The steps that bring a lab up on machines that run: their network, daemons, the cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from lab._errors import BrokenError
from lab.cluster.cluster import underlay
from lab.cluster.linux.daemons import start_daemons, wanted_daemons
from lab.plan.canonical import digest
from lab.plan.step import Step
from lab.providers.machines.bundles import Bundled
from lab.providers.machines.guests import Guests
from lab.providers.node.record import OTHER
from lab.providers.provider import LabHandle, Liveness
from lab.topology.intent import Intent

DAEMONS = "daemons"
"""The step that starts what the lab starts on its machines."""
NODES = "nodes"
"""The first of the steps that make a cluster."""

_Layout = TypeVar("_Layout")
Opened = Callable[[], Guests]
"""Opens the machines; the caller closes."""
Ailments = Callable[[Guests], Mapping[str, str]]
"""What is wrong with each machine that something is wrong with."""


def recorded(lab: LabHandle, found: _Layout | None) -> _Layout:
    """What a lab's machines are made from, as read from its directory.

    Raises BrokenError when nothing could be read.
    """
    if found is None:
        raise BrokenError(
            f"looking for the machines of lab '{lab.name}'",
            "the record of them is missing",
            f"'lab down {lab.name}', then 'lab up' again",
        )
    return found


def own_network(intent: Intent) -> Intent:
    """What of an Intent the lab makes on its machines itself: the rest may be Kubernetes'."""
    return underlay(intent) if intent.kubernetes else intent


def on_machines(
    lab: LabHandle, intent: Intent, bundled: Bundled | None, opened: Opened
) -> tuple[Step, ...]:
    """From ``network`` on: ``daemons`` where there are some, and the cluster's own.

    ``bundled``: what the lab's cluster is made from; None where pods are namespaces.
    """

    def network() -> None:
        with opened() as guests:
            guests.apply(own_network(intent))

    def start() -> None:
        with opened() as guests:
            start_daemons(intent, guests.site)

    steps = [Step("network", digest(own_network(intent)), network)]
    wanted = wanted_daemons(intent)
    if wanted:
        steps.append(Step(DAEMONS, digest(wanted), start))
    if bundled:
        from lab.providers.machines.kubernetes import MachinesCluster  # noqa: PLC0415  few labs

        steps += MachinesCluster(lab, intent, bundled, opened).steps()
    return tuple(steps)


def other_machines(decided: Collection[str], intent: Intent) -> str:
    """In what the machines a lab was made with differ from its scenario's; empty if in nothing."""
    wanted = {one.name for one in intent.machines}
    gone, new = set(decided) - wanted, wanted - set(decided)
    words = [f"no longer has {_named(gone)}"] if gone else []
    words += [f"now has {_named(new)}"] if new else []
    return f"the scenario {' and '.join(words)}" if words else ""


def _named(machines: Iterable[str]) -> str:
    return ", ".join(f"'{one}'" for one in sorted(machines))


def look_inside(guests: Guests, intent: Intent, beyond: Mapping[str, Ailments]) -> Liveness | None:
    """What is wrong inside machines that run; None where all is well.

    ``intent``: what the lab itself makes on them. ``beyond``: what is to be asked of what runs on
    the machines, by the step that repairs it; in order, as long as all is well.
    """
    ill: dict[str, str] = {
        name: what for name, what in guests.ailments(intent).items() if what != OTHER
    }  # a network that is to be another is not broken: its step runs for that alone
    ill |= guests.silent()
    again, reachable = "machines", not ill
    for step, ailments in beyond.items():
        if not ill:
            ill, again = dict(ailments(guests)), step
    if not ill:
        return None
    name, what = next(iter(ill.items()))
    more = f", and {len(ill) - 1} more are broken" if len(ill) > 1 else ""
    return Liveness("broken", f"{name}: {what}{more}", again_from=again, reachable=reachable)
