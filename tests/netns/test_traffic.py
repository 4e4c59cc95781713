"""Real packets between namespaces: who answers, and which source address it sees."""

from __future__ import annotations

from dataclasses import replace

import pytest
from netns_intents import cluster
from netns_running import LOST_SECONDS

from lab.topology.intent import Drop

POD1, POD2, REMOTE, WINDOWS = "10.244.0.2", "10.244.0.3", "10.244.1.2", "10.244.2.2"
OWN, OTHER, REMOTE_SERVICE = "10.96.0.20", "10.96.0.21", "10.96.0.22"
SHARED, EMPTY = "10.96.200.1", "10.96.200.2"
NODE1, NODE2, WIN1, CLIENT = "10.9.176.1", "10.9.176.2", "10.9.176.3", "192.0.2.10"

CASES = [
    # source, address, port, what the overlay answers
    pytest.param("worker1-p1", POD2, 8080, f"worker1-p2 {POD1}", id="pod to pod, same node"),
    pytest.param("worker1-p1", REMOTE, 8080, f"worker2-p1 {POD1}", id="pod to pod, other node"),
    pytest.param("worker1-p1", WINDOWS, 8080, f"win1-p1 {POD1}", id="pod to Windows pod"),
    pytest.param("worker1-p1", CLIENT, 8080, f"client {NODE1}", id="pod to outside is masqueraded"),
    pytest.param("worker1-p1", OTHER, 80, f"worker1-p2 {POD1}", id="ClusterIP, local backend"),
    pytest.param("worker1-p1", REMOTE_SERVICE, 80, f"worker2-p1 {POD1}", id="ClusterIP, remote"),
    pytest.param("worker1-p1", OWN, 80, "worker1-p1 10.244.0.1", id="hairpin is masqueraded"),
    pytest.param("worker1-p1", EMPTY, 80, "refused", id="a Service without backends refuses"),
    pytest.param("worker1", OTHER, 80, "worker1-p2 10.244.0.1", id="ClusterIP from the node"),
    pytest.param("worker1", REMOTE_SERVICE, 80, "worker2-p1 10.244.0.0", id="the same, remote"),
    pytest.param("worker1", EMPTY, 80, "refused", id="no backends, from the node"),
    pytest.param("worker1", NODE1, 30000, "worker1-p1 10.244.0.1", id="own NodePort, local"),
    pytest.param("worker1", NODE1, 30002, "worker2-p1 10.244.0.0", id="own NodePort, remote"),
    pytest.param("worker1", NODE2, 30000, "worker1-p1 10.244.1.0", id="other node's NodePort"),
    pytest.param("worker1-p1", NODE1, 30001, "worker1-p2 10.244.0.1", id="NodePort from a pod"),
    pytest.param("worker1-p1", NODE1, 30000, "worker1-p1 10.244.0.1", id="NodePort, hairpin"),
    pytest.param("client", NODE1, 30000, "worker1-p1 10.244.0.1", id="NodePort from outside"),
    pytest.param("client", NODE1, 30002, "worker2-p1 10.244.0.0", id="the same, remote backend"),
    pytest.param("client", WIN1, 30000, "worker1-p1 10.244.2.0", id="NodePort on Windows"),
    pytest.param("client", NODE1, 32001, "refused", id="NodePort without backends"),
    pytest.param("worker1-p1", NODE1, 8080, f"worker1 {POD1}", id="pod to its own node"),
    pytest.param("worker1-p1", NODE2, 8080, f"worker2 {NODE1}", id="pod to another node"),
    pytest.param("worker1-p1", WIN1, 8080, f"win1 {NODE1}", id="pod to a Windows node"),
    pytest.param("worker1", POD1, 8080, "worker1-p1 10.244.0.1", id="node to its own pod"),
    pytest.param("win1", WINDOWS, 8080, "win1-p1 10.244.2.1", id="Windows node to its own pod"),
    pytest.param("win1-p1", OWN, 80, "worker1-p1 10.244.2.2", id="ClusterIP from a Windows pod"),
    pytest.param("win1-p1", WIN1, 30000, "worker1-p1 10.244.2.0", id="own NodePort, Windows pod"),
    pytest.param("win1", NODE1, 30000, "worker1-p1 10.244.0.1", id="NodePort from a Windows node"),
]


@pytest.mark.parametrize("kind", ["tcp", "udp"])
@pytest.mark.parametrize(("source", "address", "port", "answer"), CASES)
def test_answers_and_source_addresses(  # noqa: PLR0913, PLR0917  the columns of the table
    overlay, source, address, port, answer, kind
):
    assert overlay.ask(source, address, port, kind) == answer


def test_every_backend_of_a_shared_service_answers(overlay):
    seen = {overlay.ask("worker1-p1", SHARED, 80).split()[0] for _ in range(64)}
    assert seen == {"worker1-p1", "worker1-p2", "worker2-p1"}


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_host_gateway_keeps_source_addresses(host_gateway, kind):
    assert host_gateway.ask("worker1-p1", REMOTE, 8080, kind) == f"worker2-p1 {POD1}"
    assert host_gateway.ask("worker1-p1", NODE2, 8080, kind) == f"worker2 {POD1}"
    assert host_gateway.ask("win1", POD1, 8080, kind) == f"worker1-p1 {WIN1}"
    assert host_gateway.ask("worker1-p1", OWN, 80, kind) == "worker1-p1 10.244.0.1"


def test_what_a_machine_loses_it_may_still_answer(bring_up):
    intent = cluster("host-gateway", pods=1)
    drop = Drop("TEST", (f"{POD1}/32",))
    machines = tuple(
        replace(machine, drops=(drop,)) if machine.name == "worker2" else machine
        for machine in intent.machines
    )
    running = bring_up(replace(intent, machines=machines), name="answering")
    for kind in ("tcp", "udp"):
        assert running.ask("worker2", POD1, 8080, kind, seconds=LOST_SECONDS) == "timeout"
        assert running.ask("worker1-p1", NODE2, 8080, kind) == f"worker2 {POD1}"


def test_arp_for_a_pod_address_on_the_node_segment_is_answered_by_its_node(host_gateway):
    # The router asks as a machine would for which the pod were on the link.
    host_gateway.shell("router", f"ip route replace {WINDOWS}/32 dev eth0")
    try:
        assert host_gateway.ask("router", WINDOWS, 8080).startswith("win1-p1")
        shell = host_gateway.shell("router", f"ip neigh show {WINDOWS} dev eth0")
        node = host_gateway.shell("win1", "cat /sys/class/net/eth0/address").strip()
        assert f"lladdr {node}" in shell
    finally:
        host_gateway.shell("router", f"ip route del {WINDOWS}/32 dev eth0")


def test_two_labs_with_the_same_addresses_do_not_see_each_other(overlay, bring_up):
    other = bring_up(cluster("overlay", linux=1, windows=0, pods=1), name="other")
    assert overlay.ask("worker1-p1", REMOTE, 8080) == f"worker2-p1 {POD1}"
    assert other.ask("worker1-p1", NODE1, 8080) == f"worker1 {POD1}"
    assert other.ask("worker1-p1", REMOTE, 8080, seconds=LOST_SECONDS) == "timeout"


def test_the_tunnel_carries_the_traffic_between_nodes(overlay):
    counter = "cat /sys/class/net/flannel.4096/statistics/tx_packets"
    before = int(overlay.shell("worker1", counter))
    overlay.ask("worker1-p1", REMOTE, 8080)
    assert int(overlay.shell("worker1", counter)) > before
