"""Creates a lab's objects, and finds out why its pods do not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.machines.cluster import obstacles
from lab.machines.cluster.api import (
    NODES,
    Api,
    ForeignError,
    LostError,
    Object,
    RefusedError,
    make_namespaced_path,
)
from lab.machines.cluster.obstacles import Kubectl
from lab.machines.cluster.probe_manifests import node_of
from lab.topology.intent import Obstacle
from lab.topology.observed import NAMESPACE, ready_endpoints

_TRIES = (3.0, 12.0, 30.0)
"""Seconds until the webhooks of an API server that reports an internal error are looked at; the
second time one that hangs has been given up (``timeoutSeconds`` is 10 by default), and a busy
server may answer the third time.
"""
_INTERNAL = 500
_LOOK_SECONDS = 5.0
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_CONFIGURATIONS = {
    "MutatingWebhookConfiguration": f"{_WEBHOOKS}/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": f"{_WEBHOOKS}/validatingwebhookconfigurations",
}
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


@dataclass(frozen=True, slots=True)
class PodPatience:
    """How long pods may take until a scheduler has looked at them, and until they start."""

    looked_at: Deadline
    started: Deadline

    @classmethod
    def of(cls, deadline: Deadline) -> PodPatience:
        """The parts of a deadline: 10 and 30 s of 240 s."""
        return cls(Deadline(deadline.left() / 24), Deadline(deadline.left() / 8))


class PodCreation:
    """The pods of one namespace, from the first request until they run or cannot."""

    def __init__(
        self,
        api: Api,
        namespace: str = NAMESPACE,
        kubectl: Kubectl = obstacles.on_control_plane,
    ) -> None:
        self._api = api
        self._space = namespace
        self._kubectl = kubectl
        self._refused: dict[int, Obstacle] = {}
        """Why the API server refuses pods, by status: the same reason is one obstacle."""
        self._failing: Obstacle | None = None
        """The webhook that fails, once it is known: what it lets in is not asked for again."""

    def create(self, path: str, wanted: Object, deadline: Deadline) -> Obstacle | None:
        """Create an object as :meth:`Api.create_or_replace` does; what prevents it, or None.

        Raises DeadlineError when the API server does not answer in time.
        """
        resource = path.rpartition("/")[2]
        parts = (Deadline(min(seconds, deadline.left())) for seconds in _TRIES)
        retry = False
        try:
            for part in chain(parts, (deadline,)):
                if self._failing:
                    break
                try:
                    self._api.create_or_replace(path, wanted, part, retry=retry)
                except DeadlineError as error:
                    retry = True
                    cause = error.__cause__
                    if isinstance(cause, LostError) and cause.code == _INTERNAL:
                        self._failing = self._webhook(resource, wanted)
                    if part is deadline and self._failing is None:
                        raise
                else:
                    return None
        except ForeignError:
            name = wanted["metadata"]["name"]
            return obstacles.make_foreign(wanted["kind"], name, self._space, self._kubectl)
        except RefusedError as error:
            if error.code not in self._refused:
                why = obstacles.make_refusal(error.happened, self._space, self._kubectl)
                self._refused[error.code] = (resource == "pods" and self._quota()) or why
            return self._refused[error.code]
        return self._failing

    def require(self, path: str, wanted: Object, deadline: Deadline) -> None:
        """Create an object.

        Raises BrokenError with what prevents it; DeadlineError as :meth:`create`.
        """
        if obstacle := self.create(path, wanted, deadline):
            action = f"making {wanted['kind']} '{wanted['metadata']['name']}'"
            raise BrokenError(action, obstacle.sentence, obstacle.mends)

    def _quota(self) -> Obstacle | None:
        return obstacles.refusing_quota(
            self._listing(make_namespaced_path("resourcequotas", self._space)),
            self._space,
            self._kubectl,
        )

    def _webhook(self, resource: str, wanted: Object) -> Obstacle | None:
        """The webhook that fails; None if there is none, or the API server does not answer."""
        configurations = (
            (kind, webhook)
            for kind, path in _CONFIGURATIONS.items()
            for webhook in self._listing(path).values()
        )
        space = self._listing("/api/v1/namespaces").get(self._space) or {"metadata": {}}
        labels = {"kubernetes.io/metadata.name": self._space} | (
            space["metadata"].get("labels") or {}
        )
        own = wanted["metadata"].get("labels") or {}
        matching = list(obstacles.matching_webhooks(configurations, resource, own, labels))
        services = {
            service for *_, webhook in matching if (service := obstacles.service_of(webhook))
        }
        ready = {
            (space, name): len(
                ready_endpoints(
                    self._listing(make_namespaced_path("endpointslices", space)).values()
                ).get(name, ())
            )
            for space, name in services
        }
        return obstacles.failing_webhook(matching, ready, self._kubectl)

    def find_obstacles(
        self,
        pods: Mapping[str, Object],
        wanted: Mapping[str, Object],
        patience: PodPatience | None,
    ) -> dict[str, Obstacle]:
        """Why pods do not run, by pod: those without an address that will not run by themselves.

        ``pods``: those that exist. ``wanted``: the manifest of each pod. ``patience``: how long to
        wait for obstacles that may pass; None after the wait, when every pod without an address
        counts.
        """
        obstacles_by_name: dict[str, Obstacle] = {}
        for name, manifest in wanted.items():
            pod = pods.get(name) or {}
            has_address = (pod.get("status") or {}).get("podIP")
            if not has_address and (pod or patience is None):
                obstacle = self._obstacle(name, pod, manifest["spec"], patience)
                obstacles_by_name |= {name: obstacle} if obstacle else {}
        return obstacles_by_name

    def _obstacle(
        self, name: str, pod: Object, spec: Object, patience: PodPatience | None
    ) -> Obstacle | None:
        node = node_of(spec)
        if obstacles.is_unscheduled(pod):
            closed = obstacles.closed_node(
                node, self._listing(NODES).get(node), spec["tolerations"], self._kubectl
            )
            if closed:
                return closed
        elif pod and obstacles.waits_for_scheduler(pod):
            if patience is None or not patience.looked_at.left():
                return obstacles.no_scheduler(self._kubectl)
            return obstacles.stopped_scheduler(self._listing(_LEASES), self._kubectl)
        if patience is not None and patience.started.left():
            return None
        events = self._events(pod) if pod else ()
        why = [*obstacles.reasons(pod, self._listing(NODES).get(node), events)]
        if why or patience is None:
            return obstacles.make_waiting_pod(name, node, why, self._space, self._kubectl)
        return None

    def _events(self, pod: Object) -> Iterable[Object]:
        query = {"fieldSelector": f"involvedObject.uid={pod['metadata']['uid']}"}
        return self._listing(make_namespaced_path("events", self._space), query).values()

    def _listing(self, path: str, query: Mapping[str, str] | None = None) -> Mapping[str, Object]:
        """The objects of a path; none if the API server does not answer now."""
        with suppress(LostError, RefusedError):
            return self._api.listing(path, Deadline(_LOOK_SECONDS), query).objects
        return {}
