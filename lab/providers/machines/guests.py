"""The machines of a lab, from inside: shells on them, and the Intent applied through those."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lab._deadline import Deadline
from lab._errors import LabError
from lab._log import say
from lab.cluster.linux.operations import ClusterSite
from lab.cluster.observed import PodLink
from lab.facts.evidence import LinuxNode, logs
from lab.facts.node import NodeFacts
from lab.providers.capture import Taken, Tap
from lab.providers.node.campaign import Prober
from lab.providers.node.control import NodeControl
from lab.providers.node.fleet import Fleet
from lab.providers.provider import (
    SLOW_EVIDENCE_SECONDS,
    Evidence,
    LabHandle,
    Machine,
    Outcome,
    Probe,
    ProbeSettings,
)
from lab.remote.shell import Reach, Shell
from lab.topology.intent import Intent

if TYPE_CHECKING:
    from lab.remote.windows import WindowsShell

APPLY_SECONDS = 60.0
LOOK_SECONDS = 10.0
EMULATION = 8
"""How much slower than KVM things may go under TCG before they count as not going at all."""


class Guests(ABC):
    """Every machine of one lab; the connections are opened when they are first used.

    ``lab``: whose machines they are. ``linux``: names of the machines that run Linux. ``cluster``:
    whether the pods are Kubernetes' own.
    """

    def __init__(self, lab: LabHandle, linux: Collection[str], *, cluster: bool) -> None:
        self._lab = lab
        self._linux = tuple(linux)
        self._pods_token = lab.token if cluster else ""

    at_once: int | None = None
    """So many probes all of a cluster's machines bear together; None where each has processors of
    its own."""

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
        """Give every connection up."""

    @property
    @abstractmethod
    def patience(self) -> int:
        """By how much a deadline is longer than on hardware."""

    @abstractmethod
    def address(self, machine: str) -> str:
        """The machine's management address.

        Raises BrokenError if it has none: its management network is gone.
        """

    @abstractmethod
    def reach(self, machine: str) -> Reach:
        """All that is needed to log in to it by SSH."""

    @abstractmethod
    def shell(self, machine: str) -> Shell:
        """A shell on the machine; always the same one."""

    @abstractmethod
    def windows_shell(self, machine: str) -> WindowsShell:
        """A shell on a Windows machine; always the same one."""

    @abstractmethod
    def forward(self, machine: str, port: int, seconds: float) -> AbstractContextManager[str]:
        """``https://`` address at which a TCP port of a Linux machine answers inside the block."""

    @cached_property
    def _controls(self) -> Mapping[str, NodeControl]:
        by_hand = ("lab", "ssh", self._lab.name)
        return {
            name: NodeControl(name, self.shell(name), (*by_hand, name, "--"), self._pods_token)
            for name in self._linux
        }

    @cached_property
    def _fleet(self) -> Fleet:
        return Fleet(self._controls, cluster=bool(self._pods_token))

    @property
    def site(self) -> ClusterSite:
        """The machines as those see them that start programs on them."""
        return ClusterSite(self.shell, {}, self._lab.directory, say, self.patience)

    def links(self, deadline: Deadline) -> tuple[PodLink, ...]:
        """How a cluster's pods are plugged in, on every machine that says so in time."""
        return self._fleet.links(deadline)

    def apply(self, intent: Intent) -> None:
        """Make the network of every machine as the intent has it, where it is not so already.

        Raises LabError naming every machine where it could not be made.
        """
        ill = self.ailments(intent)
        if ill:
            fleet = Fleet({name: self._controls[name] for name in ill})
            fleet.up_all(intent, Deadline(APPLY_SECONDS * self.patience))

    def ailments(self, intent: Intent) -> Mapping[str, str]:
        """What is wrong with the network of each machine that something is wrong with.

        Windows machines have none of the lab's making: that of their pods is Kubernetes' own.
        """
        return self._fleet.ailments(intent, Deadline(LOOK_SECONDS * self.patience))

    def silent(self) -> Mapping[str, str]:
        """Machines that no agent runs on and that take no command, and what was met."""
        return {}

    def probe(
        self,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
        others: Mapping[str, Prober] | None = None,
    ) -> Mapping[int, Outcome]:
        """Try every probe, each from its own machine; ``others`` probe for Windows nodes."""
        cluster = bool(self._pods_token)
        fleet = Fleet(self._controls, cluster=cluster, others=others)
        return fleet.probe_all(intent, probes, self._slower(settings, cluster=cluster), progress)

    def machine(self, intent: Intent, name: str) -> Machine:
        """The pod or machine of that name; UsageError if there is none."""
        return self._fleet.machine(intent, name)

    def observe(
        self, intent: Intent, asked: Mapping[str, Collection[str]], deadline: Deadline
    ) -> dict[str, NodeFacts | LabError]:
        """What is seen of machines, and of those of their pods that are named."""
        return dict(self._fleet.observe(intent, asked, deadline))

    def capture(
        self,
        intent: Intent,
        taps: Sequence[Tap],
        limit: int,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[Taken, ...]:
        """Take down all that passes the taps of machines that run Linux; see the seam."""
        return self._fleet.capture(intent, taps, limit, during, deadline)

    def logs(
        self, asked: Collection[str], deadline: Deadline, since: str = ""
    ) -> Iterator[Evidence]:
        """The end of what machines that run Linux have logged. Never raises."""
        nodes = (LinuxNode(one, self.shell(one)) for one in self._controls if one in asked)
        for path, content in logs(nodes, deadline, self.patience, since):
            yield Evidence(path, content)

    def evidence(self) -> Iterator[Evidence]:
        """What every machine shows of its network. Never raises."""
        seconds = min(LOOK_SECONDS * self.patience, SLOW_EVIDENCE_SECONDS)
        return self._fleet.evidence(Deadline(seconds))

    def _slower(self, settings: ProbeSettings, *, cluster: bool) -> ProbeSettings:
        """Emulated processors need more time for the same exchange, and bear fewer at once.

        Far fewer where Kubernetes runs beside: with 32 at once, one in twenty went unanswered
        for eight seconds.
        """
        patience = self.patience
        at_once = max(1, settings.in_flight // (patience**2 if cluster else patience))
        if cluster and self.at_once is not None:
            at_once = min(at_once, self.at_once)
        return ProbeSettings(timeout=settings.timeout * patience, in_flight=at_once)
