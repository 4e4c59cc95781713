"""Objects of a cluster's API that are not as the lab made them, and when they are the cause."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from made_differences import at_place, of_state
from made_items import changed
from seen_machines import lab, whole
from shipped import plan_of

from lab._errors import LabError
from lab.explain.bracket import Bracket
from lab.explain.capture.trace import Point
from lab.explain.causes import with_causes
from lab.explain.objects import put_objects_first, split_by_path
from lab.facts.difference import OBJECT, Difference
from lab.facts.items import make_neighbour
from lab.facts.node import NodeFacts
from lab.facts.objects import Objects, compare_objects, read_objects
from lab.facts.questions import MARK
from lab.matrix.cells import make_matrix
from lab.matrix.judge import expect
from lab.matrix.verdict import CellResult
from lab.providers.capture import Tap
from lab.providers.provider import Outcome
from lab.topology import registry
from lab.topology.intent import Intent
from lab.topology.path import Flow, Path
from lab.topology.subject import (
    ApiSubject,
    ChainSubject,
    DeviceSubject,
    EntranceSubject,
    MachineSubject,
    NeighbourSubject,
    RouteSubject,
    Subject,
    values_of,
)
from lab.topology.walk import walk

INTENT = lab("overlay")[1]
COREFILE = "cluster.local:53 {\n    kubernetes cluster.local\n}\n.:53 {\n    errors\n}\n"


def made(kind: str, name: str, space: str = "", version: str = "v1", **parts: Any) -> Any:
    meta = {"name": name, "uid": f"uid of {name}", **parts.pop("meta", {})}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": meta | ({"namespace": space} if space else {}),
        **parts,
    }


def workload(kind: str, name: str, config: str, labels: dict[str, str], **spec: Any) -> Any:
    volumes = [{"name": "config", "configMap": {"name": config}}]
    template = {"metadata": {"labels": labels}, "spec": {"volumes": volumes, **spec}}
    status = {"readyReplicas": 2, "desiredNumberScheduled": 3, "numberReady": 3}
    return made(
        *(kind, name, "kube-system", "apps/v1"),
        spec={"replicas": 2, "template": template},
        status=status,
    )


READY = [{"type": "Ready", "status": "True"}]
PROBE = "hybridlab-probe"
CLUSTER: list[Any] = [
    made("Namespace", "kube-system"),
    made(
        *("Node", "worker1"),
        meta={"annotations": {"flannel.alpha.coreos.com/public-ip": "10.9.176.11"}},
        spec={"podCIDR": "10.244.1.0/24"},
        status={"conditions": READY},
    ),
    made(
        *("Service", "to-worker1-p1", PROBE),
        spec={
            "clusterIP": "10.96.0.22",
            "selector": {"behind": "to-worker1-p1"},
            "ports": [{"name": "tcp", "port": 80, "targetPort": 8080}],
        },
    ),
    made("Service", "kube-dns", "kube-system", spec={"selector": {"k8s-app": "kube-dns"}}),
    made(
        *("EndpointSlice", "to-worker1-p1-x1", PROBE),
        meta={
            "labels": {
                "kubernetes.io/service-name": "to-worker1-p1",
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            }
        },
        endpoints=[{"addresses": ["10.244.1.3"], "conditions": {"ready": True}}],
        ports=[{"port": 8080}],
    ),
    made("ConfigMap", "coredns", "kube-system", data={"Corefile": COREFILE}),
    made("ConfigMap", "kube-proxy", "kube-system", data={"config.conf": "mode: nftables\n"}),
    workload("Deployment", "coredns", "coredns", {"k8s-app": "kube-dns"}),
    workload("DaemonSet", "kube-proxy", "kube-proxy", {}, hostNetwork=True),
    made(
        *("Pod", "worker1-p1", PROBE),
        meta={"labels": {"behind": "to-worker1-p1", "pod": "worker1-p1"}},
        status={"conditions": READY},
    ),
]


def objects(every: list[Any]) -> Objects:
    text = json.dumps({"items": every})
    calico = f"\n{MARK} calico\n\n{MARK}= 1\n"
    return read_objects(f"\n{MARK} kubernetes\n{text}\n{MARK}= 0\n{calico}\n{MARK} end\n")


def differences(change: Any) -> tuple[Difference, ...]:
    """What differs after ``change`` was called with the objects by kind and name."""
    every = deepcopy(CLUSTER)
    by_name = {f"{one['kind']} {one['metadata']['name']}": one for one in every}
    change(by_name)
    return compare_objects(objects(CLUSTER), objects([*by_name.values()]))


def put(path: str, value: Any) -> Any:
    """Set one field of an object: ``"Service x/spec/selector"``."""

    def change(by_name: dict[str, Any]) -> None:
        name, *keys, last = path.split("/")
        at = by_name[name]
        for key in keys:
            at = at[int(key)] if isinstance(at, list) else at[key]
        at[last.replace("~1", "/")] = value

    return change


def test_a_cluster_does_not_differ_from_itself() -> None:
    assert differences(lambda _: None) == ()


PUBLIC = "flannel.alpha.coreos.com~1public-ip"
POLICY = made(
    *("NetworkPolicy", "lock", PROBE, "networking.k8s.io/v1"),
    spec={"podSelector": {"matchLabels": {"pod": "worker1-p1"}}},
)
SLICE = made(
    *("EndpointSlice", "old", PROBE),
    meta={"labels": {"kubernetes.io/service-name": "to-worker1-p1"}},
    endpoints=[{"addresses": ["10.244.1.200"]}],
)
FELIX = made(
    *("FelixConfiguration", "node.worker1"),
    version="crd.projectcalico.org/v1",
    spec={"vxlanPort": 4790},
)


def crashed(there: dict[str, Any]) -> None:
    there["DaemonSet kube-proxy"]["status"]["numberReady"] = 2
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    ended = {"terminated": {"reason": "Error", "message": "bad mode"}}
    there["pod"] = made(
        *("Pod", "kube-proxy-x", "kube-system"),
        meta={"ownerReferences": [{"name": "kube-proxy"}]},
        spec={"nodeName": "worker1"},
        status={"containerStatuses": [{"state": waits, "lastState": ended}]},
    )


@pytest.mark.parametrize(
    ("change", "names", "observed", "mends", "concerns"),
    [
        (
            put("Service to-worker1-p1/spec/ports/0/targetPort", 8081),
            f"Service to-worker1-p1 in namespace {PROBE}",
            "spec.ports[tcp].targetPort 8081",
            "patch service to-worker1-p1 --type=json -p",
            "Service to-worker1-p1",
        ),
        (
            put("Service to-worker1-p1/spec/ports", []),
            f"Service to-worker1-p1 in namespace {PROBE}",
            "spec.ports[tcp] not set",
            "patch service to-worker1-p1 --type=json -p",
            "Service to-worker1-p1",
        ),
        (
            lambda there: there.pop("Service kube-dns"),
            "Service kube-dns in namespace kube-system",
            "there is none",
            "create -f -",
            "Service kube-dns",
        ),
        (
            put("ConfigMap coredns/data/Corefile", COREFILE.replace("cluster.local", "lan")),
            "ConfigMap coredns in namespace kube-system",
            "data.Corefile 'lan:53 {'; 'kubernetes lan'",
            "rollout restart deployment/coredns",
            "Service kube-dns",
        ),
        (
            put("ConfigMap kube-proxy/data/config.conf", "mode: ipvs\n"),
            "ConfigMap kube-proxy in namespace kube-system",
            "data.config.conf 'mode: ipvs'",
            "rollout restart daemonset/kube-proxy",
            "Services",
        ),
        (
            put(f"Node worker1/metadata/annotations/{PUBLIC}", "10.0.0.9"),
            "Node worker1",
            "metadata.annotations.flannel.alpha.coreos.com/public-ip 10.0.0.9",
            "patch node worker1",
            "machine worker1",
        ),
        (
            lambda there: there.update(policy=POLICY),
            f"NetworkPolicy lock in namespace {PROBE}",
            "there is one",
            "delete networkpolicy lock",
            "pod worker1-p1",
        ),
        (
            lambda there: there.update(slice=SLICE),
            f"EndpointSlice old in namespace {PROBE}",
            "there is one",
            "delete endpointslice old",
            "Service to-worker1-p1",
        ),
        (
            lambda there: there.update(felix=FELIX),
            "FelixConfiguration node.worker1",
            "there is one",
            "delete felixconfiguration.crd.projectcalico.org node.worker1",
            "machine worker1",
        ),
        (
            put("Node worker1/status/conditions", [{"type": "Ready", "status": "Unknown"}]),
            "Node worker1",
            "not Ready",
            "journalctl -u kubelet",
            "machine worker1",
        ),
        (
            put("Deployment coredns/status/readyReplicas", 0),
            "Deployment coredns in namespace kube-system",
            "0 of 2 ready: its pods are missing",
            "undo its last change",
            "Service kube-dns",
        ),
        (
            crashed,
            "DaemonSet kube-proxy in namespace kube-system",
            "2 of 3 ready: pod kube-proxy-x on worker1: CrashLoopBackOff back-off",
            "undo its last change",
            "Services",
        ),
        (
            put("EndpointSlice to-worker1-p1-x1/endpoints", []),
            f"Service to-worker1-p1 in namespace {PROBE}",
            "0 ready backends",
            "see why its pods are not ready",
            "Service to-worker1-p1",
        ),
    ],
)  # fmt: skip
def test_an_object_that_was_changed_is_named_with_what_it_concerns(
    change: Any, names: str, observed: str, mends: str, concerns: str
) -> None:
    (difference,) = differences(change)
    assert difference.object == names
    assert difference.observed.startswith(observed)
    assert mends in difference.mends
    assert concerns in [str(concern) for _, concern in difference.concerns]


def test_a_node_comes_after_what_writes_its_annotations() -> None:
    def change(there: dict[str, Any]) -> None:
        put(f"Node worker1/metadata/annotations/{PUBLIC}", "10.0.0.9")(there)
        put("DaemonSet kube-proxy/spec/template/spec/hostNetwork", False)(there)

    assert [difference.object.split()[0] for difference in differences(change)] == [
        "DaemonSet",
        "Node",
    ]


def restarted(there: dict[str, Any]) -> None:
    template = there["DaemonSet kube-proxy"]["spec"]["template"]
    template["metadata"]["annotations"] = {"kubectl.kubernetes.io/restartedAt": "now"}


@pytest.mark.parametrize(
    "change",
    [
        put("Deployment coredns/spec/replicas", 1),
        put("EndpointSlice to-worker1-p1-x1/endpoints", [{"addresses": ["10.244.1.9"]}]),
        put("Node worker1/spec/taints", [{"key": "node.kubernetes.io/unreachable"}]),
        put("Namespace kube-system/metadata/uid", "of another cluster"),
        lambda there: there.update(web=made("Service", "web", "default", spec={"a": 1})),
        lambda there: there.update(config=made("ConfigMap", "kube-root-ca.crt", "kube-system")),
        restarted,
    ],
)
def test_what_controllers_and_users_do_is_no_difference(change: Any) -> None:
    assert differences(change) == ()


def path(source: str, target: str) -> Path:
    places = INTENT.places()
    pod = places[target][1]
    assert pod is not None
    return walk(INTENT, Flow(source, pod.address.partition("/")[0], 8080, "tcp"))[0]


def service_path(name: str = "to-worker1-p1", port: int = 80) -> Path:
    translation = INTENT.machine("worker1").translation
    assert translation
    address = next(service.address for service in translation.services if service.name == name)
    return walk(INTENT, Flow("worker2-p1", address, port, "tcp"))[0]


def dns_path() -> Path:
    return service_path("kube-dns", 53)


def finding(subject: Subject, place: str = "worker1", *values: str) -> Difference:
    return replace(at_place(place, subject), kind="k", values=(*values_of(subject), *values), hop=0)


HERE = Bracket("lost", 0, frozenset({"worker1"}))
SERVICE = differences(put("Service to-worker1-p1/spec/selector", {"app": "web"}))
ON_NODE = differences(lambda there: there.update(felix=FELIX))
ON_POD = differences(lambda there: there.update(policy=POLICY))
PROXY = differences(put("ConfigMap kube-proxy/data/config.conf", "mode: ipvs\n"))
NOT_READY = differences(
    put("Node worker1/status/conditions", [{"type": "Ready", "status": "Unknown"}])
)
BGP = made(
    "BGPConfiguration",
    "default",
    version="crd.projectcalico.org/v1",
    spec={"nodeToNodeMeshEnabled": False},
)
MESH = differences(lambda there: there.update(bgp=BGP))
LEARNED_ROUTE = replace(finding(RouteSubject("10.244.0.64/26")), kind="learned-route-missing")
BACKEND = "flannel.alpha.coreos.com~1backend-data"
LETTERS, UPPER = (
    differences(
        put(f"Node worker1/metadata/annotations/{BACKEND}", f'{{"VNI":4096,"VtepMAC":"{mac}"}}')
    )
    for mac in ("aa:bb:cc:dd:ee:ff", "AA:BB:CC:DD:EE:0F")
)
VTEP = NeighbourSubject("10.244.1.0", "flannel.4096")
NEIGHBOUR = finding(VTEP, "worker2", "aa:bb:cc:dd:ee:ff")
BEHIND = differences(put("ConfigMap coredns/data/Corefile", "other\n"))
OF_PROXY = finding(EntranceSubject("to-worker1-p1", "10.96.0.22", 80, ("tcp",)))
OF_FELIX = finding(ChainSubject("ip", "calico", "filter-cali-tw-cali6de063ef102"))
POLICY_CHAIN = "filter-cali-pi-default/hybridlab-probe/knp.default.lock"
OF_POLICY = finding(ChainSubject("ip", "calico", POLICY_CHAIN))
RULE = finding(ChainSubject("ip", "mine", "forward"))
PORT = finding(DeviceSubject("vxlan.calico", "tunnel"), "worker1", "4790")
EMPTY = replace(OF_PROXY, attribute="backends", change="gone")
ANSWERED = replace(HERE, last=Point(Tap("worker2-p1", "eth0"), "in"))


@pytest.mark.parametrize(
    ("differs", "findings", "bracket", "first"),
    [
        (SERVICE, [], None, True),
        (SERVICE, [OF_PROXY], None, True),
        (SERVICE, [RULE], HERE, False),
        (BEHIND, [], ANSWERED, True),
        (BEHIND, [EMPTY], None, True),
        (BEHIND, [], HERE, False),
        (BEHIND, [OF_PROXY], ANSWERED, False),
        (PROXY, [OF_PROXY], None, False),
        (PROXY, [], HERE, False),
        (
            PROXY,
            [],
            replace(HERE, loss_places=frozenset({"worker2"})),
            True,
        ),  # it is translated there
        (ON_POD, [OF_POLICY], HERE, True),
        (ON_POD, [OF_FELIX], HERE, False),
        (ON_POD, [], HERE, False),
        (ON_POD, [RULE], HERE, False),
        (ON_NODE, [PORT], None, True),
        (ON_NODE, [finding(DeviceSubject("vxlan.calico", "tunnel"))], None, False),
        (ON_NODE, [finding(DeviceSubject("eth0"), "4790")], HERE, False),
        (MESH, [LEARNED_ROUTE], None, True),
        (MESH, [RULE, LEARNED_ROUTE], HERE, False),
        (MESH, [], HERE, False),
        (LETTERS, [NEIGHBOUR], None, True),
        (UPPER, [finding(VTEP, "worker2", "aa:bb:cc:dd:ee:0f")], None, True),
        (UPPER, [NEIGHBOUR], None, False),
        (NOT_READY, [OF_PROXY], None, True),
        (NOT_READY, [], HERE, False),
    ],
)
def test_an_object_comes_before_what_follows_from_it_and_after_anything_else(
    differs: Any, findings: list[Difference], bracket: Bracket | None, first: bool
) -> None:
    way = dns_path() if differs is BEHIND else service_path()
    near, others = split_by_path(way, differs, "m")
    assert (len(near), others) == (1, [])
    assert near[0][1].sentence.startswith(f"{differs[0].object}: ")
    differences = put_objects_first(way, findings, near, bracket)
    assert [difference.kind for difference in differences[:1]] == (
        ["object-not-as-made"] if first else [difference.kind for difference in findings[:1]]
    )


def test_a_difference_that_the_path_does_not_need_is_shown_beside_it() -> None:
    every = (*SERVICE, *ON_POD, *ON_NODE, *PROXY)
    near, others = split_by_path(path("worker2-p1", "master-p1"), every, "master")
    assert near == []
    assert [difference.hop for difference in others] == [-1] * len(every)


OLD, NEW = "8e:ce:c7:68:69:63", "0e:11:22:33:44:55"
"""MACs of worker1's tunnel: its own, and that of a changed annotation, which all others take."""
BACKEND = "flannel.alpha.coreos.com~1backend-data"


def failed_on_a_cluster() -> tuple[Intent, dict[str, NodeFacts], list[CellResult]]:
    """The facts if flannel has taken a wrong MAC from worker1's Node, and the failures."""
    plan = plan_of("overlay")
    intent = registry.intent(plan)
    seen = whole(intent)
    for name, facts in seen.items():
        if name != "worker1" and intent.machine(name).tunnel:
            learned = make_neighbour("10.244.1.0", "flannel.4096", NEW)
            seen[name] = replace(facts, items=changed(facts.items, learned))
    outcome = Outcome(0, "timeout", "no reply", None, (), None, 0.0)
    cells = (cell for cell in make_matrix(plan, intent).cells() if cell.family == "pod-pod")
    failed = [
        CellResult(cell, expect(cell, ()), "fail", "", (outcome,), False, "")
        for cell in cells
        if "worker1" in {cell.source.node, cell.target.node} and cell.relation == "other-node"
    ]
    return intent, seen, failed


@pytest.mark.room
def test_in_a_run_a_changed_node_object_is_the_cause_and_not_the_neighbours_that_follow() -> None:
    intent, facts, failed = failed_on_a_cluster()
    observed, intended = (f'{{"VNI":4096,"VtepMAC":"{mac}"}}' for mac in (NEW, OLD))
    node = replace(
        of_state(ApiSubject("Node", "", "worker1"), observed, "kubectl patch", made=intended),
        kind=OBJECT,
        values=(NEW, "worker1"),
        concerns=(("", MachineSubject("worker1")),),
    )
    results = with_causes(failed, intent, lambda _: facts, lambda _: {"": [node]})
    assert {result.finding and result.finding.object for result in results} == {"Node worker1"}
    silent = with_causes(failed, intent, lambda _: facts, lambda _: {"": LabError("a", "b")})
    assert {result.finding and result.finding.kind for result in silent} == {"stale-neighbour"}
