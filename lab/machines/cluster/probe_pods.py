"""A lab's own pods on its cluster: creates, observes and removes probe pods and workload checks."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError
from lab._log import quantity
from lab.machines.cluster.api import (
    NODES,
    Api,
    Missing,
    Object,
    Objects,
    Query,
    RefusedError,
    make_namespaced_path,
    wait_for,
)
from lab.machines.cluster.obstacles import Kubectl, on_control_plane
from lab.machines.cluster.pod_creation import PodCreation, PodPatience
from lab.machines.cluster.probe_manifests import Manifests, ObjectOwner, backends, manifests
from lab.machines.cluster.workload_checks import (
    ENVIRONMENT,
    Values,
    has_ended,
    judge,
    pod,
    pod_name,
    sources,
    unmade,
)
from lab.providers.workloads import WorkloadResult, nodes
from lab.scenario.terms import Os
from lab.topology.bind import bind
from lab.topology.intent import Intent, MachineIntent, Obstacle
from lab.topology.observed import (
    DNS_NAMESPACE,
    DNS_SELECTOR,
    LAB,
    NAMESPACE,
    TOKEN,
    ClusterObserved,
    NodeVersion,
    ObservedPod,
    PodLink,
    read_node,
    read_pod,
    read_service,
    read_version,
    ready_endpoints,
)

_NAMESPACES = "/api/v1/namespaces"
_PODS = make_namespaced_path("pods", NAMESPACE)
_LOOK_SECONDS = 5.0
_PODS_SECONDS = 4.0
_FEW = 3
"""How many missing items a message names."""
_SOON = 8
"""The part of the time within which pods that run already are ready: half a minute of four."""
_CONTROLLERS = "check that kube-controller-manager runs"


class ProbePods:
    """What the matrix needs from a cluster besides the cluster itself.

    ``wanted``: its objects, all in one namespace; by default those of :func:`manifests`.
    ``shared``: whether that namespace is somebody else's and stays. ``kubectl``: makes the command
    lines of messages.
    """

    def __init__(  # noqa: PLR0913  whose they are, and where
        self,
        api: Api,
        intent: Intent,
        owner: ObjectOwner,
        images: Mapping[Os, str],
        wanted: Manifests | None = None,
        *,
        shared: bool = False,
        kubectl: Kubectl = on_control_plane,
    ) -> None:
        self._api = api
        self._intent = intent
        self._owner = owner
        self._wanted = wanted or manifests(intent, owner, images)
        self._shared = shared
        self._space = str(self._wanted.namespace["metadata"]["name"])
        self._own = f"{_NAMESPACES}/{self._space}"
        self._kubectl = kubectl
        self._creation = PodCreation(api, self._space, kubectl)
        self._marked = {"labelSelector": f"{TOKEN}={owner.token}"}

    def deploy(
        self,
        deadline: Deadline,
        say: Callable[[str], None] = lambda _: None,
        *,
        renew: bool = True,
    ) -> Mapping[str, Obstacle]:
        """Create pods and Services and wait until all are ready; keep what already is.

        Leftovers of a run that was killed are removed first. Without ``renew``, pods and Services
        that somebody changed stay as they are, pods that cannot run are not waited for and
        returned with the reason, and if none had to be created, what is not ready soon is not
        waited for: the matrix shows it.

        Raises DeadlineError with what is missing and why; BrokenError when the API server rejects
        an object, with the reason, or the namespace belongs to another lab or cannot be removed.
        """
        wanted = self._wanted
        obstacles: dict[str, Obstacle] = {}
        if not self._shared:
            self._clear_leftovers(deadline, say)
            self._make(_NAMESPACES, [wanted.namespace], deadline)
        new = self._make(self._path("services"), wanted.services, deadline, renew=renew)
        self._wait(  # a pod is refused before its service account exists
            "serviceaccounts",
            lambda accounts: (
                "" if "default" in accounts else "there is no service account 'default'"
            ),
            f"waiting for namespace '{self._space}'",
            deadline,
            _CONTROLLERS,
        )
        new |= self._make(
            self._path("pods"),
            wanted.pods,
            deadline,
            renew=renew,
            refused=None if renew else obstacles,
        )
        if not renew and not new:
            deadline = Deadline(deadline.left() / _SOON)
        try:
            self._await_ready(deadline, obstacles, wait_for_all=renew)
        except DeadlineError as error:
            if renew:
                raise
            say(f"{error.happened}; cells are judged anyway")
            pods = self._list(self._path("pods"), Deadline(_LOOK_SECONDS), None)
            obstacles = {**self._obstacles(pods, None), **obstacles}
        for line in list_obstacles(obstacles):
            say(line)
        return obstacles

    def _obstacles(self, pods: Objects, patience: PodPatience | None) -> dict[str, Obstacle]:
        wanted = {pod["metadata"]["name"]: pod for pod in self._wanted.pods}
        return self._creation.find_obstacles(pods, wanted, patience)

    def _await_ready(
        self, deadline: Deadline, obstacles: dict[str, Obstacle], *, wait_for_all: bool
    ) -> None:
        """Wait for pods and backends; those that cannot run are added to ``obstacles``."""
        lab, wanted = self._owner.lab, self._wanted
        names = [pod["metadata"]["name"] for pod in wanted.pods]
        patience = PodPatience.of(deadline)

        def missing(pods: Objects) -> str:
            if not wait_for_all:
                obstacles.update(self._obstacles(pods, patience))
            return _not_ready([name for name in names if name not in obstacles], pods)

        self._wait(
            "pods",
            missing,
            f"waiting for the {len(names)} probe pods of lab '{lab}'",
            deadline,
            self._kubectl(f"--namespace={self._space} describe pods"),
        )
        expected = {name: ends - obstacles.keys() for name, ends in backends(self._intent).items()}
        self._wait(
            "endpointslices",
            lambda slices: _no_backends(expected, slices),
            f"waiting for the backends of {len(expected)} Services of lab '{lab}'",
            deadline,
            _CONTROLLERS,
        )

    def observe(
        self,
        deadline: Deadline,
        links: Iterable[PodLink] = (),
        obstacles: Mapping[str, Obstacle] = MappingProxyType({}),
    ) -> ClusterObserved:
        """The cluster's state from the API; ``links`` comes from the agents on the nodes.

        ``obstacles``: why pods cannot run.

        Raises DeadlineError when the API server stays unreachable.
        """
        of_dns = {"labelSelector": DNS_SELECTOR}
        pods, dns, services, nodes = (
            self._list(path, deadline, query).values()
            for path, query in (
                (self._path("pods"), self._marked),
                (make_namespaced_path("pods", DNS_NAMESPACE), of_dns),
                (self._path("services"), self._marked),
                (NODES, None),
            )
        )
        return ClusterObserved(
            pods=(
                *(state for state in map(read_pod, pods) if state.name not in obstacles),
                *(
                    ObservedPod(name, None, None, "Pending", False, "", obstacle)
                    for name, obstacle in obstacles.items()
                ),
            ),
            dns=tuple(
                read_pod(item) for item in dns if not item["metadata"].get("deletionTimestamp")
            ),
            services=tuple(map(read_service, services)),
            nodes=tuple(map(read_node, nodes)),
            links=tuple(links),
        )

    def have_addresses(self, deadline: Deadline) -> bool:
        """Whether every probe pod, ready or not, has an address.

        Raises DeadlineError when the API server stays unreachable.
        """
        names = {state.name for state in self.observe(deadline).pods if state.address}
        return all(item["metadata"]["name"] in names for item in self._wanted.pods)

    def bound(self, deadline: Deadline, links: Iterable[PodLink] = ()) -> Intent:
        """The Intent completed with everything that is known only at run time.

        Raises BrokenError when the cluster contradicts the Intent.
        """
        return bind(self._intent, self.observe(deadline, links))

    def remove(self, deadline: Deadline) -> tuple[str, ...]:
        """Remove everything, wait until it is gone, and return what there was. Safe to repeat.

        Raises DeadlineError naming the finalizers that hold the namespace.
        """
        if self._shared:
            return tuple(self._remove_labelled(deadline))
        if self._namespace(deadline) is None:
            return ()
        self._remove_namespace(deadline)
        return (f"namespace {self._space}",)

    def _remove_labelled(self, deadline: Deadline) -> Iterator[str]:
        """Remove what is the lab's in a namespace that stays, and wait until it is gone."""
        for kind in ("pods", "services"):
            for name, item in self._list(self._path(kind), deadline, self._marked).items():
                uid = item["metadata"].get("uid", "")
                self._api.remove(f"{self._path(kind)}/{name}", deadline, uid=uid)
                yield f"{kind.removesuffix('s')} {self._space}/{name}"
            wait_for(
                self._api,
                self._path(kind),
                lambda left: _list_few([f"'{name}' is left" for name in left]),
                f"removing the {kind} of lab '{self._owner.lab}'",
                deadline,
                query=self._marked,
            )

    def _path(self, kind: str) -> str:
        return make_namespaced_path(kind, self._space)

    def _namespace(self, deadline: Deadline) -> Object | None:
        """The namespace, or None.

        Raises BrokenError when it belongs to someone else.
        """
        action = f"looking for namespace '{self._space}'"
        namespace = self._api.patiently(
            action, lambda: self._api.find(self._own, deadline), deadline
        )
        if namespace is None:
            return None
        lab = (namespace["metadata"].get("labels") or {}).get(LAB)
        if lab != self._owner.lab:
            whose = f"belongs to lab '{lab}'" if lab else "was not made by hybridlab"
            raise BrokenError(
                f"looking for namespace '{self._space}' of lab '{self._owner.lab}'",
                f"it exists, and it {whose}",
                self._kubectl(f"get namespace {self._space} --show-labels"),
            )
        return namespace

    def _clear_leftovers(self, deadline: Deadline, say: Callable[[str], None]) -> None:
        namespace = self._namespace(deadline)
        if namespace is None:
            return
        if namespace["metadata"].get("deletionTimestamp"):
            say(f"namespace '{self._space}' of an earlier run is being deleted; waiting for it")
        elif namespace["metadata"]["labels"].get(TOKEN) == self._owner.token:
            return
        else:
            say(f"removing namespace '{self._space}' of an earlier run")
        self._remove_namespace(deadline)

    def _remove_namespace(self, deadline: Deadline) -> None:
        action = f"removing namespace '{self._space}'"

        def remove() -> None:
            try:
                self._api.remove(self._own, deadline)
            except RefusedError as error:
                if error.code != 409:  # noqa: PLR2004  it is being deleted already
                    raise

        self._api.patiently(action, remove, deadline)
        self._remove_pods(Deadline(min(_PODS_SECONDS, deadline.left())))
        hint = self._kubectl(f"get namespace {self._space} -o yaml")
        query = {"fieldSelector": f"metadata.name={self._space}"}
        try:
            wait_for(
                self._api,
                _NAMESPACES,
                partial(_what_holds, self._space),
                action,
                deadline,
                query=query,
                hint=hint,
            )
        except DeadlineError as error:
            raise DeadlineError(action, "; ".join((error.happened, *self._left())), hint) from None

    def _remove_pods(self, deadline: Deadline) -> None:
        """Remove as many of the namespace's pods as the time allows; the namespace takes the rest.

        Kubernetes waits for five seconds before it empties a namespace. If pods are left then, it
        looks again only after another second or more.
        """
        with suppress(BrokenError):
            for name in self._api.listing(self._path("pods"), deadline, self._marked).objects:
                self._api.remove(f"{self._path('pods')}/{name}", deadline)

    def _left(self) -> tuple[str, ...]:
        """What is still in the namespace, and its finalizers.

        The namespace's own conditions do not say so while pods remain (Kubernetes 1.36).
        """
        leftovers: list[tuple[bool, str]] = []
        for kind in ("pods", "services"):
            with suppress(BrokenError):  # only improves the message
                listing = self._api.listing(self._path(kind), Deadline(_LOOK_SECONDS))
                for name, item in listing.objects.items():
                    held = ", ".join(item["metadata"].get("finalizers") or ())
                    sentence = f"{item['kind']} '{name}' is left, with finalizers: {held or 'none'}"
                    leftovers.append((not held, sentence))
        return tuple(line for _, line in sorted(leftovers)[:_FEW])

    def _list(self, path: str, deadline: Deadline, query: Query | None) -> Objects:
        action = f"listing {path} for lab '{self._owner.lab}'"
        return self._api.patiently(
            action, lambda: self._api.listing(path, deadline, query).objects, deadline
        )

    def _make(
        self,
        path: str,
        wanted: Iterable[Object],
        deadline: Deadline,
        *,
        renew: bool = True,
        refused: dict[str, Obstacle] | None = None,
    ) -> bool:
        """Create each object that is missing or, with ``renew``, differs; whether any was.

        What prevents one is added to ``refused``, by name, or raised if that is None.
        """
        existing = self._list(path, deadline, self._marked)
        new = False
        for manifest in wanted:
            name = manifest["metadata"]["name"]
            current = existing.get(name)
            going = current is not None and current["metadata"].get("deletionTimestamp")
            if current is not None and (_is_same(manifest, current) or not (renew or going)):
                continue
            if current is not None:  # its address and ports are taken until it is gone
                uid = current["metadata"].get("uid", "")
                self._api.remove(f"{path}/{name}", deadline, uid=uid)
            new = True
            if refused is None:
                self._creation.require(path, manifest, deadline)
            elif obstacle := self._creation.create(path, manifest, deadline):
                refused[name] = obstacle
        return new

    def _wait(
        self, kind: str, missing: Missing, action: str, deadline: Deadline, hint: str
    ) -> None:
        wait_for(self._api, self._path(kind), missing, action, deadline, hint=hint)


def list_obstacles(obstacles: Mapping[str, Obstacle]) -> Iterator[str]:
    """A line for each of the first obstacles of pods, and one for the others."""
    pods = Counter(obstacles.values())
    for obstacle in [*pods][:_FEW]:
        yield f"{quantity(pods[obstacle], 'probe pod')} cannot run: {obstacle.sentence}"
    if others := sum([*pods.values()][_FEW:]):
        yield f"{quantity(others, 'more probe pod')} cannot run: each red cell says why"


def _is_same(wanted: Object, current: Object) -> bool:
    """Whether the object found was made from the same manifest and is not being deleted."""
    if current["metadata"].get("deletionTimestamp"):
        return False
    return _holds(wanted["metadata"]["labels"], current["metadata"].get("labels") or {}) and (
        "spec" not in wanted or _holds(_essence(wanted), _essence(current))
    )


def _essence(resource: Object) -> Object:
    """The parts of a manifest that a comparison may use: the API server fills in the rest."""
    spec = resource["spec"]
    if resource.get("kind") == "Service":
        kept = ("type", "clusterIP", "selector", "sessionAffinity", "sessionAffinityConfig")
        policies = ("internalTrafficPolicy", "externalTrafficPolicy", "healthCheckNodePort")
        return {key: spec[key] for key in (*kept, *policies) if key in spec}
    return {
        "nodeSelector": spec.get("nodeSelector"),
        "images": [container["image"] for container in spec["containers"]],
        "commands": [container.get("command") for container in spec["containers"]],
    }


def _holds(wanted: Mapping[str, object], actual: Mapping[str, object]) -> bool:
    return all(actual.get(key) == value for key, value in wanted.items())


def _what_holds(name: str, namespaces: Objects) -> str:
    """Why a namespace is still there: its finalizers, and what its controller reports."""
    if name not in namespaces:
        return ""
    namespace = namespaces[name]
    names = [
        *(namespace.get("spec", {}).get("finalizers") or ()),
        *(namespace["metadata"].get("finalizers") or ()),
    ]
    conditions = [
        str(condition.get("message", ""))
        for condition in namespace.get("status", {}).get("conditions") or ()
        if condition.get("status") == "True" and condition.get("message")
    ]
    phase = namespace.get("status", {}).get("phase", "Active")
    listed = ", ".join(names) or "none"
    return "; ".join((f"it is {phase}, with finalizers: {listed}", *conditions))


def _not_ready(names: Sequence[str], pods: Objects) -> str:
    lacking = []
    for name in names:
        if name not in pods:
            lacking.append(f"pod '{name}' does not exist")
            continue
        pod = read_pod(pods[name])
        if not pod.ready:
            where = f" on '{pod.node}'" if pod.node else ""
            why = f" ({pod.trouble})" if pod.trouble else ""
            lacking.append(f"pod '{name}' is {pod.phase}{where}{why}")
    return _list_few(lacking)


def _no_backends(expected: Mapping[str, frozenset[str]], slices: Objects) -> str:
    ready = ready_endpoints(slices.values())
    lacking = []
    for name, pods in expected.items():
        actual = ready.get(name, frozenset())
        if actual != pods:
            has = ", ".join(sorted(actual)) or "none"
            lacking.append(f"Service '{name}' has backends {has}, not {', '.join(sorted(pods))}")
    return _list_few(lacking)


def _list_few(lacking: Sequence[str]) -> str:
    more = f"; and {len(lacking) - _FEW} more" if len(lacking) > _FEW else ""
    return "; ".join(lacking[:_FEW]) + more


_CLEAN_SECONDS = 15.0


class Workloads:
    """The checks that run on every node; see :mod:`lab.machines.cluster.workload_checks`."""

    def __init__(
        self, api: Api, intent: Intent, owner: ObjectOwner, images: Mapping[Os, str]
    ) -> None:
        self._api = api
        self._creation = PodCreation(api)
        self._nodes = nodes(intent)
        self._owner = owner
        self._images = images

    def run(self, deadline: Deadline) -> tuple[WorkloadResult, ...]:
        """Run every check in the existing namespace and remove its objects. Never raises.

        All checks of a node whose pod does not end in time are ``probe-error``.
        """
        values = Values(secrets.token_hex(8), secrets.token_hex(8))
        try:
            refused = self._deploy(values, deadline)
            results_by_machine = self._await(deadline, refused)
            return tuple(
                result
                for machine in self._nodes
                for result in self._judged(
                    machine, results_by_machine[machine.name], values, deadline
                )
            )
        except LabError as error:
            why = f"{error.doing}: {error.happened}"
            return tuple(result for machine in self._nodes for result in unmade(machine, why))
        finally:
            self._remove()

    def _deploy(self, values: Values, deadline: Deadline) -> dict[str, Obstacle]:
        """Create the objects; those of a killed run hold other values and are removed first.

        Returns why pods are refused, by name.
        """
        refused: dict[str, Obstacle] = {}
        made = zip(("secrets", "configmaps"), sources(self._owner, values), strict=True)
        for kind, manifest in (*made, *(("pods", item) for item in self._pods().values())):
            path = make_namespaced_path(kind, NAMESPACE)
            name = f"{path}/{manifest['metadata']['name']}"
            self._api.patiently(
                f"removing {name}", partial(self._api.remove, name, deadline), deadline
            )
            if kind != "pods":
                self._creation.require(path, manifest, deadline)
            elif obstacle := self._creation.create(path, manifest, deadline):
                refused[manifest["metadata"]["name"]] = obstacle
        return refused

    def _pods(self) -> dict[str, Object]:
        """The manifests of the checks' pods, by name."""
        made = (pod(machine, self._owner, self._images) for machine in self._nodes)
        return {manifest["metadata"]["name"]: manifest for manifest in made}

    def _await(self, deadline: Deadline, obstacles: dict[str, Obstacle]) -> dict[str, Object | str]:
        """Each node's pod once it has ended, or a text that says what the pod waits for.

        ``obstacles``: why pods are refused; why others cannot run is added.
        """
        names = {machine.name: pod_name(machine.name) for machine in self._nodes}
        wanted, patience = self._pods(), PodPatience.of(deadline)
        pods_seen: dict[str, Object] = {}

        def missing(pods: Objects) -> str:
            pods_seen.clear()
            pods_seen.update(pods)
            obstacles.update(self._creation.find_obstacles(pods, wanted, patience))
            late = [
                name for name in names.values() if name not in pods or not has_ended(pods[name])
            ]
            return ", ".join(name for name in late if name not in obstacles)

        with suppress(BrokenError):  # late pods are looked at below
            wait_for(self._api, _PODS, missing, "waiting for the workload checks", deadline)
        return {
            node: obstacles[name].sentence
            if name in obstacles
            else _ended_or_why(pods_seen.get(name))
            for node, name in names.items()
        }

    def _judged(
        self, machine: MachineIntent, created: Object | str, values: Values, deadline: Deadline
    ) -> tuple[WorkloadResult, ...]:
        if isinstance(created, str):
            return unmade(machine, created)
        path = f"{_PODS}/{pod_name(machine.name)}/log"
        summary: Mapping[str, Any] | str
        try:
            log = self._api.text(path, deadline, {"container": ENVIRONMENT})
            try:
                summary = self._api.ask(
                    "GET", f"{NODES}/{machine.name}/proxy/stats/summary", deadline
                )
            except RefusedError as error:
                summary = f"the kubelet reports no metrics: {error.happened}"
        except LabError as error:
            return unmade(machine, f"{error.doing}: {error.happened}")
        return judge(machine, created, log, values, summary)

    def _remove(self) -> None:
        deadline = Deadline(_CLEAN_SECONDS)
        paths = [f"{_PODS}/{pod_name(node.name)}" for node in self._nodes]
        paths += [
            f"{make_namespaced_path(kind, NAMESPACE)}/workload"
            for kind in ("secrets", "configmaps")
        ]
        for path in paths:
            with suppress(LabError):  # deleting the namespace removes what is left
                self._api.remove(path, deadline)


def _ended_or_why(created: Object | None) -> Object | str:
    if created is None:
        return "its pod was never created"
    if has_ended(created):
        return created
    state = read_pod(created)
    return f"pod '{state.name}' is {state.phase}" + (f": {state.trouble}" if state.trouble else "")


def node_versions(api: Api, deadline: Deadline) -> tuple[NodeVersion, ...]:
    """The versions that every node reports, in the order of names.

    Raises DeadlineError when the API server stays unreachable.
    """
    listed = api.patiently(
        "reading the nodes' versions", lambda: api.listing(NODES, deadline), deadline
    )
    return tuple(read_version(node) for _, node in sorted(listed.objects.items()))
