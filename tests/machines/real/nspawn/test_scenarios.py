"""Every shipped scenario with its Linux nodes, as a real cluster and as namespaces on machines."""

from pathlib import Path

import pytest
from container_labs import need_bundle
from scenario_clusters import Fault, brought_up, checked, judge
from test_three_control_planes import PLANES
from whole_cluster import SCENARIO

from lab._deadline import Deadline

SCENARIOS = Path(__file__).parents[4] / "scenarios"
CLUSTERS = {
    "overlay": Fault("wrong-vni worker2 worker1-p1 worker2-p1", "on worker2, tunnel flannel.4096"),
    "services": Fault("service-rules-missing worker1 worker1-p1 to-worker2-p1", "on worker1, "),
    # flanneld puts a missing route back within seconds
    "host-gateway": Fault("ip-forward-off worker2 worker1-p1 worker2-p1", "on worker2, "),
    "upstream-tor": Fault(
        "route-missing router node001-p1 node002-p1",
        "on router, route to 10.160.4.0/24: there is none",
        "node002",
    ),
    "k8s-libvirt-1-1-2,compute.os=linux": Fault(
        "ip-forward-off compute-01 controller-01-p1 compute-01-p1", "on compute-01, "
    ),
}
"""Scenarios with one control plane whose network a cluster can have from the lab alone."""
NAMESPACES = {
    **{name: fault for name, fault in (CLUSTERS | PLANES).items() if not name.startswith("k8s-")},
    "overlay": Fault("wrong-vni worker2 worker1-p1 worker2-p1", "on worker2, tunnel "),
    "host-gateway": Fault(
        "route-missing worker1 worker1-p1 worker2-p1", "on worker1, route to 10.10.", "worker2"
    ),
    "kubeinit": Fault(
        "wrong-udp-port compute-03 controller-01-p1 compute-03-p1", "on compute-03, tunnel"
    ),
    "calico-bgp": Fault("bgp-session-down worker1 worker1-p1 worker2-p1", "worker2", "worker2"),
}


@pytest.mark.clusters
def test_a_cluster_whose_kube_proxy_writes_iptables_is_green_and_what_it_lacks_is_named(
    labs, tmp_path
):
    need_bundle()
    scenario = tmp_path / "iptables.yaml"
    text = (SCENARIOS / "overlay.yaml").read_text(encoding="utf-8")
    text = text.replace("name: overlay", "name: iptables", 1)
    scenario.write_text(text.replace("kubernetes:", "kubernetes:\n  proxy_mode: iptables", 1))
    with brought_up(labs, str(scenario), "kubernetes", name="iptables") as lab:
        checked(judge(labs, lab))
        healthy = ("explain", lab, "worker1-p1", "to-worker2-p1")
        assert "nothing is wrong" in labs.run(*healthy).stdout
        inside = ("exec", lab, "worker1", "--", "sh", "-c")
        labs.run(*inside, "pkill -STOP -x kube-proxy; nft flush chain ip nat KUBE-SERVICES")
        assert "on worker1, " in labs.run(*healthy, code=1).stdout
        labs.run(*inside, "pkill -KILL -x kube-proxy")
        Deadline(120).wait(
            "kube-proxy to write its rules again",
            lambda: labs.run(*inside, "nft list chain ip nat KUBE-SERVICES | wc -l").stdout,
            until=lambda said: int(said) > 10,
            every=1,
        )
        labs.run(*healthy)


@pytest.mark.clusters
def test_a_cluster_with_an_mtu_above_1500_carries_fragments_between_pods_of_a_node(labs, tmp_path):
    """1600, because the probes of a cluster send no datagram above 2,048 bytes."""
    need_bundle()
    scenario = tmp_path / "jumbo.yaml"
    text = SCENARIO.read_text(encoding="utf-8").replace("name: cluster", "name: jumbo", 1)
    scenario.write_text(text.replace("network:", "network:\n  mtu: 1600", 1))
    with brought_up(labs, str(scenario), "kubernetes", name="jumbo") as lab:
        checked(labs.green(lab))
        labs.run("status", lab, "--deep")
        kubectl = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf")
        labs.run("exec", lab, "master", "--", *kubectl, "delete", "node", "worker")
        labs.up(scenario, pods="kubernetes")
        labs.green(lab, "-k", "pod-pod")


@pytest.mark.clusters
@pytest.mark.parametrize("scenario", CLUSTERS)
def test_a_cluster_of_the_scenario_is_green_and_a_fault_is_named(labs, scenario):
    need_bundle()
    with brought_up(labs, scenario, "kubernetes") as lab:
        checked(judge(labs, lab, CLUSTERS[scenario]))


@pytest.mark.parametrize("scenario", NAMESPACES)
def test_a_lab_of_namespaces_on_machines_is_green_and_a_fault_is_named(labs, scenario):
    with brought_up(labs, scenario, "namespaces") as lab:
        judge(labs, lab, NAMESPACES[scenario])
