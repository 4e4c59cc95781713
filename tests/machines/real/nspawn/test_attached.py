"""``lab check`` and ``lab attach`` on a real cluster, seen only through its kubeconfig."""

import json
import signal
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from bundle.made_bundle import made_bundle
from container_labs import CLUSTER_UP, room_for
from kubernetes_programs import CACHE
from real_lab import story_until
from whole_cluster import SCENARIO

from lab._deadline import Deadline

sys.path.append(str(Path(__file__).parents[3] / "bundle"))

bundle_images, image_archives = map(import_module, ("bundle_images", "image_archives"))
"""Modules of a script: they import each other without the name of their folder."""

pytestmark = [pytest.mark.clusters, pytest.mark.machines]


@pytest.fixture(scope="module")
def kubeconfig(labs, tmp_path_factory):
    """A cluster that somebody else has, with the image that probe pods need."""
    made_bundle()
    with room_for(SCENARIO):
        labs.run(*CLUSTER_UP)
    folder = tmp_path_factory.mktemp("image")
    programs = next(CACHE.glob("kubernetes-node-linux-*/agnhost")).parent
    made = image_archives.write_image(
        bundle_images.agnhost_with_curl(programs, Deadline(300)), folder
    )
    labs.run("image", "import", "cluster", str(made))
    path = folder / "kubeconfig"
    labs.run("kubeconfig", "cluster", "-o", str(path))
    return path


@pytest.fixture
def stranger(labs, kubeconfig, tmp_path):
    """The command of a user who has nothing but the kubeconfig."""
    extra = {**labs.extra, "KUBECONFIG": str(kubeconfig)}
    made = replace(labs, state=tmp_path / "state", extra=extra)
    yield made
    made.run("gc", "--yes", "--older-than", "0s")
    assert namespaces(labs) == set()


def namespaces(labs):
    """The namespaces of labs on existing clusters, in the cluster."""
    words = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "ns", "-o", "name")
    listed = labs.run("exec", "cluster", "master", "--", *words).stdout.split()
    return {
        name for name in listed if name.startswith("namespace/hybridlab-") and "probe" not in name
    }


IMAGE = ("--image", "registry.k8s.io/e2e-test-images/agnhost:curl")


def test_a_check_is_green_and_leaves_nothing(stranger, labs):
    done = stranger.run("check", *IMAGE)
    assert "network: flannel" in done.stderr
    assert "208 pass" in done.stdout
    assert namespaces(labs) == set()
    assert "no labs" in stranger.run("list").stderr + stranger.run("list").stdout


def test_a_killed_check_is_taken_away_by_gc(stranger, labs):
    with stranger.started("check", *IMAGE) as process:
        story_until(process, "  step 1 of 1")
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = stranger.run("gc", "--yes")
    assert "was killed" in done.stderr
    assert namespaces(labs) == set()


def test_an_attached_lab_is_tested_explained_and_detached(stranger, labs):
    stranger.run("attach", "prod", "--host-network", *IMAGE)
    assert len(namespaces(labs)) == 1
    done = stranger.run("test", "prod", "-k", "pod-pod or node-pod or node-service or nodeport")
    assert "node-service" in done.stdout
    assert "works" in stranger.run("explain", "prod", "master-p1", "to-worker-p1").stdout
    assert "lab detach prod" in stranger.run("down", "prod", code=2).stderr
    status = json.loads(stranger.run("status", "prod", "--json").stdout)
    assert status["state"] == "up"
    stranger.run("detach", "prod")
    assert namespaces(labs) == set()


def test_debug_pods_show_what_a_node_lacks(stranger, labs):
    def fdb(*words):
        return labs.run("exec", "cluster", "worker", "--", "bridge", "fdb", *words).stdout

    stranger.run("attach", "prod", "--debug-pods", *IMAGE)
    (entry,) = (line.split() for line in fdb("show").splitlines() if " dst " in line)
    mac, device = entry[0], entry[entry.index("dev") + 1]
    end = (mac, "dev", device, "dst", entry[entry.index("dst") + 1], "self")
    fdb("del", *end)
    try:
        text = stranger.run("explain", "prod", "worker-p1", "master-p1", code=None).stdout
    finally:
        fdb("add", *end)
    assert f"on worker, forwarding entry {mac} dev {device}: there is none" in text
    stranger.run("detach", "prod")
    assert namespaces(labs) == set()


def test_a_service_that_selects_nothing_is_the_cause(stranger, labs):
    stranger.run("attach", "prod", *IMAGE)
    (space,) = (name.partition("/")[2] for name in namespaces(labs))
    change = json.dumps({"spec": {"selector": {"app": "web"}}})
    kubectl = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "-n", space)
    labs.run(
        "exec", "cluster", "master", "--", *kubectl, "patch", "svc", "to-worker-p1", "-p", change
    )
    text = stranger.run("explain", "prod", "master-p1", "to-worker-p1", code=None).stdout
    assert "Service to-worker-p1" in text
    assert "selects no probe pod" in text
    stranger.run("detach", "prod")
