"""What happens to a real cluster, whatever its machines: tests that every such provider passes.

A module with a fixture ``lab``, which has the scenario ``cluster.yaml`` up, imports them.
"""

from __future__ import annotations

import json
from pathlib import Path

from processes import run_program
from real_lab import RealLab

from lab._deadline import Deadline

SCENARIO = Path(__file__).with_name("cluster.yaml")
NODES = ("master", "worker")
SECONDS = 900.0


def up(lab: RealLab) -> str:
    return lab.up(SCENARIO, pods="kubernetes").stderr


def kubectl(lab: RealLab, *words: str) -> str:
    command = ("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", *words)
    return lab.run("exec", "cluster", "master", "--", *command).stdout


def ready(lab: RealLab) -> dict[str, str]:
    """Each node, and what its condition Ready says."""
    items = json.loads(kubectl(lab, "get", "nodes", "-o", "json"))["items"]
    return {
        node["metadata"]["name"]: next(
            condition["status"]
            for condition in node["status"]["conditions"]
            if condition["type"] == "Ready"
        )
        for node in items
    }


def test_the_matrix_is_green_on_a_real_cluster(lab: RealLab) -> None:
    assert ready(lab) == dict.fromkeys(NODES, "True")
    said = lab.green("cluster")
    assert "cells" in said
    assert "Not as expected" not in said


def test_the_plan_s_pod_networks_are_the_nodes(lab: RealLab) -> None:
    said = kubectl(
        lab, "get", "nodes", "-o", "jsonpath={range .items[*]}{.spec.podCIDR}{'\\n'}{end}"
    )
    assert said.split() == ["10.244.0.0/24", "10.244.1.0/24"]


def test_up_again_does_nothing(lab: RealLab) -> None:
    assert "starting lab" not in up(lab)


def test_the_kubeconfig_gets_in_from_here(lab: RealLab, tmp_path: Path) -> None:
    file = tmp_path / "conf"
    lab.run("kubeconfig", "cluster", "-o", str(file))
    from kubernetes import client, config  # noqa: PLC0415  slow, and an extra

    with config.new_client_from_config(str(file)) as made:
        nodes = client.CoreV1Api(made).list_node(_request_timeout=60).items
    assert [node.metadata.name for node in nodes] == list(NODES)


def test_a_node_that_is_rebooted_comes_back_with_its_pods(lab: RealLab) -> None:
    before = lab.run("exec", "cluster", "worker", "--", "cat", "/proc/sys/kernel/random/boot_id")
    lab.run("exec", "cluster", "worker", "--", "systemctl", "--no-block", "reboot")

    def booted() -> str:
        command = lab.command(
            "exec", "cluster", "worker", "--", "cat", "/proc/sys/kernel/random/boot_id"
        )
        done = run_program(command, env=lab.environment(), check=False)
        return done.stdout.strip()

    Deadline(SECONDS).wait(
        "the worker to be up again",
        booted,
        until=lambda now: now not in {"", before.stdout.strip()},
        every=2,
    )
    up(lab)
    lab.green("cluster", "-k", "pod-pod or pod-service")


def test_a_node_that_was_deleted_joins_again(lab: RealLab) -> None:
    kubectl(lab, "delete", "node", "worker", "--wait=true")
    assert "worker" in lab.run("status", "cluster", code=3).stdout
    up(lab)
    assert ready(lab) == dict.fromkeys(NODES, "True")
    lab.green("cluster", "-k", "pod-pod or pod-service")


def test_a_suspended_cluster_goes_on_where_it_was(lab: RealLab) -> None:
    lab.run("suspend", "cluster")
    story = up(lab)
    assert story.count("resumed") == 4
    lab.green("cluster", "-k", "pod-pod or pod-service")


def test_evidence_has_the_cluster_and_no_secret(lab: RealLab, tmp_path: Path) -> None:
    archive = tmp_path / "evidence.tar.gz"
    lab.run("gather", "cluster", "-o", str(archive))
    names = run_program(("tar", "tzf", archive)).stdout
    assert "kubelet" in names
    whole = run_program(("tar", "xzOf", archive), text=False).stdout
    assert b"PRIVATE KEY" not in whole
    assert b"client-key-data: LS0" not in whole
