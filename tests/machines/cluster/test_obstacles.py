"""Why pods cannot run, by what an API server says."""

from itertools import islice

import pytest

from lab.machines.cluster.obstacles import (
    Kubectl,
    closed_node,
    failing_webhook,
    is_unscheduled,
    matching_webhooks,
    on_control_plane,
    reasons,
    refusing_quota,
    remarks,
    stopped_scheduler,
)
from lab.machines.cluster.probe_pods import list_obstacles
from lab.topology.intent import Obstacle

CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}


def node(*taints, **spec):
    keys = ("key", "value", "effect")
    return {"spec": {"taints": [dict(zip(keys, taint, strict=True)) for taint in taints], **spec}}


def test_a_cordoned_node_is_named_with_the_command_that_opens_it():
    obstacle = closed_node("worker1", node(unschedulable=True), [], on_control_plane)
    assert obstacle.sentence == "Node worker1: cordoned, and takes no new pods"
    assert obstacle.mends.startswith("kubectl uncordon worker1")


def test_nobody_is_advised_to_change_what_others_have_set():
    theirs = Kubectl(lambda words: f"kubectl --context=prod {words}", own=False)
    quotas = {"small": {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}}
    webhook = {"name": "w.example", "clientConfig": {"url": "https://w.example"}}
    obstacles = (
        closed_node("worker1", node(unschedulable=True), [], theirs),
        closed_node("worker1", node(("dedicated", "gpu", "NoSchedule")), [], theirs),
        refusing_quota(quotas, "team", theirs),
        failing_webhook([("ValidatingWebhookConfiguration", "w", webhook)], {}, theirs),
    )
    for obstacle in obstacles:
        assert obstacle.shows.startswith("kubectl --context=prod ")
        assert "kubectl" not in obstacle.mends
    assert obstacles[1].mends == "add '--tolerate dedicated=gpu:NoSchedule'"


@pytest.mark.parametrize(
    ("taint", "tolerations", "mends"),
    [
        (("dedicated", "gpu", "NoSchedule"), [], "taint nodes worker1 dedicated=gpu:NoSchedule-"),
        (("away", "", "NoExecute"), [CONTROL_PLANE], "taint nodes worker1 away:NoExecute-"),
        (("away", "", "NoExecute"), [{"key": "away", "operator": "Exists"}], None),
        (("away", "x", "NoExecute"), [{"key": "away", "value": "x"}], None),
        (("away", "y", "NoExecute"), [{"key": "away", "value": "x"}], "away=y:NoExecute-"),
        (
            ("away", "", "NoExecute"),
            [{"key": "away", "operator": "Exists", "effect": "NoSchedule"}],
            "away:NoExecute-",
        ),
        (("away", "", "NoExecute"), [{"operator": "Exists"}], None),
        (("away", "", "PreferNoSchedule"), [], None),
        (("node.kubernetes.io/not-ready", "", "NoExecute"), [], None),
    ],
)
def test_a_taint_that_pods_do_not_tolerate_is_named_with_its_removal(taint, tolerations, mends):
    obstacle = closed_node("worker1", node(taint), tolerations, on_control_plane)
    if mends is None:
        assert obstacle is None
    else:
        assert mends in obstacle.mends


def test_what_keeps_pods_away_from_nodes_is_listed_without_what_kubeadm_sets():
    nodes = {
        "master": node(("node-role.kubernetes.io/control-plane", "", "NoSchedule")),
        "worker1": node(("node.kubernetes.io/unschedulable", "", "NoSchedule"), unschedulable=True),
        "worker2": node(("dedicated", "gpu", "NoExecute")),
    }
    assert list(remarks(nodes)) == [
        ("worker1", "cordoned"),
        ("worker2", "taint dedicated=gpu:NoExecute"),
    ]


def test_a_pod_is_unscheduled_by_type_and_reason_of_its_condition():
    def pod(**condition):
        return {"status": {"conditions": [condition]}}

    assert is_unscheduled(pod(type="PodScheduled", status="False", reason="Unschedulable"))
    assert not is_unscheduled(pod(type="PodScheduled", status="False", reason="SchedulingGated"))
    assert not is_unscheduled(pod(type="Ready", status="False", reason="Unschedulable"))


def lease(time, seconds=15):
    return {"spec": {"renewTime": time, "leaseDurationSeconds": seconds}}


@pytest.mark.parametrize(
    ("scheduler", "others", "stopped"),
    [
        ("2026-11-28T15:00:00.000000Z", "2026-11-28T15:00:16.000000Z", True),
        ("2026-11-28T15:00:00.000000Z", "2026-11-28T15:00:14.000000Z", False),
        ("2026-11-28T15:00:09.000000Z", "2026-11-28T15:00:00.000000Z", False),
        ("", "2026-11-28T15:00:00.000000Z", False),
    ],
)
def test_a_scheduler_has_stopped_when_its_lease_ran_out_by_other_leases(scheduler, others, stopped):
    leases = {"kube-scheduler": lease(scheduler), "kube-controller-manager": lease(others)}
    assert bool(stopped_scheduler(leases, on_control_plane)) == stopped


def test_a_schedulers_missing_lease_proves_nothing():
    assert stopped_scheduler({}, on_control_plane) is None
    leases = {"apiserver": lease("2026-11-28T15:00:00.000000Z")}
    assert stopped_scheduler(leases, on_control_plane) is None


def quota(used, hard):
    return {"status": {"used": used, "hard": hard}}


def test_a_full_quota_comes_before_one_that_asks_for_requests():
    quotas = {
        "compute": quota({"requests.cpu": "0"}, {"requests.cpu": "1"}),
        "few": quota({"pods": "2"}, {"pods": "2"}),
        "many": quota({"pods": "2"}, {"pods": "200"}),
    }
    full = refusing_quota(quotas, "space", on_control_plane)
    assert full.sentence == "ResourceQuota few in namespace space: pods: 2 of 2"
    assert full.mends.startswith("kubectl --namespace=space delete resourcequota few")
    del quotas["few"]
    partial = refusing_quota(quotas, "space", on_control_plane)
    assert partial.object == "ResourceQuota compute in namespace space"
    del quotas["compute"]
    assert refusing_quota(quotas, "space", on_control_plane) is None


def webhook(**changes):
    return {
        "name": "pods.example.com",
        "failurePolicy": "Fail",
        "rules": [{"apiGroups": [""], "operations": ["CREATE"], "resources": ["pods"]}],
        "clientConfig": {"service": {"namespace": "policy", "name": "gate"}},
        **changes,
    }


def configuration(*webhooks):
    return (
        "ValidatingWebhookConfiguration",
        {"metadata": {"name": "policy"}, "webhooks": webhooks},
    )


IN = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}
NOT_IN = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}
ABSENT = {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}


@pytest.mark.parametrize(
    ("changes", "matches"),
    [
        ({}, True),
        ({"failurePolicy": "Ignore"}, False),
        ({"rules": [{"apiGroups": ["apps"], "operations": ["*"], "resources": ["*"]}]}, False),
        ({"rules": [{"apiGroups": ["*"], "operations": ["*"], "resources": ["*/*"]}]}, True),
        ({"rules": [{"apiGroups": [""], "operations": ["DELETE"], "resources": ["pods"]}]}, False),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, False),
        ({"namespaceSelector": {"matchLabels": {"lab": "x"}}}, True),
        ({"namespaceSelector": IN}, False),
        ({"namespaceSelector": NOT_IN}, True),
        ({"objectSelector": ABSENT}, True),
        ({"objectSelector": {"matchLabels": {"pod": "a"}}}, True),
        ({"objectSelector": {"matchLabels": {"pod": "b"}}}, False),
    ],
)
def test_a_webhook_must_agree_by_its_rules_selectors_and_policy(changes, matches):
    found = matching_webhooks(
        [configuration(webhook(**changes))], "pods", {"pod": "a"}, {"lab": "x"}
    )
    assert bool(list(found)) == matches


def test_a_webhook_whose_service_has_no_backend_is_the_one_that_fails():
    other = webhook(
        name="other", clientConfig={"service": {"namespace": "policy", "name": "other"}}
    )
    outside = webhook(name="outside", clientConfig={"url": "https://example.com"})
    found = [*matching_webhooks([configuration(outside, other, webhook())], "pods", {}, {})]
    backends = {("policy", "gate"): 0, ("policy", "other"): 2}
    obstacle = failing_webhook(found, backends, on_control_plane)
    assert "webhook pods.example.com fails" in obstacle.observed
    assert "policy/gate, which has no ready backend" in obstacle.observed
    assert "delete validatingwebhookconfiguration policy" in obstacle.mends
    assert failing_webhook([], backends, on_control_plane) is None


def test_a_pod_that_does_not_start_has_the_reasons_of_node_container_and_events():
    pod = {
        "status": {
            "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
            "containerStatuses": [{"state": {"waiting": {"reason": "ErrImageNeverPull"}}}],
        }
    }
    node = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Lost"}]}}
    events = [
        {"type": "Warning", "reason": "FailedCreatePodSandBox"},
        {"type": "Normal", "reason": "Pulled"},
    ]
    assert list(reasons(pod, node, events)) == [
        "Lost",
        "ErrImageNeverPull",
        "FailedCreatePodSandBox",
    ]
    creating = {
        "status": {"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}
    }
    assert not list(reasons(creating, None, []))


def test_of_many_nodes_that_take_no_pods_a_few_are_named():
    pods = {
        f"{node}-p{number}": Obstacle(f"Node {node}", "cordoned", "", "")
        for node in "abcde"
        for number in (1, 2)
    }
    assert [*list_obstacles(pods)] == [
        "2 probe pods cannot run: Node a: cordoned",
        "2 probe pods cannot run: Node b: cordoned",
        "2 probe pods cannot run: Node c: cordoned",
        "4 more probe pods cannot run: each red cell says why",
    ]
    assert len([*list_obstacles(dict(islice(pods.items(), 6)))]) == 3
