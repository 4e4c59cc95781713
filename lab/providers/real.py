"""What a provider adds whose machines, or whose cluster, are real."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, cast

from lab.cluster.observed import NodeVersion
from lab.cluster.workload_checks import WorkloadResult
from lab.providers.provider import CLUSTER, LabHandle, Provider
from lab.remote.shell import Reach
from lab.topology.intent import Intent


class RealCluster(Protocol):
    """One lab's Kubernetes, where its pods are Kubernetes' own."""

    def foreseen(self) -> Intent:
        """The lab's intent as far as it is known without its pods: enough to name every cell."""

    def probed(self, *, ready: bool = True) -> AbstractContextManager[Intent]:
        """Have the probe pods there; the intent bound to them, which the matrix is made from.

        Unless they are to be ``ready``, those that have an address are taken as they are: a node
        that is NotReady keeps them from getting so.

        Raises
        ------
        LabError
            When they cannot be had, or the cluster is not as the intent has it.

        """

    def workloads(self) -> tuple[WorkloadResult, ...]:
        """The checks beside the network, while the probe pods are there. Never raises."""

    def versions(self) -> tuple[NodeVersion, ...]:
        """What the nodes really run.

        Raises
        ------
        LabError
            When the cluster does not say.

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

        Raises
        ------
        BrokenError
            When the lab's machines are not there.

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
