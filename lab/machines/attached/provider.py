"""The provider of labs on existing clusters: it makes probe pods there, and takes them away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab._deadline import Deadline
from lab._errors import LabError, UsageError, did_you_mean
from lab.facts.difference import CLUSTER, Difference
from lab.machines.attached import design, marks
from lab.machines.attached.cluster import ApiPod, AttachedCluster
from lab.machines.attached.differences import find_differences
from lab.machines.attached.peers import compare_flannel, compare_nodes
from lab.machines.attached.record import RECORD, AttachedRecord, read_record, to_text
from lab.plan.canonical import digest
from lab.plan.step import Step
from lab.providers.provider import (
    CLUSTER as CLUSTER_ABILITY,
)
from lab.providers.provider import (
    Ability,
    Decided,
    Evidence,
    LabHandle,
    Liveness,
    Machine,
    Mark,
    Outcome,
    Pods,
    Probe,
    ProbeSettings,
    Provider,
)
from lab.providers.setup import ProviderSetup
from lab.state.files import read_private
from lab.topology.intent import Intent

NAME = "attached"
_LOOK_SECONDS = 10.0


def make(setup: ProviderSetup) -> Provider:
    """The provider; it needs no inventory."""
    del setup
    return AttachedProvider()


@dataclass
class AttachedProvider(Provider):
    """Existing clusters. ``record``: of a lab that is being entered; others have it stored."""

    record: AttachedRecord | None = None
    name: str = NAME
    pods: Pods = "kubernetes"
    abilities: frozenset[Ability] = frozenset({CLUSTER_ABILITY})

    def banner(self, intent: Intent | None) -> str:
        """One sentence: what is used of the cluster."""
        which = f"context '{intent.scenario}', " if intent else ""
        return f"{self.name}: {which}an existing cluster; only the probe pods are the lab's"

    def disclaimer(self, intent: Intent) -> str:
        """Which of its Windows nodes are Wine nodes."""
        return intent.disclaimer or ""

    def preflight(self, lab: LabHandle, intent: Intent) -> None:
        """Check the user's rights in the cluster; raises PreflightError naming what is missing."""
        self._cluster(lab, intent).require_rights()

    def steps(self, lab: LabHandle, intent: Intent) -> tuple[Step, ...]:
        """One step: the probe pods."""
        cluster = self._cluster(lab, intent)
        return (Step("pods", digest(intent, to_text(cluster.record)), cluster.deploy),)

    def liveness(self, lab: LabHandle, intent: Intent) -> Liveness:
        """Running if the lab's namespace, or its pods in a shared one, exist."""
        cluster = self._cluster(lab, intent)
        record = cluster.record
        try:
            pods = cluster.list_pods(Deadline(_LOOK_SECONDS))
        except LabError as error:
            return Liveness("broken", f"{error.doing}: {error.happened}")
        if not pods:
            return Liveness("absent", f"namespace '{record.namespace}' has no probe pods")
        return Liveness("running", f"{len(cluster.record.cluster.nodes)} nodes", reachable=True)

    def destroy(self, lab: LabHandle, *, owner: str = "") -> tuple[str, ...]:
        """Remove the lab's objects by their labels. Safe to repeat.

        Raises UsageError when there is no record of the cluster, so that nobody can look.
        """
        del owner
        record = self._record(lab)
        return AttachedCluster(lab, design.decide(record).intent, record).remove()

    def marks(self, *, all_users: bool = False) -> tuple[Mark, ...]:
        """None; see :mod:`lab.machines.attached.marks`."""
        return marks.find(ProviderSetup(), all_users=all_users)

    def machine(self, lab: LabHandle, intent: Intent, name: str) -> Machine:
        """The probe pod of that name.

        Raises UsageError if there is none.
        """
        pods = [pod.name for machine in intent.machines for pod in machine.pods]
        if name not in pods:
            raise UsageError(
                f"looking for '{name}' in lab '{lab.name}'",
                "no probe pod has this name; nodes of an existing cluster cannot be entered",
                did_you_mean(name, pods) or "'lab status' names the nodes",
            )
        return ApiPod(name, self._record(lab))

    def probe(
        self,
        lab: LabHandle,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        """Run every probe in the probe pods."""
        return self._cluster(lab, intent).probe(intent, probes, settings, progress)

    def decide(self, text: str) -> Decided | None:
        """Plan, Intent and limits from the lab's record.

        Raises BrokenError when this version cannot read it.
        """
        return design.decide(read_record(text))

    def cluster(self, lab: LabHandle, intent: Intent) -> AttachedCluster:
        """The lab's part of the cluster."""
        return self._cluster(lab, intent)

    def deviations(
        self, lab: LabHandle, intent: Intent, places: Sequence[str], deadline: Deadline
    ) -> Mapping[str, Sequence[Difference] | LabError]:
        """What the API shows to be wrong, for the place that stands for its objects."""
        if CLUSTER not in places:
            return {}
        cluster = self._cluster(lab, intent)
        state, record = cluster.state(deadline), cluster.record
        differences = find_differences(record, intent, state)
        if record.terms.debug_pods:
            read = cluster.read_nodes(deadline)
            differences += (
                *compare_flannel(state.nodes or (), read),
                *compare_nodes(record.cluster.nodes, read),
            )
        return {CLUSTER: differences}

    def logs(
        self, lab: LabHandle, intent: Intent, names: Collection[str], deadline: Deadline
    ) -> Iterator[Evidence]:
        """The end of the logs of kube-proxy, CNI and DNS on the nodes in ``names``."""
        return self._cluster(lab, intent).logs(names, deadline)

    def evidence(self, lab: LabHandle, intent: Intent) -> Iterator[Evidence]:
        """The same of all nodes."""
        names = [machine.name for machine in intent.machines]
        return self._cluster(lab, intent).logs(names, Deadline(_LOOK_SECONDS * 3))

    def _cluster(self, lab: LabHandle, intent: Intent) -> AttachedCluster:
        return AttachedCluster(lab, intent, self._record(lab))

    def _record(self, lab: LabHandle) -> AttachedRecord:
        if self.record is not None and self.record.lab == lab.name:
            return self.record
        path = lab.directory / RECORD
        if not path.is_file():
            raise UsageError(
                f"looking for the cluster of lab '{lab.name}'",
                "there is no record of one",
                f"'lab detach {lab.name} --forget' takes the lab out of the journal",
            )
        return read_record(read_private(path).decode())
