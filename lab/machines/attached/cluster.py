"""One lab on an existing cluster: its probe pods, and the probes that they send."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError, PreflightError, UsageError
from lab._log import say
from lab.facts.questions import STATE_COMMAND
from lab.facts.state import State, read_state
from lab.machines.agents.exec_probes import ExecProber, plan_transfers
from lab.machines.attached import design, rights
from lab.machines.attached.connection import opened_api, refused
from lab.machines.attached.differences import ApiState
from lab.machines.attached.objects import CONTAINER, HOST_PORT, make_objects
from lab.machines.attached.peers import ENTER
from lab.machines.attached.recognise import is_network_daemon
from lab.machines.attached.record import AttachedRecord
from lab.machines.cluster.api import (
    NODES,
    Api,
    LostError,
    Object,
    RefusedError,
    make_namespaced_path,
)
from lab.machines.cluster.obstacles import Kubectl, remarks
from lab.machines.cluster.probe_manifests import ObjectOwner
from lab.machines.cluster.probe_pods import ProbePods, node_versions
from lab.providers.provider import (
    Evidence,
    LabHandle,
    Outcome,
    Probe,
    ProbeSettings,
    ProbesInterrupted,
)
from lab.providers.workloads import WorkloadResult
from lab.shells.parallel import on_each
from lab.shells.shell import Completed
from lab.topology.intent import Intent, Obstacle
from lab.topology.observed import TOKEN, NodeVersion, ObservedPod, read_pod

if TYPE_CHECKING:
    from kubernetes import client

PODS_SECONDS = 240.0
_API_SECONDS = 30.0
_LOOK_SECONDS = 10.0
_A_SECOND = 1.0
_COMPUTING = 0.1
"""Processor seconds per exchange, generously estimated."""
_FEW_TRIES = 16
"""Connections to a Service of several backends, before those that it may be due: of three backends
chosen at random, all are seen in 199 of 200 runs."""
_LOG_LINES = 200
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_MTU = ("cat", "/sys/class/net/eth0/mtu")


@dataclass(frozen=True, slots=True)
class ApiPod:
    """One probe pod, whose commands run through the API."""

    name: str
    record: AttachedRecord

    def run(self, command: Sequence[str], deadline: Deadline) -> Completed:
        """Run a command; see :class:`lab.providers.provider.Machine`."""
        with opened_api(self.record.address, self.record.cluster.server) as api:
            done = api.execute(self.record.namespace, self.name, CONTAINER, command, deadline)
        return Completed(done.code, done.stdout, done.stderr)

    def attach(self, command: Sequence[str]) -> int:
        """Refused: a terminal is kubectl's.

        Raises UsageError with the command line.
        """
        raise UsageError(
            f"opening a shell in pod '{self.name}'",
            "this cluster is not the lab's: only its API is used",
            self.command_line(command),
        )

    def command_line(self, command: Sequence[str]) -> str:
        """The equivalent shell command."""
        words = shlex.join(command or ("sh",))
        at = f"--namespace={self.record.namespace}"
        return self.record.address.kubectl(f"{at} exec -it {self.name} -- {words}")


@dataclass(frozen=True)
class AttachedCluster:
    """One lab's pods and Services in an existing cluster."""

    lab: LabHandle
    intent: Intent
    record: AttachedRecord

    def foreseen(self) -> Intent:
        """The Intent before its pods exist: enough to name every cell."""
        return self.intent

    def require_rights(self) -> None:
        """Check that the user may make what the lab needs.

        Raises PreflightError naming the rights that are missing; also when the API server does not
        answer, or the namespace of the terms does not exist.
        """
        record = self.record
        action = f"entering the cluster of context '{record.address.context}'"
        try:
            with self._opened() as api:
                deadline = Deadline(_API_SECONDS)
                missing = [
                    review
                    for review in rights.make_reviews(record.terms, record.namespace)
                    if not api.ask("POST", _REVIEWS, deadline, dict(review.request))
                    .get("status", {})
                    .get("allowed")
                ]
                gone = record.shared and not missing and self._is_gone(api, deadline)
        except (LostError, RefusedError) as error:
            raise refused(error) from error
        if missing:
            hint = "'lab attach --rbac' prints the roles that grant them"
            if any(review.right is rights.OWN_NAMESPACE for review in missing):
                hint += "; '--namespace NAME' uses an existing namespace"
            words = ", ".join(review.words for review in missing)
            raise PreflightError(action, f"these rights are missing: {words}", hint)
        if gone:
            raise UsageError(
                action,
                f"there is no namespace '{record.namespace}'",
                "leave '--namespace' out for one of the lab's own",
            )

    def _is_gone(self, api: Api, deadline: Deadline) -> bool:
        """Whether the namespace does not exist; False if the user may not know."""
        try:
            return api.find(f"/api/v1/namespaces/{self.record.namespace}", deadline) is None
        except RefusedError:
            return False

    @contextmanager
    def _opened(self) -> Iterator[Api]:
        """The API of the cluster in which the lab's objects are."""
        with opened_api(self.record.address, self.record.cluster.server) as api:
            yield api

    def deploy(self) -> None:
        """Create the probe pods and wait for those that can run.

        Raises LabError when the API server refuses an object, or does not answer.
        """
        with self._opened() as api:
            obstacles = self._pods(api).deploy(Deadline(PODS_SECONDS), say, renew=False)
        if set(self._names()) <= obstacles.keys():
            first = next(iter(obstacles.values()))
            raise BrokenError(
                f"making the probe pods of lab '{self.lab.name}'",
                f"none of them can run: {first.sentence}",
                first.mends,
            )

    def remove(self) -> tuple[str, ...]:
        """Remove everything of the lab, and wait until it is gone. Safe to repeat.

        Raises LabError when the API server does not answer, or something stays.
        """
        with self._opened() as api:
            return self._pods(api).remove(Deadline(PODS_SECONDS))

    @contextmanager
    def probed(self, *, ready: bool = True) -> Iterator[Intent]:
        """Deploy the probe pods and yield the Intent bound to them; they remain after the block.

        Raises LabError when they cannot run, or the API server does not answer.
        """
        with self._opened() as api:
            deadline = Deadline(PODS_SECONDS)
            pods, obstacles = self._pods(api), dict[str, Obstacle]()
            observed = self._observe(api, Deadline(_LOOK_SECONDS) if not ready else deadline)
            if ready or not set(self._names()) <= {pod.name for pod in observed if pod.address}:
                obstacles |= pods.deploy(deadline, say, renew=False)
                observed = self._observe(api, deadline)
            bound = design.bind_pods(
                self.intent,
                [pod for pod in observed if pod.name not in obstacles],
                self._services(api, deadline),
                obstacles,
                self._read_mtu(api, [pod for pod in observed if pod.ready]),
            )
        yield bound

    def list_pods(self, deadline: Deadline) -> tuple[ObservedPod, ...]:
        """The lab's own pods that exist.

        Raises LabError when the API server does not answer.
        """
        with self._opened() as api:
            return self._observe(api, deadline)

    def _observe(self, api: Api, deadline: Deadline) -> tuple[ObservedPod, ...]:
        return tuple(map(read_pod, self._list(api, "pods", deadline)))

    def _services(self, api: Api, deadline: Deadline) -> dict[str, tuple[str, Mapping[int, int]]]:
        """Address, and node ports by port, of the lab's Services."""
        return {
            item["metadata"]["name"]: (
                item["spec"].get("clusterIP", ""),
                {
                    port["port"]: port["nodePort"]
                    for port in item["spec"].get("ports") or ()
                    if port.get("protocol") == "TCP" and "nodePort" in port
                },
            )
            for item in self._list(api, "services", deadline)
        }

    def _list(self, api: Api, kind: str, deadline: Deadline) -> Iterable[Object]:
        path = make_namespaced_path(kind, self.record.namespace)
        query = {"labelSelector": f"{TOKEN}={self.lab.token}"}
        listed = api.patiently(
            f"listing the {kind} of lab '{self.lab.name}'",
            lambda: api.listing(path, deadline, query),
            deadline,
        )
        return listed.objects.values()

    def _read_mtu(self, api: Api, pods: Iterable[ObservedPod]) -> int:
        """The MTU of a Linux pod's interface, in bytes; the least there is if none tells."""
        linux = {
            pod.name for each in self.intent.machines if each.os == "linux" for pod in each.pods
        }
        for pod in [pod for pod in pods if pod.name in linux][:1]:
            with suppress(LabError, ValueError):
                deadline = Deadline(_LOOK_SECONDS)
                done = api.execute(self.record.namespace, pod.name, CONTAINER, _MTU, deadline)
                return max(design.LEAST_MTU, int(done.stdout))
        return design.LEAST_MTU

    def _names(self) -> Iterator[str]:
        for machine in self.intent.machines:
            yield from (pod.name for pod in machine.pods if pod.role == "probe")

    def workloads(self) -> tuple[WorkloadResult, ...]:
        """None: they mount disks of nodes, and restricted pods may not."""
        return ()

    def import_images(self, archive: object, systems: object) -> tuple[str, ...]:
        """Refused.

        Raises UsageError: the nodes are not the lab's.
        """
        del systems
        raise UsageError(
            f"loading '{archive}' on the nodes of lab '{self.lab.name}'",
            "the nodes of an existing cluster are not the lab's",
            "push the image to a registry of the cluster",
        )

    def remarks(self) -> tuple[tuple[str, str], ...]:
        """Nodes with what keeps new pods away from them.

        Raises LabError when the API server does not answer.
        """
        own = {machine.name for machine in self.intent.machines}
        with self._opened() as api:
            nodes = api.listing(NODES, Deadline(_LOOK_SECONDS)).objects
            return tuple(pair for pair in remarks(nodes) if pair[0] in own)

    def versions(self) -> tuple[NodeVersion, ...]:
        """The versions that the nodes report.

        Raises LabError when the API server does not answer.
        """
        own = {machine.name for machine in self.intent.machines}
        with self._opened() as api:
            every = node_versions(api, Deadline(_API_SECONDS))
        return tuple(version for version in every if version.node in own)

    @contextmanager
    def client(self) -> Iterator[client.ApiClient]:
        """An API client with the user's own rights, for the ``with`` block."""
        with self._opened() as api:
            yield api.client

    def probe(
        self,
        bound: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        """Run every probe by the pods themselves; all nodes at once, each at the allowed rate."""
        places = {name: machine.name for name, (machine, _) in bound.places().items()}
        by_node: dict[str, list[Probe]] = {}
        for probe in probes:
            by_node.setdefault(places[probe.source], []).append(replace(probe, dialect="netexec"))
        hosts = {machine.name: design.host_pod(machine) for machine in bound.machines}
        backends = count_backends(bound)
        finished: dict[int, Outcome] = {}

        def send(api: Api, node: str, own: Sequence[Probe]) -> None:
            prober = ExecProber(api, node, self.record.namespace, (hosts[node], HOST_PORT))
            left = len(own)
            for batch in batches(own, settings, self.record.terms.rate):
                pace = Deadline(_A_SECOND)
                if node == design.HERE:
                    finished.update(probe_from_here(batch, settings))
                else:
                    deadline = Deadline(settings.longest(batch, _COMPUTING))
                    finished.update(prober.probe(batch, settings, lambda _: None, deadline))
                progress(len(finished))
                left -= len(batch)
                if left:
                    time.sleep(pace.left())

        def of_node(node: str) -> None:
            own = by_node[node]
            few = [replace(probe, tries=min(probe.tries, _FEW_TRIES)) for probe in own]
            try:
                with self._opened() as api:
                    send(api, node, few)
                    send(api, node, [*find_unseen(own, finished, backends)])
            except LabError as error:
                why = f"cannot probe: {error.doing}: {error.happened}"
                finished.update(
                    (probe.key, Outcome.failed(probe.key, "error", why))
                    for probe in own
                    if probe.key not in finished
                )

        try:
            on_each(by_node, of_node)
        except KeyboardInterrupt as stop:
            raise ProbesInterrupted(dict(finished)) from stop
        return finished

    def state(self, deadline: Deadline) -> ApiState:
        """The objects of the API that say what is wrong; those that may be read.

        Raises LabError when the API server does not answer.
        """
        space, dns = self.record.namespace, self.record.cluster.dns
        refusals: list[tuple[str, str]] = []
        with self._opened() as api:

            def read(name: str, path: str) -> tuple[Object, ...] | None:
                try:
                    return tuple(api.ask("GET", path, deadline).get("items") or ())
                except RefusedError as error:
                    refusals.append((name, error.happened))
                    return None

            pods = read("pods of the whole cluster", "/api/v1/pods")
            if pods is None:
                pods = read(f"pods in {space}", make_namespaced_path("pods", space))
            slices = "endpointslices"
            state = ApiState(
                nodes=read("nodes", NODES),
                pods=pods,
                services=read(f"Services in {space}", make_namespaced_path("services", space)),
                slices=read(f"EndpointSlices in {space}", make_namespaced_path(slices, space)),
                dns_slices=read(
                    f"EndpointSlices in {dns.namespace}",
                    make_namespaced_path(slices, dns.namespace),
                )
                if dns
                else None,
                policies=read(
                    f"NetworkPolicies in {space}", make_namespaced_path("networkpolicies", space)
                ),
            )
        return replace(state, refusals=tuple(refusals))

    def read_nodes(self, deadline: Deadline) -> Mapping[str, State | LabError]:
        """The whole state of each Linux node, by its debug pod, or why there is none."""
        pods = {
            machine.name: name
            for machine in self.intent.machines
            if (name := design.debug_pod(machine))
        }
        states: dict[str, State | LabError] = {}

        def read(node: str) -> None:
            command, script = (*ENTER, "sh", "-s"), STATE_COMMAND[-1].encode()
            try:
                with self._opened() as api:
                    done = api.execute(
                        self.record.namespace, pods[node], CONTAINER, command, deadline, script
                    )
                states[node] = read_state(done.stdout, done.stderr)
            except LabError as error:
                states[node] = error

        on_each(pods, read)
        return {name: states[name] for name in pods}

    def logs(self, nodes: Iterable[str], deadline: Deadline) -> Iterator[Evidence]:
        """The end of the logs of kube-proxy, CNI and DNS on nodes. Never raises."""
        wanted, dns = {*nodes}, self.record.cluster.dns
        servers = {name for name, *_ in dns.pods} if dns else set()
        try:
            with self._opened() as api:
                for pod in api.ask("GET", "/api/v1/pods", deadline).get("items") or ():
                    name, node = pod["metadata"]["name"], (pod.get("spec") or {}).get("nodeName")
                    owners = pod["metadata"].get("ownerReferences") or ()
                    of_network = any(is_network_daemon(owner["name"]) for owner in owners)
                    if node in wanted and (of_network or name in servers):
                        yield Evidence(f"{node}/{name}.log", self._log(api, pod, deadline))
        except LabError as error:
            yield Evidence("api/missing", f"{error}\n".encode())

    def _log(self, api: Api, pod: Object, deadline: Deadline) -> bytes:
        space, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        container = pod["spec"]["containers"][0]["name"]
        query = {"container": container, "tailLines": str(_LOG_LINES)}
        path = f"{make_namespaced_path('pods', space)}/{name}/log"
        try:
            return api.text(path, deadline, query).encode()
        except (LostError, RefusedError, DeadlineError) as error:
            return f"{error}\n".encode()

    def _pods(self, api: Api) -> ProbePods:
        owner = ObjectOwner(self.lab.name, self.lab.token)
        image = self.record.terms.pulled
        wanted = make_objects(self.record, self.intent, owner)
        images = {"linux": image, "windows": image}
        return ProbePods(
            api,
            self.intent,
            owner,
            images,  # type: ignore[arg-type]
            wanted,
            shared=self.record.shared,
            kubectl=Kubectl(self.record.address.kubectl, own=False),
        )


def probe_from_here(probes: Sequence[Probe], settings: ProbeSettings) -> Mapping[int, Outcome]:
    """Send probes from this machine."""
    from lab.providers.netns import prober  # noqa: PLC0415  only for '--from-here'

    return prober.probe(lambda _: None, probes, settings, lambda _: None)


def count_backends(intent: Intent) -> dict[str, int]:
    """How many backends the Service at each address has."""
    return {
        service.address: len(service.backends)
        for machine in intent.machines
        if machine.translation
        for service in machine.translation.services
    }


def find_unseen(
    probes: Iterable[Probe], outcomes: Mapping[int, Outcome], backends: Mapping[str, int]
) -> Iterator[Probe]:
    """The probes that may make more tries, and have not seen every backend in the first few."""
    for probe in probes:
        outcome = outcomes[probe.key]
        seen_all = len(outcome.backends) >= backends.get(probe.address, 1)
        if probe.tries > _FEW_TRIES and outcome.status == "ok" and not seen_all:
            yield probe


def batches(
    probes: Sequence[Probe], settings: ProbeSettings, rate: int
) -> Iterator[tuple[Probe, ...]]:
    """The probes of one node in parts of at most ``rate`` connections, every source in each."""
    by_source: dict[str, list[Probe]] = {}
    for probe in probes:
        by_source.setdefault(probe.source, []).append(probe)
    in_turn = (probe for each in zip_longest(*by_source.values()) for probe in each if probe)
    batch: list[Probe] = []
    connections = 0
    for probe in in_turn:
        cost = len(plan_transfers(probe, settings)) * probe.tries
        if batch and connections + cost > rate:
            yield tuple(batch)
            batch, connections = [], 0
        batch.append(probe)
        connections += cost
    if batch:
        yield tuple(batch)
