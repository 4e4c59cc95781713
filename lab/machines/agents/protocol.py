"""The orders to an agent, and its output.

An order is one JSON document, read as an :class:`Order` and as nothing else. The agent prints one
JSON object per line, with one key::

    {"phase": "network"}                   the current phase
    {"progress": 17}                       number of probes finished; also a sign of life
    {"outcomes": [{...}, ...]}             each an Outcome
    {"pieces": [["worker1/links.txt", "…"]]}  evidence
    {"ready": 4711}                        the agent's process, once every tap or port is open
    {"taken": [{...}]}                     a Taken, or a part of one
    {"said": [{...}, ...]}                 each a KernelTrace
    {"completed": {"worker1-p1": {...}}}   the Completed of a command in a pod
    {"links": [{...}, ...]}                each a PodLink
    {"failed": ["BrokenError", doing, happened, hint]}
    {"done": true}                         the last line

The controller validates each of them: see :mod:`lab.machines.agents.control`.
"""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, collapse_addresses
from typing import Any

from lab._errors import LabError
from lab.providers.capture import Frame, RouteQuestion, Taken, Tap
from lab.providers.netns.compile import configuration
from lab.providers.provider import Probe, ProbeSettings
from lab.providers.wire import encode
from lab.topology.intent import SMALL, Intent, MachineIntent

FORM = "1"
"""Increment when an agent does something different for the same work."""


@dataclass(frozen=True, slots=True)
class Work:
    """One machine's network, with everything it needs to know about the rest of the lab."""

    machine: MachineIntent
    answers: str
    """The responder's configuration, JSON."""
    ranges: tuple[str, ...]
    """Every prefix of the lab; its packets must never cross the management card."""

    def namespaces(self) -> tuple[str, ...]:
        """The names of the machine and its pods."""
        return (self.machine.name, *(pod.name for pod in self.machine.pods))

    def digest(self) -> str:
        """The hash of the whole work."""
        text = "\0".join((FORM, repr(self.machine), self.answers, *self.ranges))
        return hashlib.sha256(text.encode()).hexdigest()


def machine_work(machine: MachineIntent, intent: Intent) -> Work:
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
class ClusterPods:
    """How a node's agent finds the pods of one run on a cluster."""

    machine: str
    """The node itself, which is a source too."""
    token: str
    """The token in the environment of the pods' processes."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order to an agent; each verb reads the fields that it needs."""

    seconds: float
    """Time limit for the whole order."""
    cluster: ClusterPods | None = None
    """Set for real Kubernetes pods; None if the pods are namespaces."""
    work: Work | None = None
    """For ``up``: the network to create."""
    probes: tuple[Probe, ...] = ()
    settings: ProbeSettings | None = None
    """For ``probe``."""
    pods: tuple[str, ...] = ()
    """For ``run`` and ``receive``; ``run`` without any runs in all Kubernetes pods."""
    command: tuple[str, ...] = ()
    """For ``run``."""
    taps: tuple[Tap, ...] = ()
    limit: int = 0
    """For ``listen``, which runs until :data:`STOP`: bytes kept per tap."""
    places: Mapping[str, tuple[RouteQuestion, ...]] = field(default_factory=dict)
    table: str = ""
    """For ``trace``, which runs until :data:`STOP`; see
    :meth:`~lab.providers.capture.KernelTracing.trace_kernel`.
    """


STOP = signal.SIGUSR1
"""The signal that makes a capturing or tracing agent report, and a receiving one stop."""
_BYTES_A_LINE = 96 << 10


def make_line(kind: str, value: Any) -> bytes:
    """One line of output; a record becomes an object, bytes become base64."""
    return encode({kind: value}) + b"\n"


def failure_line(error: LabError) -> bytes:
    """An error as a line."""
    return make_line("failed", [type(error).__name__, error.doing, error.happened, error.hint])


def taken_lines(taken: Taken) -> Iterator[bytes]:
    """The packets of a tap, split over as many lines as needed."""
    parts: list[list[Frame]] = [[]]
    size = 0
    for frame in taken.frames:
        parts[-1].append(frame)
        size += len(frame.data)
        if size > _BYTES_A_LINE:
            parts.append([])
            size = 0
    for number, part in enumerate(parts):
        missed = 0 if number else taken.missed
        yield make_line("taken", [replace(taken, frames=tuple(part), missed=missed)])
