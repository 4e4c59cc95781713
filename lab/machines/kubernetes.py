"""Kubernetes on a lab's machines: the steps that create the cluster, and its probe pods."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from ssl import PEM_cert_to_DER_cert
from typing import TYPE_CHECKING, Never

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError, PreflightError
from lab._log import say
from lab.facts.node import NodeFacts
from lab.machines.addons.addon import addons
from lab.machines.agents.exec_probes import ExecProber
from lab.machines.agents.fleet import with_names
from lab.machines.bundle import medium
from lab.machines.bundle.manifest import Manifest, create_command, download_words
from lab.machines.bundle.store import BundleStore
from lab.machines.cluster import rules
from lab.machines.cluster.api import NODES, Api
from lab.machines.cluster.cluster import (
    API_PORT,
    VIRTUAL_MACHINE,
    Cluster,
    ClusterNode,
    HostTraits,
    plan_cluster,
)
from lab.machines.cluster.linux.api import ADMIN, ClusterApi
from lab.machines.cluster.linux.bring_up import CONTROL_PLANE, import_archive, linux_steps
from lab.machines.cluster.linux.hard_way import PKI
from lab.machines.cluster.linux.joining import JoinCredentials
from lab.machines.cluster.linux.operations import ClusterSite
from lab.machines.cluster.obstacles import remarks
from lab.machines.cluster.probe_manifests import ObjectOwner
from lab.machines.cluster.probe_pods import ProbePods, Workloads, node_versions
from lab.machines.cluster.workload_checks import unmade
from lab.machines.evidence import RECENTLY, EvidenceNode, gather, logs
from lab.machines.guests import Guests, Opened
from lab.machines.system import HardWayCredentials, NodeCredentials, NodeJoining, System, system_of
from lab.plan.canonical import digest
from lab.plan.step import Step
from lab.providers.netns.dialects import FINGERPRINT, fingerprint
from lab.providers.provider import (
    Evidence,
    LabHandle,
    Machine,
    Outcome,
    Probe,
    ProbeSettings,
    ProbesInterrupted,
)
from lab.providers.workloads import WorkloadResult, nodes
from lab.scenario.terms import Os
from lab.shells.parallel import on_each
from lab.shells.shell import Completed, Shell
from lab.state.files import write_private
from lab.topology.bind import bind, bound_as, foresee, observed_in
from lab.topology.intent import Intent, Obstacle
from lab.topology.observed import NAMESPACE, ClusterObserved, NodeVersion, from_text, to_text

if TYPE_CHECKING:
    from kubernetes import client


@dataclass(frozen=True, slots=True)
class Bundled:
    """A lab's cluster and the bundle that it is installed from."""

    store: BundleStore
    manifest: Manifest
    cluster: Cluster
    kind: type[System] = System
    """What the provider asks of systems other than Linux."""

    def system(self, name: Os, action: str) -> System:
        """The system of nodes other than Linux; UsageError if none is installed."""
        return system_of(name, self.kind, action)

    def manifest_of(self, name: Os) -> Manifest:
        """The bundle as the nodes of a system have it."""
        if name == "linux":
            return self.manifest
        return self.system(name, "reading the bundle").bundled(self.manifest)

    @property
    def digest(self) -> str:
        """The bundle's digest."""
        return self.manifest.digest

    def check(self) -> None:
        """Verify the parts of the bundle whose media are not written yet.

        Raises PreflightError naming everything that is damaged.
        """
        for system in sorted({node.os for node in self.cluster.nodes}):
            medium.check(self.store, self.manifest, system)


def find_bundle(  # noqa: PLR0913, PLR0917  what a cluster is planned from
    lab: LabHandle,
    intent: Intent,
    cache: Path,
    kept: str,
    host: HostTraits = VIRTUAL_MACHINE,
    kind: type[System] = System,
) -> Bundled:
    """Find the bundle for a lab's cluster, and plan the cluster.

    ``kept``: digest of the bundle that the lab already uses; empty for the newest one. ``host``:
    traits of the hosts that its Linux nodes run on. ``kind``: what the provider asks of other
    systems.

    Raises PreflightError when there is no bundle of that version, or it lacks something that the
    cluster needs; names everything. Raises UsageError when the bundle that the lab uses is gone.
    """
    assert intent.kubernetes is not None, "asked for where pods are Kubernetes' alone"
    store = BundleStore(cache)
    manifest = store.get(kept) if kept else _find_newest(store, intent)
    made = Bundled(store, manifest, plan_cluster(lab.name, intent, manifest, host), kind)
    _refuse(lab, intent, made)
    return made


def _find_newest(store: BundleStore, intent: Intent) -> Manifest:
    assert intent.kubernetes is not None, "asked for by the caller"
    systems = {machine.os for machine in intent.machines if machine.kubelet}
    try:
        addon = addons().get(intent.topology)
        return store.newest(intent.kubernetes.version, systems, addon.bundled if addon else "")
    except PreflightError as error:
        without = (
            "'--only linux' for its Linux nodes alone"
            if systems - {"linux"}
            else "'--pods namespaces' for a lab without Kubernetes"
        )
        hint = f"{error.hint}\n       or {without}"
        raise PreflightError(error.doing, error.happened, hint) from error


def _refuse(lab: LabHandle, intent: Intent, made: Bundled) -> None:
    manifest = made.manifest
    problems: list[str] = []
    for node in made.cluster.nodes:
        if node.os != "linux":
            system = made.system(node.os, f"making the cluster of lab '{lab.name}'")
            manifest = made.manifest_of(node.os)
            problems += system.join_refusals(made.cluster, intent, node, manifest)
    rules.require(manifest, made.cluster)
    if problems:
        systems = {node.os for node in made.cluster.nodes}
        command = create_command(manifest.kubernetes.rpartition(".")[0], systems)
        raise PreflightError(
            f"making the cluster of lab '{lab.name}' from bundle '{made.digest[:12]}'",
            "; ".join(dict.fromkeys(problems)),
            f"'{command}' makes a complete one ({download_words(systems)}); "
            "'lab bundle show' lists its contents",
        )


@dataclass(frozen=True, slots=True)
class ClusterPod:
    """One probe pod."""

    name: str
    lab: str
    plane: str
    shell: Shell
    program: str
    """The shell that the pod has."""

    def run(self, command: Sequence[str], deadline: Deadline) -> Completed:
        """Run a command; see :class:`lab.providers.provider.Machine`."""
        seconds = str(math.ceil(deadline.left()) + 1)
        words = ("timeout", "-s", "KILL", seconds, *self._words("exec", command))
        return self.shell.run(words, deadline)

    def attach(self, command: Sequence[str]) -> int:
        """Run a command on this terminal, or a shell if ``command`` is empty."""
        return self.shell.attach(self._words("exec", command, "-it"))

    def command_line(self, command: Sequence[str]) -> str:
        """The equivalent shell command."""
        return shlex.join(("lab", "ssh", self.lab, self.plane, "--", *self._words("exec", command)))

    def _words(self, verb: str, command: Sequence[str], *flags: str) -> tuple[str, ...]:
        head = ("kubectl", f"--kubeconfig={ADMIN}", f"--namespace={NAMESPACE}", verb)
        return (*head, *flags, self.name, "--", *(command or (self.program,)))


_LAST_PODS = "pods.json"
"""In the lab's directory: what the cluster said of its pods the last time."""
KUBECONFIG = "secrets/cluster.conf"
"""The administrator's kubeconfig in the lab's directory, for the lab's own requests."""
AGNHOST = "registry.k8s.io/e2e-test-images/agnhost"
_CERTIFICATE = f"{PKI}/apiserver.crt"
PODS_SECONDS = 240.0
EVIDENCE_SECONDS = 30.0
_API_SECONDS = 60.0
_LOOK_SECONDS = 10.0


_FRESH_SECONDS = 60.0
"""Within these, a node's steps use the same credentials: a token for each took a second."""


def renewed(
    make: Callable[[], NodeCredentials], seconds: float, now: Callable[[], float] = time.monotonic
) -> Callable[[], NodeCredentials]:
    """What ``make`` returns, made again once it is older than some seconds."""
    kept: list[tuple[float, NodeCredentials]] = []

    def get() -> NodeCredentials:
        if not kept or now() - kept[0][0] > seconds:
            kept[:] = [(now(), make())]
        return kept[0][1]

    return get


@dataclass(frozen=True)
class MachinesCluster:
    """One lab's cluster.

    ``bundled``: its plan and bundle. ``opened``: opens shells on its machines, once they exist.
    """

    lab: LabHandle
    intent: Intent
    bundled: Bundled
    opened: Opened

    def steps(self) -> tuple[Step, ...]:
        """The steps after those of the machines: cluster, Windows nodes, probe pods.

        Windows nodes join beside Linux workers, and take longer.
        """
        made = (self.bundled.cluster, self.bundled.digest)
        steps = [
            replace(step, run=self._running(step.name)) for step in self._linux(self._no_site())
        ]
        dns, ready = steps[-2:]
        del steps[-2:]
        systems = sorted({node.os for node in self._foreign_nodes()})
        first = [step.name for step in steps].index(CONTROL_PLANE) + 1
        steps[first:first] = [
            Step(f"{name}-programs", digest(name, *made), partial(self._prepare_all, name), True)
            for name in systems
        ]
        steps += [
            Step(name, digest(name, *made), partial(self._join_all, name), True) for name in systems
        ]
        pods = Step("pods", digest(self.intent, *made), self._pods, alongside=True)
        return (*steps, dns, ready, pods)

    def ailments(self, guests: Guests) -> Mapping[str, str]:
        """What is wrong with each node that is not Ready. Never raises."""
        deadline = guests.deadline(_LOOK_SECONDS)
        return ClusterApi(self.bundled.cluster, self._site(guests)).ailments(deadline)

    def foreseen(self) -> Intent:
        """The Intent as far as known without its pods: enough to name every cell."""
        return foresee(self.intent)

    @contextmanager
    def probed(self, *, ready: bool = True) -> Iterator[Intent]:
        """Deploy the probe pods and yield the Intent bound to them.

        Without ``ready``, pods that already have addresses are not waited for, and if the API
        server does not answer, the pods are those of the last time. The pods remain after the
        block, for the next run and for inspection.

        Raises LabError when they cannot run, or the cluster differs from the Intent.
        """
        with self.opened() as guests:
            last = self.lab.directory / _LAST_PODS
            try:
                bound = bind(self.intent, self._observe_pods(guests, ready=ready))
                write_private(last, to_text(observed_in(self.intent, bound)))
            except DeadlineError as error:
                if ready or not last.exists():
                    raise
                say(f"{error.doing}: {error.happened}; its pods are taken to be as they were last")
                bound = bound_as(self.intent, from_text(last.read_text(encoding="utf-8")))
        yield bound

    def _observe_pods(self, guests: Guests, *, ready: bool) -> ClusterObserved:
        deadline = guests.deadline(PODS_SECONDS)
        with self._pods_of(guests, deadline) as pods:
            answers = deadline if ready else guests.deadline(_LOOK_SECONDS)
            obstacles: Mapping[str, Obstacle] = {}
            if ready or not pods.have_addresses(answers):
                obstacles = pods.deploy(deadline, say, renew=False)
            return pods.observe(deadline, guests.fleet.links(deadline), obstacles)

    def workloads(self) -> tuple[WorkloadResult, ...]:
        """Run the workload checks, while the probe pods exist. Never raises."""
        with self.opened() as guests:
            deadline = guests.deadline(PODS_SECONDS)
            try:
                with self.api(guests, deadline) as api:
                    made = Workloads(api, self.intent, self._owner(), self._images())
                    return made.run(deadline)
            except LabError as error:
                why = f"{error.doing}: {error.happened}"
                return tuple(
                    result for machine in nodes(self.intent) for result in unmade(machine, why)
                )

    def import_images(self, archive: Path, systems: Collection[Os]) -> tuple[str, ...]:
        """Import a docker-archive or OCI archive on all nodes of its images' systems that take it.

        Returns the nodes. Raises BrokenError with what a node's containerd says; DeadlineError
        when it takes too long; PreflightError when an image cannot be made into one of a node's.
        """
        nodes: dict[Os, list[str]] = {}
        for node in self.bundled.cluster.nodes:
            if node.os in systems and (node.os != "linux" or node.pod_cidr):
                nodes.setdefault(node.os, []).append(node.name)
        linux = nodes.pop("linux", [])
        with self.opened() as guests:
            on_each(
                linux,
                lambda node: import_archive(node, archive, guests.shell(node), guests.deadline),
            )
            taken = list(linux)
            for name, others in nodes.items():
                system = self.bundled.system(name, f"importing '{archive}'")
                shells = {node: guests.shell(node) for node in others}
                taken += system.import_archive(archive, shells, guests.deadline, say)
        return tuple(taken)

    def remarks(self) -> tuple[tuple[str, str], ...]:
        """Nodes with what keeps new pods away from them: ``("worker1", "cordoned")``.

        Raises LabError when the API server does not answer.
        """
        with self.opened() as guests:
            deadline = guests.deadline(_LOOK_SECONDS)
            with self.api(guests, deadline) as api:
                return tuple(remarks(api.listing(NODES, deadline).objects))

    def versions(self) -> tuple[NodeVersion, ...]:
        """The versions that the nodes actually run.

        Raises LabError when the cluster does not report them.
        """
        with self.opened() as guests:
            deadline = guests.deadline(_API_SECONDS)
            with self.api(guests, deadline) as api:
                return node_versions(api, deadline)

    @contextmanager
    def client(self) -> Iterator[client.ApiClient]:
        """An API client with the cluster administrator's rights, for the ``with`` block.

        Raises LabError when the API server is unreachable.
        """
        with self.opened() as guests:
            deadline = guests.deadline(_API_SECONDS)
            with self.api(guests, deadline) as api:
                yield api.client

    def probe(
        self,
        bound: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        """Run every probe: with the agents on Linux machines, through the API on others."""
        try:
            return self._probe(bound, probes, settings, progress)
        except ProbesInterrupted as stop:  # no time to ask whose the certificates are
            raise ProbesInterrupted(
                {
                    key: outcome
                    for key, outcome in stop.outcomes.items()
                    if not any(name.startswith(FINGERPRINT) for name in outcome.backends)
                }
            ) from stop

    def _probe(
        self,
        bound: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        with self.opened() as guests:
            if not self._foreign_nodes():
                outcomes = guests.probe(bound, probes, settings, progress)
            else:
                with self.api(guests, guests.deadline(_API_SECONDS)) as api:
                    others = {
                        node.name: ExecProber(api, node.name) for node in self._foreign_nodes()
                    }
                    outcomes = guests.probe(bound, probes, settings, progress, others)
            shown = {name for outcome in outcomes.values() for name in outcome.backends}
            holders = self._holders(
                guests, {name for name in shown if name.startswith(FINGERPRINT)}
            )
        return {key: with_names(outcome, holders) for key, outcome in outcomes.items()}

    def _holders(self, guests: Guests, certificates: Collection[str]) -> Mapping[str, str]:
        """The control planes whose API servers have these certificates, by fingerprint.

        An unreachable control plane is left out; its certificate stays unknown.
        """
        holders: dict[str, str] = {}
        for plane in self.bundled.cluster.control_planes():
            if holders.keys() >= set(certificates):
                break
            with suppress(LabError, ValueError):
                deadline = guests.deadline(_LOOK_SECONDS)
                written = guests.shell(plane.name).get(_CERTIFICATE, deadline).decode()
                holders[fingerprint(PEM_cert_to_DER_cert(written))] = plane.name
        return holders

    def machine(self, guests: Guests, name: str) -> Machine | None:
        """The probe pod of that name, to run commands in; None if there is none."""
        machine, pod = self.intent.places().get(name, (None, None))
        if machine is None or pod is None:
            return None
        plane, program = self._plane(), "cmd" if machine.os == "windows" else "sh"
        return ClusterPod(name, self.lab.name, plane, guests.shell(plane), program)

    def observe(
        self,
        guests: Guests,
        places: Mapping[str, Collection[str]],
        deadline: Deadline,
    ) -> Mapping[str, NodeFacts | LabError]:
        """Observe machines of every system, together with their pods."""
        facts = guests.observe(self.intent, places, deadline)
        for node in self._foreign_nodes():
            if node.name in facts:
                system = self.bundled.system(node.os, f"observing node '{node.name}'")
                try:
                    facts[node.name] = system.observe(guests.shell(node.name), deadline)
                except LabError as error:
                    facts[node.name] = error
        return facts

    def evidence(self, guests: Guests) -> Iterator[Evidence]:
        """Evidence from nodes and API server, and the logs of other machines. Never raises."""
        deadline = guests.deadline(EVIDENCE_SECONDS)
        evidence_nodes = [self._evidence_node(guests, node) for node in self.bundled.cluster.nodes]
        try:
            with self.api(guests, deadline) as api:
                pieces = gather(
                    evidence_nodes,
                    lambda path, within: api.ask("GET", path, within),
                    deadline,
                    guests.patience,
                )
                yield from starmap(Evidence, pieces)
        except LabError as error:
            yield Evidence("api/missing", f"{error}\n".encode())
        others = self._other_machines(machine.name for machine in self.intent.machines)
        yield from guests.logs(others, deadline)

    def logs(
        self, guests: Guests, places: Collection[str], deadline: Deadline
    ) -> Iterator[Evidence]:
        """The end of the logs of the machines in ``places``, nodes or not. Never raises."""
        nodes = [node for node in self.bundled.cluster.nodes if node.name in places]
        asking = (self._evidence_node(guests, node) for node in nodes)
        yield from starmap(Evidence, logs(asking, deadline, guests.patience, RECENTLY))
        yield from guests.logs(self._other_machines(places), deadline, RECENTLY)

    @contextmanager
    def api(self, guests: Guests, deadline: Deadline, plane: str = "") -> Iterator[Api]:
        """Connect to the API server of control plane ``plane``, by default the first one."""
        first = self._plane()
        path = self.lab.directory / KUBECONFIG
        write_private(path, guests.shell(first).get(ADMIN, deadline).decode())
        with guests.forward(plane or first, API_PORT, _API_SECONDS * guests.patience) as address:
            api = Api(path, address)
            try:
                yield api
            finally:
                api.close()

    def _plane(self) -> str:
        return self.bundled.cluster.control_planes()[0].name

    def _foreign_nodes(self) -> tuple[ClusterNode, ...]:
        """The nodes of other systems than Linux."""
        return tuple(node for node in self.bundled.cluster.nodes if node.os != "linux")

    def _other_machines(self, machines: Iterable[str]) -> frozenset[str]:
        """The machines that are not nodes: router, client, services node."""
        return frozenset(machines) - {node.name for node in self.bundled.cluster.nodes}

    def _evidence_node(self, guests: Guests, node: ClusterNode) -> EvidenceNode:
        system = (
            None
            if node.os == "linux"
            else self.bundled.system(node.os, f"gathering evidence of node '{node.name}'")
        )
        return EvidenceNode(node.name, guests.shell(node.name), system)

    def _linux(self, site: ClusterSite) -> tuple[Step, ...]:
        return linux_steps(self.bundled.cluster, self.intent, self.bundled.manifest, site)

    def _no_site(self) -> ClusterSite:
        """A site without machines: enough to compute the steps' digests."""

        def none(name: str) -> Never:
            raise AssertionError(name)

        return ClusterSite(none, {}, self.lab.directory, say)

    def _site(self, guests: Guests) -> ClusterSite:
        return ClusterSite(
            shell=guests.shell,
            management={
                machine.name: guests.address(machine.name) for machine in self.intent.machines
            },
            directory=self.lab.directory,
            say=say,
            patience=guests.patience,
            check=guests.check,
            api=lambda plane, deadline: self.api(guests, deadline, plane),
        )

    def _running(self, name: str) -> Callable[[], None]:
        def run() -> None:
            with self.opened() as guests:
                (step,) = (
                    candidate
                    for candidate in self._linux(self._site(guests))
                    if candidate.name == name
                )
                step.run()

        return run

    def _prepare_all(self, name: Os) -> None:
        """Prepare the nodes of one system, all at once."""
        system = self.bundled.system(name, f"preparing the nodes of lab '{self.lab.name}'")
        self._on_each(name, system.prepare)

    def _join_all(self, name: Os) -> None:
        """Join the nodes of one system, all at once."""
        system = self.bundled.system(name, f"joining the nodes of lab '{self.lab.name}'")
        self._on_each(name, system.join)

    def _on_each(self, system: Os, run: Callable[[NodeJoining], None]) -> None:
        nodes = {node.name: node for node in self._foreign_nodes() if node.os == system}
        with self.opened() as guests:
            site = self._site(guests)
            on_each(nodes, lambda name: run(self._joining(guests, site, nodes[name])))

    def _joining(self, guests: Guests, site: ClusterSite, node: ClusterNode) -> NodeJoining:
        return NodeJoining(
            *(self.bundled.cluster, self.intent, node, self.bundled.manifest),
            shell=guests.shell(node.name),
            patience=site.patience,
            credentials=renewed(lambda: self._credentials(site, node), _FRESH_SECONDS),
            api=ClusterApi(self.bundled.cluster, site),
        )

    def _credentials(self, site: ClusterSite, node: ClusterNode) -> NodeCredentials:
        cluster, entrance = self.bundled.cluster, JoinCredentials(self.bundled.cluster, site)
        deadline = site.deadline(_API_SECONDS)
        account = addons()[cluster.topology].account
        proxy = entrance.kubeconfig("system:kube-proxy", (), deadline)
        network = entrance.kubeconfig(account, (), deadline) if account else None
        endpoint = f"{cluster.endpoint}:{API_PORT}"
        if cluster.how == "by-hand":
            own = entrance.kubeconfig(f"system:node:{node.name}", ("system:nodes",), deadline)
            serving = entrance.serving_pair(node, deadline)
            by_hand = HardWayCredentials(own, entrance.ca(deadline).encode(), serving)
            return NodeCredentials(endpoint, "", "", proxy, network, by_hand)
        token, ca_hash = entrance.token(deadline), entrance.ca_hash(deadline)
        return NodeCredentials(endpoint, token, ca_hash, proxy, network)

    def _pods(self) -> None:
        with self.opened() as guests:
            deadline = guests.deadline(PODS_SECONDS)
            with self._pods_of(guests, deadline) as pods:
                pods.deploy(deadline, say)

    @contextmanager
    def _pods_of(self, guests: Guests, deadline: Deadline) -> Iterator[ProbePods]:
        with self.api(guests, deadline) as api:
            yield ProbePods(api, self.intent, self._owner(), self._images())

    def _owner(self) -> ObjectOwner:
        return ObjectOwner(self.lab.name, self.lab.token)

    def _images(self) -> Mapping[Os, str]:
        systems = {node.os for node in self.bundled.cluster.nodes if node.pod_cidr}
        return {name: self.bundled.manifest_of(name).image(AGNHOST, name).name for name in systems}
