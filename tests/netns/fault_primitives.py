"""A random fault: one change at one place of a lab; and that place."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from lab._deadline import Deadline
from lab.facts.questions import ENTER_POD
from lab.lifecycle.open_lab import OpenLab
from lab.shells.shell import Completed
from lab.topology.intent import MachineIntent, Pod

RESTART = "restart what answers"
"""Undoes a change of a socket, for which there is no command."""


@dataclass(frozen=True)
class RandomFault:
    """One change at one place, its undo, and the names that identify it."""

    place: str
    machine: str
    names: tuple[str, ...]
    """Parts of the object's name as tools print it; the explanation must have one of them."""
    do: str
    undo: str
    later: bool = False
    """Whether packets continue, changed, and are lost elsewhere."""
    hook: str = ""
    """Where it acts: a netfilter hook, or ``"route"``; empty for a device."""
    way: str = ""
    """``"question"`` if it acts only on that direction."""

    def __str__(self) -> str:
        return f"{self.place}: {self.do}"


def run_at(opened: OpenLab, place: str, command: str) -> Completed:
    """Run a command line in a machine or pod; with its node's programs in one of a cluster."""
    words: tuple[str, ...] = ("sh", "-c", command)
    nodes = {pod.name: machine.name for machine in opened.intent.machines for pod in machine.pods}
    if opened.intent.kubernetes and place in nodes:
        words, place = (ENTER_POD, place, *words), nodes[place]
    machine = opened.provider.machine(opened.handle, opened.intent, place)
    return machine.run(words, Deadline(30))


@dataclass(frozen=True)
class Site:
    """A random place of a lab; ``pod`` is None for the machine itself."""

    opened: OpenLab
    rng: random.Random
    machine: MachineIntent
    pod: Pod | None

    @property
    def place(self) -> str:
        return self.pod.name if self.pod else self.machine.name

    def fault(  # noqa: PLR0913  a fault is all of these
        self,
        names: str,
        do: str,
        undo: str,
        *,
        later: bool = False,
        hook: str = "",
        way: str = "",
    ) -> RandomFault:
        """``names``: alternatives, separated by |."""
        ends = self.place, self.machine.name
        return RandomFault(*ends, tuple(names.split("|")), do, undo, later, hook, way)

    def read(self, command: str) -> str:
        return run_at(self.opened, self.place, command).stdout

    @property
    def kubernetes(self) -> bool:
        return self.opened.intent.kubernetes is not None

    def devices(self) -> list[str]:
        """The devices of a pod, or those of a machine that lead to its pods and out of it."""
        if self.pod:
            return ["eth0"]
        made = (self.machine.bridge, self.machine.tunnel)
        ports = [pod.port for pod in self.machine.pods] + [one.name for one in made if one]
        return [*ports, "eth0"]

    def other_pod(self) -> Pod:
        pods = [pod for each in self.opened.intent.machines for pod in each.pods]
        return self.rng.choice([pod for pod in pods if pod != self.pod])


Make = Callable[[Site], RandomFault | None]


def saved(site: Site, path: str) -> str:
    return f"/run/saved-{site.place}-{path.replace('/', '-')}"
