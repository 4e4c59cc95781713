"""The provider interface: where a lab's machines come from.

A provider turns an :class:`~lab.topology.intent.Intent` into machines, sends probes between
them, and destroys them again, if necessary by their ownership marks alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast

from lab._dataclass import dataclass
from lab._deadline import Deadline
from lab._errors import BrokenError, LabError
from lab.scenario.reserved import SERVICE_PORT
from lab.scenario.terms import Os, Size
from lab.scenario.terms import Protocol as Transport
from lab.shells.shell import Completed, Reach

if TYPE_CHECKING:
    from kubernetes import client

    from lab.facts.difference import Difference
    from lab.facts.node import NodeFacts
    from lab.plan.plan import Plan
    from lab.plan.step import Step
    from lab.providers.workloads import WorkloadResult
    from lab.scenario.scenario import Limit
    from lab.topology.cost import Cost
    from lab.topology.intent import Intent
    from lab.topology.observed import NodeVersion

Level = Literal["ok", "warn", "fail"]
"""``warn``: labs come up, but slower, with fewer features, or at a risk. ``fail``: they do not."""


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
    """The command or sentence that fixes it; empty for ``ok``."""


@dataclass(frozen=True, slots=True)
class Decided:
    """Everything that is decided of a lab that was not made from a scenario."""

    plan: Plan
    intent: Intent
    limits: tuple[Limit, ...]


PROBE_PORT = 8080
"""Every endpoint (pod, node, client) answers here: HTTP on TCP, echo on UDP."""
DNS_PORT = 53
THROUGHPUT_PORT = 5201
"""TCP port on which a Kubernetes pod receives a stream to measure; iperf3's port."""
LARGE_TCP_BYTES = 65_536
"""A large TCP probe carries this much each way (64 KiB)."""


LOOK_SECONDS = 120.0
"""Time limit for one observation of machines; over SSH to emulated ones it takes ten seconds."""
EVIDENCE_SECONDS = 10.0
"""Time limit for one piece of evidence."""
SLOW_EVIDENCE_SECONDS = 40.0
"""The same if machines may be emulated: five at once took 30 s on two cores."""

ProbeStatus = Literal["ok", "timeout", "refused", "no-route", "no-such-name", "wrong", "error"]
"""Result of a probe. ``wrong``: something answered, but incorrectly (damaged echo, short
datagram). ``error``: the probe could not be sent; says nothing about the network."""


Dialect = Literal["lab", "netexec", "health", "tls", "throughput"]
"""What answers a probe: the lab's responder; ``netexec`` of Kubernetes' agnhost image;
kube-proxy's health check of a Service (TCP only); the lab's responder as the receiver of a
TCP stream whose rate it measures; or a TLS server, which the outcome names by its
certificate's fingerprint until the caller maps it to an endpoint."""


@dataclass(frozen=True, slots=True)
class LabHandle:
    """One lab, as providers see it."""

    name: str
    directory: Path
    """The lab's directory in the state directory; the provider may write there."""
    token: str
    """Random; written to the journal before anything is created; every object carries it."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """Whether a lab's machines exist and work."""

    state: Literal["running", "absent", "broken", "suspended"]
    detail: str
    again_from: str | None = None
    """The step from which bring-up can resume, as everything before it is unchanged; None if
    nothing is usable."""
    reachable: bool = False
    """For a broken lab: whether its machines still answer and run the lab's software."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An object of a lab found by its ownership mark, with or without a state file.

    A mark proves nothing: anybody can write one. See :mod:`lab.lifecycle.ownership`.
    """

    lab: str
    token: str
    directory: Path
    object: str
    """Description of the object: ``"process 4711 (holder)"``."""
    age_seconds: float
    owner: str = ""
    """The owner's name; empty for the caller."""
    expired: bool = False
    """True once the expiry that its creator set has passed."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe from one endpoint to one address.

    TCP small is an HTTP GET; TCP large posts and reads back ``LARGE_TCP_BYTES``. UDP small is
    one short datagram echoed; UDP large is one of exactly ``mtu`` bytes with DF set, and
    one of twice ``mtu`` in fragments, both echoed. With ``name`` the probe is a DNS query for
    that name's IPv4 address, following the source's resolver file.
    """

    key: int
    """The caller's number, returned in the outcome."""
    source: str
    """Name of the pod or machine that sends."""
    protocol: Transport
    size: Size
    address: str
    port: int
    mtu: int
    name: str | None = None
    tries: int = 1
    """Connections to make in sequence until one fails; every backend that answers is recorded."""
    dialect: Dialect = "lab"
    """The dialect that the target understands."""
    every: bool = False
    """For a name: True if all its addresses are expected, not just one of them."""
    name_port: int = SERVICE_PORT
    """For a name: a TCP port that is open at its address, for what finds a name's address only by
    connecting to it."""
    unanswered: bool = False
    """True if no answer is expected; the probe is sent like any other."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one probe."""

    key: int
    status: ProbeStatus
    detail: str
    """Human-readable: ``"connect: no reply in 1.0 s"``."""
    source_seen: str | None
    """The source address that the first backend saw."""
    backends: tuple[str, ...]
    """Names of the endpoints that answered, in order of first answer."""
    answer: str | None
    """For DNS: the addresses, sorted and separated by commas. For a health check: the number of
    local backends."""
    latency_ms: float
    """Latency of the first exchange, from the first packet to the whole answer."""
    other_sources: tuple[str, ...] = ()
    """Other source addresses seen in later exchanges of the same probe."""
    throughput: float | None = None
    """Bits per second at the receiver of a stream; None for other probes."""

    @classmethod
    def failed(cls, key: int, status: ProbeStatus, detail: str) -> Outcome:
        """The outcome of a probe to which nothing answered."""
        return cls(key, status, detail, None, (), None, 0.0)


class ProbesInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM while probes were sent; the signal's exception is its ``__cause__``."""

    def __init__(self, outcomes: Mapping[int, Outcome]) -> None:
        self.outcomes = dict(outcomes)
        """Of the probes that had finished, by key."""
        super().__init__()


_EXCHANGES_A_TRY = 8
"""A DNS name is queried with up to four search domains, and may be retried."""
_STARTED_SECONDS = 60.0
"""For the prober to start, even on a busy machine."""


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """How to probe.

    ``timeout`` is in seconds per exchange; ``in_flight`` limits the probes in flight. ``stage`` is
    what the user is told of them.
    """

    timeout: float
    in_flight: int
    stage: str = "probing"

    def longest(self, probes: Iterable[Probe], computing: float) -> float:
        """Seconds, as a last resort: longer than the probes can take with their own timeouts.

        ``computing``: processor seconds per exchange, generously estimated.
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
        """True for a program's log, whose lines are matched against the signatures."""
        file = self.path.rpartition("/")[2]
        return file in {"log", "events.txt"} or file.endswith(".log")


class Machine(Protocol):
    """The computer of one node, or one pod."""

    @property
    def name(self) -> str:
        """The name in the Intent."""

    def run(self, command: Sequence[str], deadline: Deadline) -> Completed:
        """Run a command and wait for it.

        Raises DeadlineError when it does not finish in time; it is killed.
        """

    def attach(self, command: Sequence[str]) -> int:
        """Run a command on this terminal and return its exit code.

        An empty command is an interactive shell.
        """

    def command_line(self, command: Sequence[str]) -> str:
        """The equivalent shell command."""


Pods = Literal["kubernetes", "namespaces"]
"""What a lab's pods are: pods of a real cluster, or network namespaces on their nodes."""


Ability = Literal["machines", "cluster", "capture", "failover", "kernel-trace"]
MACHINES: Ability = "machines"
"""Machines are computers with an image, a console and an SSH server; Windows nodes run Windows."""
CLUSTER: Ability = "cluster"
"""Machines can run Kubernetes."""
CAPTURE: Ability = "capture"
"""The provider can capture packets: :class:`~lab.providers.capture.Capturing`."""
KERNEL_TRACE: Ability = "kernel-trace"
"""The provider can trace packets through the kernel's rules:
:class:`~lab.providers.capture.KernelTracing`."""
FAILOVER: Ability = "failover"
"""The provider can disconnect machines and measure the outage:
:class:`~lab.providers.failover.FailoverProvider`."""


ON_CLUSTER = "'--provider nspawn' or 'libvirt', with '--pods kubernetes', makes a cluster of it"


def without_pod_network(intent: Intent) -> str:
    """Why pods that are namespaces would have no network, as a clause; empty if they have one."""
    if intent.kubernetes or intent.cni is None:
        return ""
    return f"the pod network of topology '{intent.topology}' exists on Kubernetes clusters alone"


class Provider(ABC):
    """Where a lab's machines come from.

    A provider implements the eight abstract methods. The others have defaults. Features that only
    some providers have are declared in ``abilities``.
    """

    name: str
    abilities: frozenset[Ability] = frozenset()
    """Optional features; callers check them here."""
    pods: Pods = "namespaces"
    """The default kind of pods."""

    @abstractmethod
    def banner(self, intent: Intent | None) -> str:
        """One sentence: which provider, and which parts of the intent are emulated."""

    def disclaimer(self, intent: Intent) -> str:
        """One clause: which nodes of real machines are not what their operating system's name says.

        Also which links are slow or lose packets. Empty if there are none. Commands that show or
        judge a lab say it in their first line.
        """
        from lab.topology.links import link_words  # noqa: PLC0415  not for what needs no Intent

        return link_words(intent)

    @abstractmethod
    def preflight(self, lab: LabHandle, intent: Intent) -> None:
        """Check that the lab can run here; what it already has counts as available.

        Raises PreflightError naming the missing ability and the fix. Nothing has been created.
        """

    @abstractmethod
    def steps(self, lab: LabHandle, intent: Intent) -> tuple[Step, ...]:
        """The steps of bring-up, in order."""

    @abstractmethod
    def liveness(self, lab: LabHandle, intent: Intent) -> Liveness:
        """Check the lab's objects."""

    @abstractmethod
    def destroy(self, lab: LabHandle, *, owner: str = "") -> tuple[str, ...]:
        """Destroy every object of the caller with the lab's token; return what was removed.

        With ``owner``, as in a mark, those of that owner instead. Safe to repeat.
        """

    @abstractmethod
    def marks(self, *, all_users: bool = False) -> tuple[Mark, ...]:
        """The caller's objects; with ``all_users`` also others' that the caller may destroy."""

    @abstractmethod
    def machine(self, lab: LabHandle, intent: Intent, name: str) -> Machine:
        """The pod or machine of that name.

        Raises UsageError if there is none; suggests the closest name.
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
        """Run every probe; ``progress`` is called with the number that have finished.

        Every key has an outcome. Never raises for a probe that fails.

        Raises BrokenError when the lab's machines do not exist. Raises ProbesInterrupted, with the
        outcomes until then, on Ctrl-C and SIGTERM.
        """

    def decide(self, text: str) -> Decided | None:  # noqa: ARG002  for those without scenarios
        """Plan, Intent and limits from a lab's record; None if the record is a scenario.

        Raises BrokenError when this version cannot read the record.
        """
        return None

    def unfit(self, intent: Intent) -> str:
        """Why this provider can never run such a lab; empty if it can."""
        from lab.topology.links import unfit_links  # noqa: PLC0415  providers need not read Intents

        return without_pod_network(intent) or unfit_links(intent)

    def node_mtu(self, mtu: int) -> int:
        """The MTU in bytes that the node segment supports here, at most ``mtu``.

        Raises PreflightError when it is too small for a cluster.
        """
        return mtu

    def cost(self, intent: Intent) -> Cost:
        """Predicted cost of bringing the lab up from scratch."""
        from lab.topology.cost import cost  # noqa: PLC0415  only "lab plan" asks for it

        return cost(intent)

    def labs_at_once(self, intents: Sequence[Intent]) -> int:  # noqa: ARG002  the same
        """How many of these labs, in any combination, can be up at once; at least one."""
        return 1

    def examine(self, state: Path) -> tuple[Diagnosis, ...]:  # noqa: ARG002  the same
        """The checks of ``lab doctor``; ``state`` is the state directory."""
        return ()

    def realised(self, intent: Intent) -> Intent:
        """The intent as the machines implement it: emulated Windows nodes obey Windows' limits.

        Code that changes a machine and restores it must use this intent, not the original.
        """
        return intent

    def observe(
        self,
        lab: LabHandle,  # noqa: ARG002  for those that can look into machines
        intent: Intent,  # noqa: ARG002  the same
        places: Mapping[str, Collection[str]],
        deadline: Deadline,  # noqa: ARG002  the same
    ) -> Mapping[str, NodeFacts | LabError]:
        """Observe the machines in ``places``, and the pods named for each.

        Every machine has its facts, or the error if it could not be observed; a machine that does
        not answer does not affect the others.

        Raises BrokenError when the lab's machines do not exist.
        """
        why = f"provider '{self.name}' cannot look into its machines"
        return {name: BrokenError(f"looking at '{name}'", why) for name in places}

    def deviations(
        self,
        lab: LabHandle,  # noqa: ARG002  the same
        intent: Intent,  # noqa: ARG002  the same
        places: Sequence[str],  # noqa: ARG002  the same
        deadline: Deadline,  # noqa: ARG002  the same
    ) -> Mapping[str, Sequence[Difference] | LabError]:
        """Differences between the state of machines and pods and what bring-up made, by name.

        A place that did not answer has its error. One without an entry cannot be compared: how it
        was made is not recorded. Raises LabError when the lab's machines do not exist, or cannot
        be compared in time.
        """
        return {}

    def logs(
        self,
        lab: LabHandle,  # noqa: ARG002  the same
        intent: Intent,  # noqa: ARG002  the same
        names: Collection[str],  # noqa: ARG002  the same
        deadline: Deadline,  # noqa: ARG002  the same
    ) -> Iterator[Evidence]:
        """The end of each program's log on the machines in ``names``, as ``MACHINE/FILE``.

        For a log that cannot be read, a file gives the reason. Never raises.
        """
        return iter(())

    def evidence(self, lab: LabHandle, intent: Intent) -> Iterator[Evidence]:  # noqa: ARG002  the same
        """Everything that helps to understand the state of the lab's machines, file by file.

        A file that cannot be read within ``EVIDENCE_SECONDS`` (``SLOW_EVIDENCE_SECONDS`` if
        machines may be emulated) gives the reason instead. Never raises.
        """
        return iter(())


class RealCluster(Protocol):
    """One lab's Kubernetes cluster, for labs with real pods."""

    def foreseen(self) -> Intent:
        """The lab's intent as far as known without its pods: enough to name every cell."""

    def probed(self, *, ready: bool = True) -> AbstractContextManager[Intent]:
        """Run the probe pods; yields the intent bound to them, from which the matrix is built.

        Without ``ready``, pods that have an address are enough: on a NotReady node they never
        become ready.

        Raises LabError when they cannot run, or the cluster differs from the intent.
        """

    def workloads(self) -> tuple[WorkloadResult, ...]:
        """Run the workload checks, while the probe pods exist. Never raises."""

    def import_images(self, archive: Path, systems: Collection[Os]) -> tuple[str, ...]:
        """Import a docker-archive or OCI archive on all nodes of its images' systems that take it.

        Returns the nodes. Raises LabError when importing fails on one.
        """

    def remarks(self) -> tuple[tuple[str, str], ...]:
        """Nodes with what keeps new pods away from them: ``("worker1", "cordoned")``.

        Raises LabError when the cluster does not report it.
        """

    def versions(self) -> tuple[NodeVersion, ...]:
        """The versions that the nodes actually run.

        Raises LabError when the cluster does not report them.
        """

    def client(self) -> AbstractContextManager[client.ApiClient]:
        """An API client with the cluster administrator's rights, for the ``with`` block.

        Raises LabError when the API server is unreachable.
        """


class ClusterProvider(Protocol):
    """The methods of a provider with the ability ``CLUSTER``."""

    def cluster(self, lab: LabHandle, intent: Intent) -> RealCluster | None:
        """The lab's Kubernetes cluster; None if its pods are namespaces."""


def find_cluster(provider: Provider, lab: LabHandle, intent: Intent) -> RealCluster | None:
    """The lab's Kubernetes cluster; None if its pods are namespaces or the provider has none."""
    if CLUSTER not in provider.abilities:
        return None
    return cast(ClusterProvider, provider).cluster(lab, intent)


class RealMachines(Protocol):
    """The methods of a provider with the ability ``MACHINES``."""

    def reaches(self, lab: LabHandle, intent: Intent) -> tuple[Reach, ...]:
        """How to get a shell on each machine, in the intent's order.

        Raises BrokenError when the lab's machines do not exist.
        """

    def console(self, lab: LabHandle, intent: Intent, name: str) -> int:
        """Connect this terminal to the machine's serial console until Ctrl-]; the exit code."""

    def console_log(self, lab: LabHandle, intent: Intent, name: str) -> str:
        """The output of the serial console since the machine was created."""

    def screenshot(self, lab: LabHandle, intent: Intent, name: str) -> bytes:
        """The machine's screen as PNG."""

    def suspend(self, lab: LabHandle, intent: Intent) -> tuple[str, ...]:
        """Save every running machine's memory to disk and stop it; returns their names.

        ``up`` resumes them.
        """
