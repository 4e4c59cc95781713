"""Probe pods that cannot run, on a real API server: the others are deployed, and it says why."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from api_names import SECONDS

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.machines.cluster import pod_creation
from lab.machines.cluster.api import MERGE, Api, LostError, Object, ObjectList
from lab.machines.cluster.pod_creation import PodCreation
from lab.machines.cluster.probe_pods import ProbePods
from lab.topology.bind import bind
from lab.topology.observed import NAMESPACE

pytestmark = pytest.mark.slow

OWN = f"/api/v1/namespaces/{NAMESPACE}"
POD = "worker1-p1"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


@contextmanager
def made(api: Api, path: str, wanted: Object) -> Iterator[None]:
    """An object for a block."""
    api.ask("POST", path, Deadline(SECONDS), wanted)
    try:
        yield
    finally:
        api.remove(f"{path}/{wanted['metadata']['name']}", Deadline(SECONDS))


@contextmanager
def on_node(api: Api, spec: Object, undone: Object) -> Iterator[None]:
    """A node with this specification for a block."""
    path = "/api/v1/nodes/worker1"
    api.ask("PATCH", path, Deadline(SECONDS), {"spec": spec}, content=MERGE)
    try:
        yield
    finally:
        api.ask("PATCH", path, Deadline(SECONDS), {"spec": undone}, content=MERGE)


def deployed_again(pods: ProbePods, api: Api, pod: str = POD) -> tuple[str, str]:
    """Delete a pod and deploy again: what keeps it from running, and the command that mends it."""
    api.remove(f"{OWN}/pods/{pod}", Deadline(SECONDS))
    said: list[str] = []
    obstacles = pods.deploy(Deadline(SECONDS), said.append, renew=False)
    assert obstacles.keys() == {pod}
    assert said == [f"1 probe pod cannot run: {obstacles[pod].sentence}"]
    observed = pods.observe(Deadline(SECONDS), (), obstacles)
    bound = bind(pods._intent, observed)
    assert bound.obstacles() == obstacles
    return obstacles[pod].sentence, obstacles[pod].mends


def test_a_cordoned_node_takes_no_new_pod(new_pods, api, kubelets):
    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    kubelets.closed.add("worker1")
    with on_node(api, {"unschedulable": True}, {"unschedulable": None}):
        why, mends = deployed_again(pods, api)
    assert why == "Node worker1: cordoned, and takes no new pods"
    assert mends.startswith("kubectl uncordon worker1")


def test_a_node_with_a_taint_takes_no_new_pod(new_pods, api, kubelets):
    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    kubelets.closed.add("worker1")
    taint = {"key": "dedicated", "value": "gpu", "effect": "NoExecute"}
    with on_node(api, {"taints": [taint]}, {"taints": None}):
        why, mends = deployed_again(pods, api)
    assert why == "Node worker1: has the taint dedicated=gpu:NoExecute"
    assert mends.startswith("kubectl taint nodes worker1 dedicated=gpu:NoExecute-")


def test_a_full_quota_refuses_a_pod(new_pods, api):
    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    path = f"{OWN}/resourcequotas"
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": "1"}},
    }
    with made(api, path, quota):
        found = api.ask("GET", f"{path}/few", Deadline(SECONDS))  # no controller counts here
        found["status"] = {"hard": {"pods": "1"}, "used": {"pods": "11"}}
        api.ask("PUT", f"{path}/few/status", Deadline(SECONDS), found)
        why, mends = deployed_again(pods, api)
    assert why.startswith(f"ResourceQuota few in namespace {NAMESPACE}: pods: 11 of 1")
    assert f"--namespace={NAMESPACE} delete resourcequota few" in mends


@contextmanager
def failing_webhook(api: Api, resource: str) -> Iterator[None]:
    """A webhook that must agree to objects of this kind, whose Service does not exist."""
    webhook = {
        "name": "gate.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {"namespace": "policy", "name": "gate", "path": "/"}},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": [resource],
            }
        ],
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gate"},
        "webhooks": [webhook],
    }
    with made(api, WEBHOOKS, configuration):
        Deadline(SECONDS).wait(
            "waiting until the API server asks the webhook",
            lambda: _is_refused(api, resource),
            every=0.1,
        )
        yield


def _is_refused(api: Api, resource: str) -> bool:
    """Whether the API server refuses a new object; a dry run makes none."""
    spec = {
        "pods": {"containers": [{"name": "a", "image": "a"}]},
        "services": {"clusterIP": "None"},
    }
    wanted = {"metadata": {"generateName": "dry-"}, "spec": spec[resource]}
    try:
        api.ask("POST", f"{OWN}/{resource}", Deadline(SECONDS), wanted, {"dryRun": "All"})
    except BrokenError:
        return True
    return False


def test_a_webhook_that_fails_is_named_with_its_service(new_pods, api):
    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    with failing_webhook(api, "pods"):
        why, mends = deployed_again(pods, api)
    assert why.startswith("ValidatingWebhookConfiguration gate: webhook gate.example.com fails")
    assert "policy/gate, which has no ready backend" in why
    assert mends.startswith("kubectl delete validatingwebhookconfiguration gate")


def test_a_webhook_that_fails_is_named_once_a_busy_api_server_lists_it(new_pods, api, monkeypatch):
    monkeypatch.setattr(pod_creation, "_TRIES", (0.1, 0.1))
    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    listing, unanswered = api.listing, iter(range(2))

    def list_busily(path: str, *arguments: object) -> ObjectList:
        if path.endswith("validatingwebhookconfigurations") and next(unanswered, None) is not None:
            raise LostError(f"listing {path}", "no answer in time")
        return listing(path, *arguments)

    monkeypatch.setattr(api, "listing", list_busily)
    with failing_webhook(api, "pods"):
        api.remove(f"{OWN}/pods/{POD}", Deadline(SECONDS))
        (pod,) = (pod for pod in pods._wanted.pods if pod["metadata"]["name"] == POD)
        obstacle = PodCreation(api).create(f"{OWN}/pods", pod, Deadline(2))
    assert obstacle is not None
    assert "webhook gate.example.com fails" in obstacle.sentence


def test_a_service_whose_answer_was_lost_is_not_refused_its_own_node_port(
    new_pods, api, monkeypatch
):
    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    wanted = next(made for made in pods._wanted.services if made["spec"]["type"] == "NodePort")
    path, ask = f"{OWN}/services", api.ask
    api.remove(f"{path}/{wanted['metadata']['name']}", Deadline(SECONDS))
    lost = iter(range(1))

    def lose_the_first_answer(method: str, *arguments: object, **named: object) -> Object:
        answer = ask(method, *arguments, **named)
        if method == "POST" and next(lost, None) is not None:
            raise LostError("making the Service", "no answer in time")
        return answer

    monkeypatch.setattr(api, "ask", lose_the_first_answer)
    assert PodCreation(api).create(path, wanted, Deadline(SECONDS)) is None
    assert next(lost, None) is None


def test_what_refuses_a_pod_is_named_though_others_are_late(new_pods, api, monkeypatch):
    def others_are_late(*_: object, **__: object) -> None:
        raise DeadlineError("waiting for the pods", "not ready: worker1-p2")

    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    monkeypatch.setattr(pods, "_await_ready", others_are_late)
    with failing_webhook(api, "pods"):
        api.remove(f"{OWN}/pods/{POD}", Deadline(SECONDS))
        obstacles = pods.deploy(Deadline(SECONDS), lambda _: None, renew=False)
    assert "webhook gate.example.com fails" in obstacles[POD].sentence


def test_a_webhook_that_prevents_a_service_is_named_without_a_wait(new_pods, api):
    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    with failing_webhook(api, "services"):
        api.remove(f"{OWN}/services/to-master-p1", Deadline(SECONDS))
        with pytest.raises(BrokenError, match=r"webhook gate\.example\.com fails") as raised:
            pods.deploy(Deadline(SECONDS), renew=False)
    assert "making Service 'to-master-p1'" in raised.value.doing
    assert "control plane" not in str(raised.value)


def test_a_scheduler_that_looks_at_no_pod_is_named_though_it_has_no_lease(new_pods, api, kubelets):
    """Without leader election there is none."""
    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    kubelets.idle.set()
    why, _ = deployed_again(pods, api)
    assert why == "kube-scheduler: does not run: it looks at no new pods"


def test_a_scheduler_that_has_stopped_is_named(new_pods, api, kubelets):
    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    kubelets.idle.set()
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "kube-scheduler"},
        "spec": {"leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"},
    }
    with made(api, LEASES, lease):
        why, _ = deployed_again(pods, api)
    assert why == "kube-scheduler: does not run: it looks at no new pods"
