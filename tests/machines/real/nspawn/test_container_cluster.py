"""A real cluster on system containers, from nothing to a green matrix, and what happens to it."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from bundle.image_archives import Entry, Image, write_image
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
    "  step 5 of 12: nodes",
    "master: prepared",
    "  step 6 of 12: control-plane",
    "master: kubeadm init",
    "  step 7 of 12: workers",
    "  step 8 of 12: add-ons",
    "worker: kubeadm join",
    "  step 9 of 12: dns",
    "  step 10 of 12: ready",
    "  step 11 of 12: pods",
    "  step 12 of 12: states",
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
    stdout = lab.run("capture", "cluster", "master-p1", "worker-p1").stdout
    assert "worker flannel.4096" in stdout


def test_a_stopped_kube_proxy_is_named(lab):
    lab.run("fault", "cluster", "service-rules-missing", "--node", "worker")
    stdout = lab.run("explain", "cluster", "worker-p1", "to-master-p1", code=1).stdout
    assert "worker" in stdout
    lab.run("heal", "cluster")


KUBECTL = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf")
PROBE = ("--namespace=hybridlab-probe",)
WEBHOOK = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: gate}
webhooks:
  - name: gate.example.com
    admissionReviewVersions: [v1]
    sideEffects: None
    clientConfig: {service: {namespace: policy, name: gate, path: /}}
    rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
"""
MANIFESTS = "/etc/kubernetes/manifests"


@pytest.mark.parametrize(
    ("prevent", "undo", "cause", "fix"),
    [
        (
            (*KUBECTL, "drain", "worker", "--ignore-daemonsets", "--force"),
            (*KUBECTL, "uncordon", "worker"),
            "Node worker: cordoned, and takes no new pods",
            "kubectl uncordon worker",
        ),
        (
            (*KUBECTL, "taint", "nodes", "worker", "dedicated=gpu:NoExecute"),
            (*KUBECTL, "taint", "nodes", "worker", "dedicated=gpu:NoExecute-"),
            "Node worker: has the taint dedicated=gpu:NoExecute",
            "kubectl taint nodes worker dedicated=gpu:NoExecute-",
        ),
        (
            (*KUBECTL, *PROBE, "create", "quota", "few", "--hard=pods=1"),
            (*KUBECTL, *PROBE, "delete", "quota", "few"),
            "ResourceQuota few in namespace hybridlab-probe: pods: ",
            "delete resourcequota few",
        ),
        (
            ("sh", "-c", f"printf %s '{WEBHOOK}' | {' '.join(KUBECTL)} apply -f -"),
            (*KUBECTL, "delete", "validatingwebhookconfiguration", "gate"),
            "webhook gate.example.com fails; its Service is policy/gate, which has no ready",
            "kubectl delete validatingwebhookconfiguration gate",
        ),
        (
            ("mv", f"{MANIFESTS}/kube-scheduler.yaml", "/root"),
            ("mv", "/root/kube-scheduler.yaml", MANIFESTS),
            "kube-scheduler: does not run: it looks at no new pods",
            "start it again",
        ),
    ],
    ids=["drained", "tainted", "quota", "webhook", "no-scheduler"],
)
def test_pods_that_cannot_run_are_named_and_all_other_cells_judged(lab, prevent, undo, cause, fix):
    def on_master(*words):
        lab.run("exec", "cluster", "master", "--", *words)

    lab.green("cluster", "-k", "pod-pod")
    on_master(*prevent)
    try:
        on_master(*KUBECTL, *PROBE, "delete", "pod", "worker-p1", "--ignore-not-found", "--now")
        stdout = lab.run("test", "cluster", "-k", "pod-pod", code=1).stdout
        assert cause in stdout
        assert fix in stdout
        found = lab.run("report", "cluster", "--json").stdout
        verdicts = {
            verdict: [
                cell["id"] for cell in json.loads(found)["cells"] if cell["verdict"] == verdict
            ]
            for verdict in ("pass", "probe-error")
        }
        assert all("/worker-p" in one for one in verdicts["probe-error"])
        assert any("/master-p1/" in one for one in verdicts["pass"])
        assert cause in lab.run("explain", "cluster", "worker-p1", "master-p1", code=1).stdout
    finally:
        on_master(*undo)
    lab.green("cluster", "-k", "pod-pod")


def test_an_image_of_the_user_is_on_every_node(lab, tmp_path):
    program = Entry("/hello", source=Path("/bin/true"))
    archive = write_image(Image("example.com/hello:1", (program,), ("/hello",)), tmp_path)
    assert lab.run("image", "import", "cluster", str(archive)).stdout == "example.com/hello:1\n"
    for node in ("master", "worker"):
        listed = ("ctr", "--namespace", "k8s.io", "images", "list", "--quiet")
        assert "example.com/hello:1" in lab.run("exec", "cluster", node, "--", *listed).stdout


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
        "removed 'coredns-scaled-down' on 'master', perhaps incompletely"
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
