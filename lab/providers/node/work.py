"""What an agent is told: plain frozen data, pickled on the way to it and never on the way back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, collapse_addresses

from lab.providers.capture import Tap
from lab.providers.netns.responder_config import configuration
from lab.providers.provider import Probe, ProbeSettings
from lab.topology.intent import SMALL, Intent, MachineIntent

FORM = "1"
"""Changes when an agent does something else for the same work."""
MANAGEMENT = "mgmt0"
"""The network card that carries the connection to the machine; never the lab's."""


@dataclass(frozen=True, slots=True)
class Work:
    """One machine's network, with all that is known of the rest of the lab there."""

    machine: MachineIntent
    answers: str
    """The responder's configuration, JSON."""
    ranges: tuple[str, ...]
    """Every prefix of the lab: what must never leave or come by the management card."""

    def namespaces(self) -> tuple[str, ...]:
        """The machine's name, and its pods'."""
        return (self.machine.name, *(pod.name for pod in self.machine.pods))

    def digest(self) -> str:
        """The hash of all that is to be there."""
        text = "\0".join((FORM, repr(self.machine), self.answers, *self.ranges))
        return hashlib.sha256(text.encode()).hexdigest()


def work(machine: MachineIntent, intent: Intent) -> Work:
    """The work for one machine of a lab."""
    names = frozenset((machine.name, *(pod.name for pod in machine.pods)))
    prefixes = collapse_addresses(IPv4Network(text) for text in _prefixes(intent))
    return Work(
        replace(machine, hardware=SMALL),
        configuration(intent, names),
        tuple(str(prefix) for prefix in prefixes),
    )


def _prefixes(intent: Intent) -> Iterator[str]:
    yield from (segment.cidr for segment in intent.segments)
    for machine in intent.machines:
        if machine.translation and machine.translation.local_cidr:
            yield machine.translation.local_cidr
        for service in machine.translation.services if machine.translation else ():
            yield f"{service.address}/32"


@dataclass(frozen=True, slots=True)
class Order:
    """What every verb is told; ``seconds`` is all the time it has."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ClusterPods:
    """The pods of one run on a cluster, as a node's agent finds them."""

    machine: str
    """The node itself, a source too."""
    token: str
    """In the environment of the pods' processes."""


@dataclass(frozen=True, slots=True)
class Linking(Order):
    """Say how the pods are plugged in."""

    cluster: ClusterPods


@dataclass(frozen=True, slots=True)
class Up(Order):
    """Make the network anew."""

    work: Work


@dataclass(frozen=True, slots=True)
class Down(Order):
    """Take everything away."""


@dataclass(frozen=True, slots=True)
class Probing(Order):
    """Try every probe; their sources are the machine and its pods."""

    probes: tuple[Probe, ...]
    settings: ProbeSettings
    cluster: ClusterPods | None = None
    """Where the pods are Kubernetes' own; None where they are the lab's namespaces."""


@dataclass(frozen=True, slots=True)
class PodCommand(Order):
    """Run a command in a pod."""

    pod: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hearing(Order):
    """Take down all that passes the taps, until told to end."""

    taps: tuple[Tap, ...]
    limit: int
    """Bytes kept of each."""
    cluster: ClusterPods | None = None
    """Where the pods are Kubernetes' own; None where they are the lab's namespaces."""


@dataclass(frozen=True, slots=True)
class Gather(Order):
    """Say all that is known."""
