from __future__ import annotations

import json
from pathlib import Path
from threading import Barrier

import pytest
from linux_clusters import case
from linux_world import World

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.cluster.linux.api import (
    ClusterApi,
    daemon_set_rollout,
    node_condition,
    unready_nodes,
    wait_for_dns,
)
from lab.remote.parallel import on_each
from lab.remote.shell import Completed


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
def test_a_nodes_condition_is_told_in_words(seen: dict | None, said: str) -> None:
    assert node_condition(seen) == said


def test_a_node_that_nobody_asked_for_is_not_waited_for() -> None:
    nodes = {"a": node(status="True"), "b": node(status="False")}
    assert unready_nodes(nodes, ["a"]) == {}
    assert set(unready_nodes(nodes, ["a", "b", "c"])) == {"b", "c"}


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
def test_a_daemon_set_is_there_when_every_node_has_it(
    seen: list[dict], missing: dict[str, str]
) -> None:
    assert daemon_set_rollout(seen, "net") == missing


def test_the_dns_that_does_not_start_is_told_by_its_pods(tmp_path: Path) -> None:
    one = case("overlay")
    world = World(("master",))
    pod = {
        "metadata": {"name": "coredns-1"},
        "status": {
            "phase": "Pending",
            "containerStatuses": [{"state": {"waiting": {"reason": "ErrImageNeverPull"}}}],
        },
    }
    shell = world.machines["master"]
    shell.run = lambda *_: Completed(0, json.dumps({"items": [pod]}), "")  # type: ignore[method-assign]
    with pytest.raises(DeadlineError, match=r"coredns-1.*ErrImageNeverPull"):
        wait_for_dns(one.cluster, world.site(tmp_path), Deadline(0.01))


def test_an_api_that_is_not_well_is_asked_again_and_one_that_refuses_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.cluster.linux.api.AGAIN_SECONDS", 0.0)
    one = case("overlay")
    world = World(("master",))
    answers = [
        Completed(1, "", "etcdserver: leader changed"),
        Completed(1, "", "connection refused"),
        Completed(0, "node/x", ""),
        Completed(1, "", "Error from server (Forbidden): nodes is forbidden"),
        Completed(0, "never asked", ""),
    ]
    world.machines["master"].run = lambda *_: answers.pop(0)  # type: ignore[method-assign]
    api = ClusterApi(one.cluster, world.site(tmp_path))
    assert api.ask(("get", "nodes"), Deadline(5)) == "node/x"
    with pytest.raises(BrokenError, match="forbidden"):
        api.ask(("get", "nodes"), Deadline(5))
    assert len(answers) == 1


def test_the_work_on_several_machines_is_done_at_once() -> None:
    together = Barrier(3, timeout=10)
    on_each(("a", "b", "c"), lambda _name: together.wait() and None)


def test_a_defect_is_raised_as_it_is() -> None:
    def job(name: str) -> None:
        if name == "a":
            raise ZeroDivisionError
        raise BrokenError("x", "y")

    with pytest.raises(ZeroDivisionError):
        on_each(("a", "b"), job)
    on_each((), job)
