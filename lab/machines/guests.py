"""Access to a lab's machines through shells; applies the Intent through them."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from itertools import starmap
from types import TracebackType
from typing import Self

from lab._deadline import Deadline
from lab._errors import LabError
from lab._log import say
from lab.facts.node import NodeFacts
from lab.machines.agents.control import NodeControl
from lab.machines.agents.fleet import Fleet, Prober
from lab.machines.cluster.linux.operations import ClusterSite
from lab.machines.evidence import EvidenceNode, logs
from lab.providers.provider import (
    SLOW_EVIDENCE_SECONDS,
    Evidence,
    LabHandle,
    Machine,
    Outcome,
    Probe,
    ProbeSettings,
)
from lab.shells.shell import Completed, Reach, Shell
from lab.topology.intent import Intent

APPLY_SECONDS = 60.0
LOOK_SECONDS = 10.0
EMULATION = 8
"""Factor for deadlines under TCG compared with KVM."""


@dataclass(frozen=True, slots=True)
class ForeignMachine:
    """A machine without an agent, to run commands on."""

    name: str
    lab: str
    shell: Shell

    def run(self, command: Sequence[str], deadline: Deadline) -> Completed:
        """Run a command; see :class:`lab.providers.provider.Machine`."""
        return self.shell.run(command, deadline)

    def attach(self, command: Sequence[str]) -> int:
        """Run a command on this terminal, or its own shell if ``command`` is empty."""
        return self.shell.attach(command)

    def command_line(self, command: Sequence[str]) -> str:
        """The equivalent shell command."""
        return shlex.join(("lab", "ssh", self.lab, self.name, "--", *command))


class Guests(ABC):
    """All machines of one lab; connections are opened on first use.

    ``linux``: names of the Linux machines. ``cluster``: True if the pods are real Kubernetes pods.
    """

    def __init__(self, lab: LabHandle, linux: Collection[str], *, cluster: bool) -> None:
        self._lab = lab
        self._linux = tuple(linux)
        self._pods_token = lab.token if cluster else ""

    at_once: int | None = None
    """Most probes in flight for all machines of a cluster together; None if each machine has its
    own processors."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close every connection."""

    @property
    @abstractmethod
    def patience(self) -> int:
        """Factor for deadlines: 1 on hardware or KVM, more on emulated processors."""

    def check(self) -> None:  # noqa: B027  not every provider can see it
        """Raise BrokenError if the lab has ended, as far as that can be seen at once."""

    def deadline(self, seconds: float) -> Deadline:
        """A deadline ``seconds`` from now, multiplied by ``patience``; waits end with the lab."""
        return Deadline(seconds * self.patience, self.check)

    @abstractmethod
    def address(self, machine: str) -> str:
        """The machine's management address.

        Raises BrokenError if it has none because its management network is missing.
        """

    @abstractmethod
    def reach(self, machine: str) -> Reach:
        """Everything needed to log in to it by SSH."""

    @abstractmethod
    def shell(self, machine: str) -> Shell:
        """A shell on the machine; always the same one."""

    @abstractmethod
    def forward(self, machine: str, port: int, seconds: float) -> AbstractContextManager[str]:
        """Yield the ``https://`` URL that reaches a TCP port of a Linux machine."""

    @cached_property
    def _controls(self) -> Mapping[str, NodeControl]:
        prefix = ("lab", "ssh", self._lab.name)
        return {
            name: NodeControl(name, self.shell(name), (*prefix, name, "--"), self._pods_token)
            for name in self._linux
        }

    @cached_property
    def fleet(self) -> Fleet:
        """The agents on its Linux machines."""
        return Fleet(self._controls, cluster=bool(self._pods_token))

    def capturing(self, intent: Intent) -> Fleet:  # noqa: ARG002  for those with other systems
        """The agents on the machines whose packets can be captured."""
        return self.fleet

    @property
    def site(self) -> ClusterSite:
        """The machines, for code that starts programs on them."""
        return ClusterSite(
            self.shell, {}, self._lab.directory, say, self.patience, check=self.check
        )

    def apply(self, intent: Intent) -> None:
        """Create the intent's network on every machine that does not have it yet.

        Raises LabError naming every machine where that failed.
        """
        ill = self.ailments(intent)
        if ill:
            fleet = Fleet({name: self._controls[name] for name in ill})
            fleet.up_all(intent, self.deadline(APPLY_SECONDS))

    def ailments(self, intent: Intent) -> Mapping[str, str]:
        """What is wrong with the machines' networks, by machine; only machines with a problem.

        Windows machines are omitted: Kubernetes, not the lab, creates their network.
        """
        return self.fleet.ailments(intent, self.deadline(LOOK_SECONDS))

    def silent(self) -> Mapping[str, str]:
        """Machines without an agent that do not run commands, with the error."""
        return {}

    def probe(
        self,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
        others: Mapping[str, Prober] | None = None,
    ) -> Mapping[int, Outcome]:
        """Run every probe from its source's machine; ``others`` probe for Windows nodes."""
        cluster = bool(self._pods_token)
        fleet = Fleet(self._controls, cluster=cluster, others=others)
        return fleet.probe_all(intent, probes, self._slower(settings, cluster=cluster), progress)

    def machine(self, intent: Intent, name: str) -> Machine:
        """The pod or machine of that name; UsageError if there is none."""
        machine, pod = intent.places().get(name, (None, None))
        if machine is not None and pod is None and machine.os != "linux":
            return ForeignMachine(name, self._lab.name, self.shell(name))
        return self.fleet.machine(intent, name)

    def observe(
        self, intent: Intent, places: Mapping[str, Collection[str]], deadline: Deadline
    ) -> dict[str, NodeFacts | LabError]:
        """Observe the machines in ``places``, and the pods named for each."""
        return dict(self.fleet.observe(intent, places, deadline))

    def logs(
        self, places: Collection[str], deadline: Deadline, since: str = ""
    ) -> Iterator[Evidence]:
        """The end of the logs of Linux machines. Never raises."""
        nodes = (
            EvidenceNode(control, self.shell(control))
            for control in self._controls
            if control in places
        )
        return starmap(Evidence, logs(nodes, deadline, self.patience, since))

    def evidence(self) -> Iterator[Evidence]:
        """Evidence of every machine's network. Never raises."""
        seconds = min(LOOK_SECONDS * self.patience, SLOW_EVIDENCE_SECONDS)
        return self.fleet.evidence(Deadline(seconds))

    def _slower(self, settings: ProbeSettings, *, cluster: bool) -> ProbeSettings:
        """Emulated processors need more time per exchange and handle fewer at once.

        Far fewer beside Kubernetes: with 32 at once, one in twenty got no answer within eight
        seconds.
        """
        patience = self.patience
        at_once = max(1, settings.in_flight // (patience**2 if cluster else patience))
        if cluster and self.at_once is not None:
            at_once = min(at_once, self.at_once)
        return ProbeSettings(timeout=settings.timeout * patience, in_flight=at_once)


Opened = Callable[[], Guests]
"""Opens connections to the machines; the caller closes them."""
