"""A system: what a node's operating system, other than Linux, adds to providers of machines.

Systems are plug-ins of ``hybridlab.systems``; nothing of this room imports one. Clusters ask for
the system of a node by its name. Who needs more of a system declares it in a class derived from
:class:`System`: image recipes, builds and virtual machines do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

from lab._deadline import Deadline
from lab._errors import BrokenError, UsageError
from lab._plugins import objects
from lab.facts.node import NodeFacts
from lab.machines.bundle.manifest import Manifest
from lab.machines.cluster.cluster import Cluster, ClusterNode
from lab.machines.cluster.credentials import Pair
from lab.providers.capture import KernelTrace
from lab.scenario.terms import Os
from lab.shells.shell import Shell
from lab.topology.intent import Intent

S = TypeVar("S", bound="System")

Ends = tuple[str, str, int]
"""Two addresses, and the server's port."""
EvidencePiece = tuple[str, Callable[[Deadline], str]]
"""Name of a file of the evidence, and what makes its content; that may raise LabError."""


class UnansweredError(BrokenError):
    """A machine answered, but not with what was asked for."""


@dataclass(frozen=True, slots=True)
class HardWayCredentials:
    """What a node gets instead of a token when it joins without kubeadm."""

    kubelet_kubeconfig: bytes = field(repr=False)
    """Contains the node's own client certificate."""
    ca: bytes = field(repr=False)
    """The cluster's CA certificate, PEM."""
    serving: Pair = field(repr=False)
    """With which its kubelet serves: the API server takes none that the kubelet signed itself."""


@dataclass(frozen=True, slots=True)
class NodeCredentials:
    """Everything that one node needs to join."""

    endpoint: str
    """The API server's address and port, ``"10.9.176.11:6443"``."""
    token: str = field(repr=False)
    """kubeadm's token, valid for minutes; empty without kubeadm."""
    ca_hash: str
    """``"sha256:..."`` of the CA's public key; empty without kubeadm."""
    proxy_kubeconfig: bytes = field(repr=False)
    network_kubeconfig: bytes | None = field(default=None, repr=False)
    """The network daemon's kubeconfig; None if it needs none."""
    by_hand: HardWayCredentials | None = None


class NodeApi(Protocol):
    """The part of the cluster's API that a joining node needs."""

    def registered(self, name: str, deadline: Deadline) -> bool:
        """Whether there is a Node of this name."""

    def set_pod_cidr(self, node: ClusterNode, deadline: Deadline) -> None:
        """Wait for the Node and set the plan's pod CIDR."""


@dataclass(frozen=True, slots=True)
class NodeJoining:
    """One node that joins its cluster."""

    cluster: Cluster
    intent: Intent
    node: ClusterNode
    manifest: Manifest
    shell: Shell
    patience: int
    """Factor for deadlines; more than 1 on emulated processors."""
    credentials: Callable[[], NodeCredentials]
    """Gets them from the control plane: called when a step needs them, for tokens expire."""
    api: NodeApi


class DropMonitor(Protocol):
    """Counts what one machine drops of one flow."""

    def begin(self, protocol: str, ends: Collection[Ends]) -> None:
        """Start counting. Never raises LabError."""

    def end(self) -> KernelTrace:
        """Stop, leave nothing behind, and return what was dropped. Never raises LabError."""


class System(ABC):
    """One operating system of nodes beside Linux."""

    name: Os

    def bundled(self, manifest: Manifest) -> Manifest:
        """The bundle as its nodes have it: with what is made of other parts. Pure."""
        return manifest

    @abstractmethod
    def join_refusals(
        self, cluster: Cluster, intent: Intent, node: ClusterNode, manifest: Manifest
    ) -> Collection[str]:
        """Why a node cannot join, each as a clause; none if it can."""

    @abstractmethod
    def prepare(self, joining: NodeJoining) -> None:
        """Do what needs no control plane yet, beside its start.

        Raises LabError when that fails.
        """

    @abstractmethod
    def join(self, joining: NodeJoining) -> None:
        """Make the machine, which is prepared, a Ready node, whatever state it is in.

        Raises LabError when that fails.
        """

    def import_archive(
        self,
        archive: Path,  # noqa: ARG002  for those that take images
        shells: Mapping[str, Shell],  # noqa: ARG002  the same
        deadline: Callable[[float], Deadline],  # noqa: ARG002  the same
        say: Callable[[str], None],  # noqa: ARG002  the same
    ) -> Collection[str]:
        """Import the images of an archive that are for this system; returns the nodes that did.

        ``shells``: one on each node. ``deadline``: makes one of seconds on hardware.

        None if nodes of this system get images from the bundle alone.
        """
        return ()

    @abstractmethod
    def observe(self, shell: Shell, deadline: Deadline) -> NodeFacts:
        """Observe a node's network.

        Raises LabError when it cannot be queried.
        """

    @abstractmethod
    def node_evidence(self, shell: Shell) -> Iterator[EvidencePiece]:
        """A node's facts, logs and configuration."""

    @abstractmethod
    def machine_evidence(self, shell: Shell) -> Iterator[EvidencePiece]:
        """What the machine itself says, whether it is a node or not."""

    @abstractmethod
    def drop_monitor(
        self,
        machine: str,
        shell: Callable[[], Shell],
        directory: Path,
        deadline: Callable[[], Deadline],
    ) -> DropMonitor:
        """A monitor of the machine's drops; ``directory``: the lab's, for locks."""


@cache
def systems() -> tuple[System, ...]:
    """Every installed system, by the names of the plug-ins."""
    return tuple(objects("systems", System))


def has_system(name: Os, kind: type[System]) -> bool:
    """Whether a system of nodes of this name is installed that can do what ``kind`` asks for."""
    return any(system.name == name and isinstance(system, kind) for system in systems())


def system_of(name: Os, kind: type[S], action: str) -> S:
    """The system of nodes of this name that can do what ``kind`` asks for.

    ``kind``: :class:`System` itself, or what a provider asks of one.

    Raises UsageError when none is installed.
    """
    for system in systems():
        if system.name == name and isinstance(system, kind):
            return system
    raise UsageError(
        action,
        f"nothing installed has {name} nodes of this kind",
        f'pip install "hybridlab[{name}]"',
    )
