"""The probe pods against a real API server; scheduler and kubelets are the tests' own.

Those that take a namespace away stand last: each costs 5 s, which its controller waits.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
from api_names import SECONDS, said_at_deadline
from control_plane import ControlPlane

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.machines.cluster.api import MERGE, Api, make_namespaced_path
from lab.machines.cluster.probe_pods import ProbePods
from lab.matrix.cells import cells
from lab.topology.observed import DNS_NAMESPACE, DNS_SELECTOR, NAMESPACE, ready_endpoints

pytestmark = pytest.mark.slow

OWN = f"/api/v1/namespaces/{NAMESPACE}"


def test_pods_are_deployed_bound_and_gone_again(new_pods, drawn, api, monkeypatch):
    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    bound = pods.bound(Deadline(SECONDS))
    planned = {pod.name: pod for machine in drawn.intent.machines for pod in machine.pods}
    for machine in bound.machines:
        for pod in machine.pods:
            if pod.role == "probe":
                assert pod.address != planned[pod.name].address
    assert len(cells(drawn.plan, bound)) == len(cells(drawn.plan, drawn.intent))
    remove, paths = Api.remove, []

    def record(self, path, *arguments, **named):
        paths.append(path)
        return remove(self, path, *arguments, **named)

    monkeypatch.setattr(Api, "remove", record)
    assert pods.remove(Deadline(SECONDS)) == (f"namespace {NAMESPACE}",)
    assert paths[0] == OWN
    assert {f"{OWN}/pods/{cell.source.name}" for cell in cells(drawn.plan, bound)} & {*paths}
    assert api.find(OWN, Deadline(SECONDS)) is None
    assert pods.remove(Deadline(SECONDS)) == ()


def test_deploying_twice_makes_nothing_anew(new_pods, api):
    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    before = uids(api)
    new_pods().deploy(Deadline(SECONDS))
    assert uids(api) == before


def test_a_service_that_was_changed_stays_so_in_a_test_and_is_made_anew_by_up(new_pods, api):
    pods, path = new_pods(), f"{OWN}/services/to-master-p1"
    pods.deploy(Deadline(SECONDS))
    other = {"spec": {"selector": {"app": "web"}}}
    api.ask("PATCH", path, Deadline(SECONDS), other, content=MERGE)
    slices = make_namespaced_path("endpointslices", NAMESPACE)
    Deadline(SECONDS).wait(
        "waiting until the Service has no backend",
        lambda: ready_endpoints(api.listing(slices, Deadline(SECONDS)).objects.values()),
        until=lambda backends: not backends.get("to-master-p1"),
        every=0.1,
    )
    before, said = uids(api), list[str]()
    pods.deploy(Deadline(8), said.append, renew=False)
    assert uids(api) == before
    assert "Service 'to-master-p1' has backends none, not master-p1" in said[0]
    pods.deploy(Deadline(SECONDS))
    (found,) = (one for one in [api.find(path, Deadline(SECONDS))] if one)
    assert "app" not in found["spec"]["selector"]


def test_a_dns_pod_that_is_being_deleted_is_not_expected_anywhere(new_pods, api):
    """Its node has let go of it before the API server has."""
    path = make_namespaced_path("pods", DNS_NAMESPACE)
    labels = dict([DNS_SELECTOR.split("=")])
    for name in ("coredns-stays", "coredns-leaves"):
        metadata = {"name": name, "labels": labels, "finalizers": ["hybridlab.io/test"]}
        container = {"name": "coredns", "image": "coredns"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        pod["spec"] = {"nodeName": "worker1", "containers": [container]}
        api.ask("POST", path, Deadline(SECONDS), pod)
    try:
        api.ask("DELETE", f"{path}/coredns-leaves", Deadline(SECONDS))
        seen = new_pods().observe(Deadline(SECONDS))
        assert [one.name for one in seen.dns] == ["coredns-stays"]
    finally:
        for name in ("coredns-stays", "coredns-leaves"):
            none = {"metadata": {"finalizers": None}}
            api.ask("PATCH", f"{path}/{name}", Deadline(SECONDS), none, content=MERGE)
        api.remove(path, Deadline(SECONDS))


@contextmanager
def deploying(pods: ProbePods, plane: ControlPlane) -> Iterator[Future[Any]]:
    """Probe pods that are being deployed on another thread; the last one is created."""
    api = Api(plane.kubeconfig)
    with closing(api), ThreadPoolExecutor(1) as pool:
        work = pool.submit(pods.deploy, Deadline(SECONDS))

        def created() -> bool:
            return work.done() or "win1-p1" in api.listing(f"{OWN}/pods", Deadline(SECONDS)).objects

        Deadline(SECONDS).wait("creating pods", created, every=0.2)
        yield work


def uids(api: Api) -> dict[str, str]:
    return {
        name: one["metadata"]["uid"]
        for kind in ("pods", "services")
        for name, one in api.listing(f"{OWN}/{kind}", Deadline(SECONDS)).objects.items()
    }


def test_half_of_a_killed_run_with_the_same_token_is_completed(new_pods, api):
    new_pods().deploy(Deadline(SECONDS))
    before = uids(api)
    api.remove(f"{OWN}/pods/win1-p1", Deadline(SECONDS))
    api.remove(f"{OWN}/services/to-master-p1", Deadline(SECONDS))
    new_pods().deploy(Deadline(SECONDS))
    after = uids(api)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"win1-p1", "to-master-p1"}


def test_pods_that_have_an_address_are_there_ready_or_not(new_pods, kubelets, api):
    pods = new_pods()
    assert not pods.have_addresses(Deadline(SECONDS))
    pods.deploy(Deadline(SECONDS))
    kubelets.idle.clear()  # nobody sets it right
    path = f"{OWN}/pods/master-p1"
    (pod,) = (one for one in [api.find(path, Deadline(SECONDS))] if one)
    for condition in pod["status"]["conditions"]:
        condition["status"] = "False"
    api.ask("PUT", f"{path}/status", Deadline(SECONDS), body=pod)
    assert pods.have_addresses(Deadline(SECONDS))
    api.remove(path, Deadline(SECONDS))
    assert not pods.have_addresses(Deadline(SECONDS))


def test_namespace_of_another_lab_is_refused(new_pods):
    mine = new_pods(lab="overlay")
    mine.deploy(Deadline(SECONDS))
    other = new_pods(lab="another")
    for act in (lambda: other.deploy(Deadline(SECONDS)), lambda: other.remove(Deadline(SECONDS))):
        with pytest.raises(BrokenError, match="belongs to lab 'overlay'"):
            act()


def test_pods_that_do_not_start_are_named_with_the_kubelets_message(new_pods, kubelets):
    kubelets.trouble = "ErrImageNeverPull"
    why = "pod 'master-p1' is Pending on 'master' (ErrImageNeverPull: as the test says)"
    said = said_at_deadline(new_pods().deploy, why)
    assert "waiting for the 12 probe pods" in said
    assert why in said


def test_pod_on_another_node_than_asked_is_refused(new_pods, kubelets):
    kubelets.misplaced["win1-p1"] = "win2"
    pods = new_pods()
    pods.deploy(Deadline(SECONDS))
    with pytest.raises(BrokenError, match="pod 'win1-p1' runs on node 'win2', not on 'win1'"):
        pods.bound(Deadline(SECONDS))


def test_api_server_that_is_silent_for_a_while_is_borne(new_pods, plane, kubelets):
    kubelets.idle.set()
    pods = new_pods()
    with deploying(pods, plane) as work:
        with plane.stopped(), pytest.raises(TimeoutError):
            work.result(1.0)
        kubelets.idle.clear()
        work.result(SECONDS)
    assert pods.bound(Deadline(SECONDS))


def test_api_server_that_dies_and_returns_is_borne(new_pods, plane, kubelets):
    kubelets.idle.set()
    pods = new_pods()
    with deploying(pods, plane) as work:
        plane.kill_server()
        plane.start_server()
        kubelets.idle.clear()
        work.result(SECONDS)


def test_leftovers_of_a_killed_run_are_removed_first(new_pods, api):
    new_pods().deploy(Deadline(SECONDS))
    before = uids(api)
    said: list[str] = []
    new_pods(token="fresh").deploy(Deadline(SECONDS), said.append)
    assert said == ["removing namespace 'hybridlab-probe' of an earlier run"]
    assert not set(before.values()) & set(uids(api).values())


def test_namespace_that_will_not_go_is_named_with_its_finalizers(new_pods, api):
    pods = new_pods(token="fresh")
    pods.deploy(Deadline(SECONDS))
    held = api.ask("GET", f"{OWN}/pods/win1-p1", Deadline(SECONDS))
    held["metadata"]["finalizers"] = ["hybridlab.io/held"]
    api.ask("PUT", f"{OWN}/pods/win1-p1", Deadline(SECONDS), held)
    whose = "Pod 'win1-p1' is left, with finalizers: hybridlab.io/held"
    said_last = said_at_deadline(pods.remove, "it is Terminating", whose)
    freed = api.ask("GET", f"{OWN}/pods/win1-p1", Deadline(SECONDS))
    freed["metadata"]["finalizers"] = []
    api.ask("PUT", f"{OWN}/pods/win1-p1", Deadline(SECONDS), freed)
    assert "it is Terminating, with finalizers: kubernetes" in said_last
    assert whose in said_last
    said: list[str] = []
    new_pods().deploy(Deadline(SECONDS), said.append)
    assert said == [
        "namespace 'hybridlab-probe' of an earlier run is being deleted; waiting for it"
    ]
