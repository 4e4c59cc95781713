"""A real cluster on system containers, from nothing to a green matrix, and what happens to it."""

import os
import signal
import subprocess

import pytest
from bundle.made_bundle import made_bundle
from container_labs import CLUSTER_UP, room_for
from whole_cluster import (  # noqa: F401  collected here
    SCENARIO,
    test_a_node_that_is_rebooted_comes_back_with_its_pods,
    test_a_node_that_was_deleted_joins_again,
    test_a_suspended_cluster_goes_on_where_it_was,
    test_evidence_has_the_cluster_and_no_secret,
    test_the_kubeconfig_gets_in_from_here,
    test_the_matrix_is_green_on_a_real_cluster,
    test_the_plan_s_pod_networks_are_the_nodes,
    test_up_again_does_nothing,
    up,
)

from lab._deadline import Deadline
from lab.state.store import Store

pytestmark = pytest.mark.clusters

MOMENTS = (
    "  step 5 of 11: nodes",
    "master: prepared",
    "  step 6 of 11: control-plane",
    "master: kubeadm init",
    "  step 7 of 11: workers",
    "worker: kubeadm join",
    "  step 8 of 11: add-ons",
    "  step 9 of 11: ready",
    "  step 10 of 11: pods",
    "  step 11 of 11: states",
)
"""Beginnings of lines of the story; the steps before are those of a lab without a cluster."""


@pytest.fixture(scope="module")
def killed(labs):
    """The last lines of the stories of ``lab up``, killed at each of the moments."""
    made_bundle()
    with room_for(SCENARIO):
        yield [labs.killed_after(CLUSTER_UP, moment)[-1] for moment in MOMENTS]


@pytest.fixture(scope="module")
def lab(labs, killed):
    """The cluster, on its way up killed at every step and within: all below is true of it."""
    del killed
    up(labs)
    yield labs
    labs.run("down", "cluster")
    assert labs.left() == set()


def test_a_cluster_comes_up_however_often_that_is_killed(lab, killed):
    for last, moment in zip(killed, MOMENTS, strict=True):
        assert last.startswith(moment)
    lab.run("status", "cluster")


def test_a_capture_follows_a_probe_between_pods_of_the_cluster(lab):
    said = lab.run("capture", "cluster", "master-p1", "worker-p1").stdout
    assert "worker flannel.4096" in said


def test_a_stopped_kube_proxy_is_named(lab):
    lab.run("fault", "cluster", "service-rules-missing", "--node", "worker")
    said = lab.run("explain", "cluster", "worker-p1", "to-master-p1", code=1).stdout
    assert "worker" in said
    lab.run("heal", "cluster")


NAME = "to-master-p1.hybridlab-probe.svc.cluster.local."


@pytest.mark.parametrize(
    ("fault", "node", "target", "said"),
    [
        ("kube-proxy-stopped", "worker", "master-p1", "program kube-proxy: stopped by a signal"),
        ("coredns-scaled-down", "master", NAME, "Deployment coredns: it is scaled to 0"),
        ("cni-config-missing", "worker", "master-p1", "the CNI configuration: there is none"),
        ("containerd-stopped", "worker", "master-p1", "service containerd: inactive"),
        (
            "kubelet-certificate-expired",
            "worker",
            "master-p1",
            "certificate of the kubelet: it exp",
        ),
        ("disk-full", "worker", "master-p1", "the file system at /var/log/pods: it is full"),
        ("wrong-pod-cidr", "worker", "master-p1", "FLANNEL_SUBNET=10.244.255.1/24"),
        ("flanneld-killed", "worker", "master-p1", "program flanneld: it does not run"),
    ],
)
def test_broken_software_is_named_with_its_machine(lab, fault, node, target, said):
    lab.run("fault", "cluster", fault, "--node", node)
    explained = lab.run("explain", "cluster", "worker-p1", target, code=1).stdout
    assert f"on {node}, " in explained
    assert said in explained
    assert f"fault:  {fault}" in explained
    lab.run("heal", "cluster")
    lab.run("explain", "cluster", "worker-p1", target)


def test_a_fault_that_is_killed_half_way_is_healed(lab):
    words = lab.command("fault", "cluster", "coredns-scaled-down")  # takes seconds to be done
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        words, env=lab.environment(), stdout=quiet, stderr=quiet, start_new_session=True
    ) as process:
        Deadline(60).wait(
            "waiting for the fault to be written down",
            lambda: [row.name for row in Store(lab.state).faults("cluster")],
            until=lambda names: "coredns-scaled-down" in names,
        )
        os.killpg(process.pid, signal.SIGKILL)
    assert (
        "removed 'coredns-scaled-down' on 'master', perhaps in part"
        in lab.run("heal", "cluster").stdout
    )
    lab.run("explain", "cluster", "worker-p1", NAME)


def test_a_kubelet_that_was_stopped_is_started_again_by_up(lab):
    for node in ("master", "worker"):
        lab.run("exec", "cluster", node, "--", "systemctl", "stop", "kubelet")
    kubectl = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "nodes")
    Deadline(120).wait(
        "both nodes to be missed",
        lambda: lab.run("exec", "cluster", "master", "--", *kubectl).stdout,
        until=lambda said: said.count("NotReady") == 2,
        every=1,
    )
    lab.run("test", "cluster", code=3)
    up(lab)
    lab.run("status", "cluster")
