"""The seam: where a lab's machines come from, and what every such place can do.

A provider turns an :class:`~lab.topology.intent.Intent` into machines, sends probes between
them, and takes them away again, by the marks they carry alone if need be.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError
from lab.remote.shell import Completed, Reach

if TYPE_CHECKING:
    from kubernetes import client

    from lab.cluster.observed import NodeVersion
    from lab.cluster.workload_checks import WorkloadResult
    from lab.facts.difference import StateDifference
    from lab.facts.node import NodeFacts
    from lab.plan.step import Step
    from lab.scenario.terms import Protocol as Transport
    from lab.scenario.terms import Size
    from lab.topology.cost import Cost
    from lab.topology.intent import Intent

Level = Literal["ok", "warn", "fail"]
"""``warn``: labs come up, but slower, with less, or at a risk. ``fail``: they do not."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding of ``lab doctor``."""

    subject: str
    """``"hypervisor 'rack1'"``, ``"this machine"``."""
    check: str
    """``"acceleration"``."""
    level: Level
    seen: str
    """A clause without a full stop."""
    hint: str = ""
    """The exact command, or the sentence, that fixes it; empty where all is well."""


PROBE_PORT = 8080
"""Every endpoint (pod, node, client) answers here: HTTP on TCP, echo on UDP."""
DNS_PORT = 53
LARGE_TCP_BYTES = 65_536
"""A large TCP probe carries this much each way (64 KiB)."""


EVIDENCE_SECONDS = 10.0
"""The longest that a provider lets one piece of evidence take."""
SLOW_EVIDENCE_SECONDS = 40.0
"""The same of a provider whose machines may be emulated: five at once took 30 s on two cores."""

ProbeStatus = Literal["ok", "timeout", "refused", "no-route", "no-such-name", "wrong", "error"]
"""What came of a probe. ``wrong``: something answered, but not what was asked (damaged echo,
short datagram). ``error``: the probe could not be made at all; says nothing of the network."""


Dialect = Literal["lab", "netexec", "health", "tls"]
"""What answers a probe: the lab's own responder, ``netexec`` of Kubernetes' agnhost image,
kube-proxy's health check of a Service, over TCP alone, or a TLS server, whose name in the outcome
is its certificate's fingerprint until somebody knows whose that is."""


@dataclass(frozen=True, slots=True)
class LabHandle:
    """One lab, as a provider knows it."""

    name: str
    directory: Path
    """The lab's own directory inside the state directory; the provider may write there."""
    token: str
    """Random, written to the journal before anything is made; every object carries it."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """Whether a lab's machines are there."""

    state: Literal["running", "absent", "broken", "suspended"]
    detail: str
    again_from: str | None = None
    """The step from which the lab can be carried on, all before it being as they were; None
    where nothing of it can be used."""
    reachable: bool = False
    """Of one that is broken: whether its machines answer, and what runs on them is what is."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A lab found by the marks its objects carry, state file or not.

    What a mark says is a claim: anybody can write one. See :mod:`lab.lifecycle.ownership`.
    """

    lab: str
    token: str
    directory: Path
    object: str
    """What was found, in words: ``"process 4711 (holder)"``."""
    age_seconds: float
    owner: str = ""
    """Whose it is; empty for the caller's own."""
    expired: bool = False
    """Whether it has passed the expiry that its own maker gave it."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing to try, from one endpoint to one address.

    TCP small is an HTTP GET; TCP large posts and reads back ``LARGE_TCP_BYTES``. UDP small is
    one short datagram echoed; UDP large is one of exactly ``mtu`` bytes with DF set, and
    one of twice ``mtu`` in fragments, both echoed. With ``name`` the probe is a DNS question for
    that name's IPv4 address, asked as the source's own resolver file says.
    """

    key: int
    """The caller's number, handed back in the outcome."""
    source: str
    """Name of the pod or machine that sends."""
    protocol: Transport
    size: Size
    address: str
    port: int
    mtu: int
    name: str | None = None
    tries: int = 1
    """Connections to make, one after another, until one fails; all backends that answer are
    collected."""
    dialect: Dialect = "lab"
    """What the target understands."""
    every: bool = False
    """Of a name: whether all its addresses are wanted, and not any one."""
    unanswered: bool = False
    """Whether nothing is expected to come back; it is tried as any other all the same."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one probe."""

    key: int
    status: ProbeStatus
    detail: str
    """For a person: ``"connect: no reply in 1.0 s"``."""
    source_seen: str | None
    """The address the backend saw the probe come from, the first time."""
    backends: tuple[str, ...]
    """Names of the endpoints that answered, in order of first answer."""
    answer: str | None
    """For DNS: the addresses answered, in their order with commas between. For a health check:
    the number of local backends."""
    latency_ms: float
    """Of the first exchange: from the first packet to the whole answer."""
    other_sources: tuple[str, ...] = ()
    """Further addresses that later exchanges of the same probe were seen to come from."""


_EXCHANGES_A_TRY = 8
"""A DNS question is asked with up to four search domains, and may be repeated."""
_STARTED_SECONDS = 60.0
"""For what sends the probes to start, however busy the machine is."""


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """How to probe.

    ``timeout`` is seconds for one exchange; ``in_flight`` bounds probes under way at once.
    """

    timeout: float
    in_flight: int

    def longest(self, probes: Iterable[Probe], computing: float) -> float:
        """Seconds: longer than the probes can take with their own timeouts; a last resort.

        ``computing``: seconds that an exchange takes of a processor, with room to spare.
        """
        exchanges = sum(probe.tries for probe in probes) * _EXCHANGES_A_TRY
        return _STARTED_SECONDS + exchanges * (self.timeout / max(1, self.in_flight) + computing)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One file of an evidence archive."""

    path: str
    """Relative, with slashes: ``"worker1/console.log"``."""
    content: bytes

    @property
    def is_log(self) -> bool:
        """Whether it is what a program has written over time: lines whose meaning may be known."""
        file = self.path.rpartition("/")[2]
        return file in {"log", "events.txt"} or file.endswith(".log")


class Machine(Protocol):
    """One pod's or node's computer."""

    @property
    def name(self) -> str:
        """As the Intent has it."""

    def run(self, command: Sequence[str], deadline: Deadline) -> Completed:
        """Run a command to its end.

        Raises DeadlineError when it has not ended in time; it has been killed.
        """

    def attach(self, command: Sequence[str]) -> int:
        """Run a command with this terminal as its own, and return its exit code.

        An empty command is an interactive shell.
        """

    def command_line(self, command: Sequence[str]) -> str:
        """The shell line that does the same by hand."""


Pods = Literal["kubernetes", "namespaces"]
"""What a lab's pods are: a real cluster's, or network namespaces on their nodes."""


Ability = Literal["machines", "cluster", "capture", "failover"]
MACHINES: Ability = "machines"
"""Its machines are computers: an image, a console, an SSH server; Windows nodes run Windows."""
CLUSTER: Ability = "cluster"
"""Its machines can run Kubernetes."""
CAPTURE: Ability = "capture"
"""It can take packets down where they pass."""
FAILOVER: Ability = "failover"
"""It can take a machine off its networks and measure meanwhile: it has what
:class:`~lab.providers.failover.FailoverProvider` asks."""


class Provider(ABC):
    """Where a lab's machines come from.

    A provider has the eight abstract methods. The others have defaults, for a provider that has
    nothing to add. What only some providers can do is declared in ``abilities``.
    """

    name: str
    abilities: frozenset[Ability] = frozenset()
    """What it can do that not every provider can; who needs an ability asks for it."""
    pods: Pods = "namespaces"
    """What pods are where nobody says."""

    @abstractmethod
    def banner(self, intent: Intent | None) -> str:
        """One sentence: which provider, and what of the intent's machines is emulated."""

    @abstractmethod
    def preflight(self, lab: LabHandle, intent: Intent) -> None:
        """Check that the lab can be had here: what the intent asks, beside what it has already.

        Raises PreflightError naming the missing ability and the fix. Nothing has been created.
        """

    @abstractmethod
    def steps(self, lab: LabHandle, intent: Intent) -> tuple[Step, ...]:
        """What brings the lab up, in order."""

    @abstractmethod
    def liveness(self, lab: LabHandle, intent: Intent) -> Liveness:
        """Look at the real objects."""

    @abstractmethod
    def destroy(self, lab: LabHandle, *, owner: str = "") -> tuple[str, ...]:
        """Take away every object of the caller's with the lab's token; say what was removed.

        With ``owner``, as a mark has it, those of that owner instead. Safe to repeat.
        """

    @abstractmethod
    def marks(self, *, all_users: bool = False) -> tuple[Mark, ...]:
        """Every object of the caller's; with ``all_users`` also others' that it may end."""

    @abstractmethod
    def machine(self, lab: LabHandle, intent: Intent, name: str) -> Machine:
        """The pod or machine of that name.

        Raises UsageError if there is none; names the nearest.
        """

    @abstractmethod
    def probe(
        self,
        lab: LabHandle,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        """Try every probe; ``progress`` is called with the number that have ended.

        Every key has an outcome. Never raises for a probe that fails.

        Raises BrokenError when the lab's machines are not there.
        """

    def unfit(self, intent: Intent) -> str:  # noqa: ARG002  for those that cannot have every lab
        """Why no such lab can ever be had of this provider; empty where it can."""
        return ""

    def node_mtu(self, asked: int) -> int:
        """Bytes of an IP packet that the node segment can carry here, at most what is asked.

        Raises PreflightError when what it could carry is too little for a cluster.
        """
        return asked

    def cost(self, intent: Intent) -> Cost:
        """What the lab is predicted to take here, from nothing."""
        from lab.topology.cost import cost  # noqa: PLC0415  only "lab plan" asks for it

        return cost(intent)

    def labs_at_once(self, intents: Sequence[Intent]) -> int:  # noqa: ARG002  the same
        """How many of these labs can be up at once, whichever they are; at least one."""
        return 1

    def examine(self, state: Path) -> tuple[Diagnosis, ...]:  # noqa: ARG002  the same
        """What labs need here, for ``lab doctor``; ``state`` is the state directory."""
        return ()

    def realised(self, intent: Intent) -> Intent:
        """The intent as the machines have it: emulated Windows obeys the limits of Windows.

        What is changed on a machine and put back again must be this, not what was asked for.
        """
        return intent

    def observe(
        self,
        lab: LabHandle,  # noqa: ARG002  for those that can look into machines
        intent: Intent,  # noqa: ARG002  the same
        asked: Mapping[str, Collection[str]],
        deadline: Deadline,  # noqa: ARG002  the same
    ) -> Mapping[str, NodeFacts | LabError]:
        """Look at machines, and into those of their pods that are named.

        Every machine asked has its facts, or why it could not be asked: a machine that does not
        answer takes nothing from the others.

        Raises BrokenError when the lab's machines are not there.
        """
        why = f"provider '{self.name}' cannot look into its machines"
        return {name: BrokenError(f"looking at '{name}'", why) for name in asked}

    def deviations(
        self,
        lab: LabHandle,  # noqa: ARG002  the same
        intent: Intent,  # noqa: ARG002  the same
        places: Sequence[str],  # noqa: ARG002  the same
        deadline: Deadline,  # noqa: ARG002  the same
    ) -> Mapping[str, Sequence[StateDifference]]:
        """All that is not as made in the state of machines and pods, by their names.

        A place without an entry was not compared. Raises LabError when the lab's machines are not
        there, or cannot be compared in time.
        """
        return {}

    def logs(
        self,
        lab: LabHandle,  # noqa: ARG002  the same
        intent: Intent,  # noqa: ARG002  the same
        asked: Collection[str],  # noqa: ARG002  the same
        deadline: Deadline,  # noqa: ARG002  the same
    ) -> Iterator[Evidence]:
        """The end of what programs on machines have logged: ``MACHINE/FILE``.

        A log that cannot be had is a piece that says why, and not a log. Never raises.
        """
        return iter(())

    def evidence(self, lab: LabHandle, intent: Intent) -> Iterator[Evidence]:  # noqa: ARG002  the same
        """All that helps to understand what the lab's machines are doing, piece by piece.

        A piece that cannot be had, or not within ``EVIDENCE_SECONDS``
        (``SLOW_EVIDENCE_SECONDS`` where machines may be emulated), is a piece that says why.
        Never raises.
        """
        return iter(())


class RealCluster(Protocol):
    """One lab's Kubernetes, where its pods are Kubernetes' own."""

    def foreseen(self) -> Intent:
        """The lab's intent as far as it is known without its pods: enough to name every cell."""

    def probed(self, *, ready: bool = True) -> AbstractContextManager[Intent]:
        """Have the probe pods there; the intent bound to them, which the matrix is made from.

        Unless they are to be ``ready``, those that have an address are taken as they are: a node
        that is NotReady keeps them from getting so.

        Raises LabError when they cannot be had, or the cluster is not as the intent has it.
        """

    def workloads(self) -> tuple[WorkloadResult, ...]:
        """The checks beside the network, while the probe pods are there. Never raises."""

    def versions(self) -> tuple[NodeVersion, ...]:
        """What the nodes really run.

        Raises LabError when the cluster does not say.
        """

    def client(self) -> AbstractContextManager[client.ApiClient]:
        """A client of the API server while the block lasts, as the cluster's administrator.

        Raises LabError when there is no way to it.
        """


class ClusterProvider(Protocol):
    """What a provider adds that has the ability ``CLUSTER``."""

    def cluster(self, lab: LabHandle, intent: Intent) -> RealCluster | None:
        """The lab's Kubernetes; None where its pods are namespaces."""


def find_cluster(provider: Provider, lab: LabHandle, intent: Intent) -> RealCluster | None:
    """The lab's Kubernetes; None where its pods are namespaces, or its provider can have none."""
    if CLUSTER not in provider.abilities:
        return None
    return cast(ClusterProvider, provider).cluster(lab, intent)


class RealMachines(Protocol):
    """What a provider adds whose machines are computers with a console and an address."""

    def reaches(self, lab: LabHandle, intent: Intent) -> tuple[Reach, ...]:
        """How to get a shell on each machine, in the intent's order.

        Raises BrokenError when the lab's machines are not there.
        """

    def console(self, lab: LabHandle, intent: Intent, name: str) -> int:
        """Join this terminal to the machine's serial console until Ctrl-]; the exit code."""

    def console_log(self, lab: LabHandle, intent: Intent, name: str) -> str:
        """All that the serial console has said since the machine was made."""

    def screenshot(self, lab: LabHandle, intent: Intent, name: str) -> bytes:
        """What its screen shows now, as PNG."""

    def suspend(self, lab: LabHandle, intent: Intent) -> tuple[str, ...]:
        """Save every machine's memory to disk and stop it; the names of those that ran.

        ``up`` goes on from there.
        """
