"""Tests of one's own beside the matrix, for a lab of the scenario `overlay`.

lab up overlay
pytest --lab overlay
"""

import pytest


def test_every_linux_node_forwards_packets(lab, node):
    for name in lab.nodes:
        if node(name).os == "linux":
            completed = node(name).run("cat", "/proc/sys/net/ipv4/ip_forward")
            assert completed.stdout.strip() == "1", name


def test_pod_network_leaves_room_for_the_tunnel(node):
    links = node("worker1").run("ip", "-o", "link", "show", "cni0").stdout
    assert " mtu 1450 " in links


@pytest.mark.parametrize("target", ["worker2-p1", "win1-p1", "to-win1-p1"])
def test_pod_is_answered(lab, probe, target):
    if target.removeprefix("to-") not in lab.pods:
        pytest.skip("this lab has no Windows nodes")
    result = probe("worker1-p1", target)
    assert result.verdict == "pass", result.detail


def test_pod_is_seen_by_its_own_address(pod, probe):
    result = probe("worker1-p1", "worker2-p1", protocol="udp", size="large")
    assert result.attempts[-1].source_seen == pod("worker1-p1").address


def test_every_node_is_ready(kube, lab):
    """Skipped on a lab of namespaces, which has no API server."""
    from kubernetes import client

    nodes = client.CoreV1Api(kube).list_node().items
    ready = {
        node.metadata.name
        for node in nodes
        for condition in node.status.conditions
        if condition.type == "Ready" and condition.status == "True"
    }
    assert ready >= set(lab.nodes)
