from __future__ import annotations

import pytest
from linux_clusters import case
from linux_world import World

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.cluster.linux.api import (
    ClusterApi,
    daemon_set_rollout,
    node_condition,
    unready_nodes,
)


def node(**condition: str) -> dict:
    return {"status": {"conditions": [{"type": "Ready", **condition}]}}


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (None, "not registered"),
        ({"status": {}}, "has no condition Ready yet"),
        (node(status="True"), "Ready"),
        (
            node(status="Unknown", reason="NodeStatusUnknown", message="stopped"),
            "NodeStatusUnknown: stopped",
        ),
        (node(status="False"), "NotReady:"),
    ],
)
def test_a_nodes_condition_is_told_in_words_where_it_is_asked_for(seen, said):
    assert node_condition(seen) == said
    nodes = {"b": node(status="False")} | ({"a": seen} if seen else {})
    assert unready_nodes(nodes, ["a"]) == ({} if said == "Ready" else {"a": said})


def daemon_set(**status: int) -> dict:
    metadata = {"name": "net", "generation": 2}
    return {"kind": "DaemonSet", "metadata": metadata, "spec": {}, "status": status}


def owned(node_name: str, **status: object) -> dict:
    metadata = {"name": f"net-{node_name}", "ownerReferences": [{"name": "net"}]}
    return {
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": node_name},
        "status": status,
    }


SCHEDULED = {"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
ABSENT = {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImageNeverPull"}}}]}


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        ([], {"net": "not created yet"}),
        ([daemon_set()], {"net": "not scheduled yet"}),
        ([daemon_set(**SCHEDULED | {"observedGeneration": 1})], {"net": "not scheduled yet"}),
        ([daemon_set(**SCHEDULED)], {"net": "ready on 0 of 2 nodes"}),
        (
            [daemon_set(**SCHEDULED, numberReady=1), owned("a", **READY), owned("b", **ABSENT)],
            {"b": "ErrImageNeverPull"},
        ),
        (
            [daemon_set(**SCHEDULED | {"updatedNumberScheduled": 1}, numberReady=2)],
            {"net": "ready on 2 of 2 nodes"},
        ),
        ([daemon_set(**SCHEDULED, numberReady=2), owned("a", **READY)], {}),
    ],
)
def test_a_daemon_set_is_there_when_every_node_has_it(seen, missing):
    net, pods = (seen[0], seen[1:]) if seen else (None, [])
    assert daemon_set_rollout(net, "net", pods) == missing


def test_the_dns_that_does_not_start_is_told_by_its_pods(tmp_path):
    one = case("overlay")
    world = World(("master",))
    waiting = {"waiting": {"reason": "ErrImageNeverPull"}}
    status = {"phase": "Pending", "containerStatuses": [{"state": waiting}]}
    world.pods = [{"metadata": {"name": "coredns-1"}, "spec": {}, "status": status}]
    with pytest.raises(DeadlineError, match=r"coredns-1.*ErrImageNeverPull"):
        ClusterApi(one.cluster, world.site(tmp_path)).wait_for_dns(Deadline(0.01))
