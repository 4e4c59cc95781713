"""A cluster whose network is made by manifests of somebody's own."""

import json
import shutil
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from bundle.made_bundle import made_bundle
from container_labs import ContainerLabs, room_for
from kubernetes_programs import CACHE
from scenario_clusters import up
from whole_cluster import SCENARIO

from lab._deadline import Deadline
from lab.topology.observed import NAMESPACE

sys.path.append(str(Path(__file__).parents[3] / "bundle"))

bundle_images, host_programs, image_archives = map(
    import_module, ("bundle_images", "host_programs", "image_archives")
)
"""Modules of a script: they import each other without the name of their folder."""

pytestmark = [pytest.mark.clusters, pytest.mark.machines]

OWN = Path(__file__).with_name("own_network.yaml")
KUBECTL = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf")


def write_own_image(folder: Path) -> Path:
    """The archive of the image that the manifest names."""
    programs = next(CACHE.glob("flannel-linux-*/flanneld"))
    plugin = next(CACHE.glob("flannel-cni-linux-*/flannel"))
    deadline = Deadline(300)
    image = image_archives.Image(
        "own.example/net:1",
        (
            *bundle_images.BASE,
            *host_programs.packet_filters(deadline),
            *host_programs.shell(deadline),
            image_archives.Entry("/opt/bin/flanneld", source=programs),
            image_archives.Entry("/flannel", source=plugin),
        ),
        ("/opt/bin/flanneld",),
    )
    return image_archives.write_image(image, folder)


def check_by_kubeconfig(labs: ContainerLabs, folder: Path) -> None:
    """A stranger's check, too, finds every cell as it should be."""
    programs = next(CACHE.glob("kubernetes-node-linux-*/agnhost")).parent
    image = bundle_images.agnhost_with_curl(programs, Deadline(300))
    labs.run("image", "import", "own", str(image_archives.write_image(image, folder)))
    labs.run("kubeconfig", "own", "-o", str(folder / "kubeconfig"))
    extra = {**labs.extra, "KUBECONFIG": str(folder / "kubeconfig")}
    stranger = replace(labs, state=folder / "state", extra=extra)
    done = stranger.run("check", "--host-network", "--image", image.name)
    assert "network: flannel (" in done.stderr  # by what it writes on nodes
    assert "node-pod" in done.stdout


def test_a_network_of_ones_own_is_waited_for_judged_and_explained(labs, tmp_path):
    made_bundle()
    scenario = tmp_path / "own.yaml"
    text = SCENARIO.read_text(encoding="utf-8")
    archive = write_own_image(tmp_path)
    topology = f"topology: {{kind: custom, images: [{archive.name}]}}"
    begin = text.index("topology:")
    end = text.index("\n\n", begin)
    scenario.write_text(text[:begin] + topology + text[end:])
    shutil.copy(OWN, tmp_path / "cni.yaml")
    with room_for(scenario, "kubernetes"):
        try:
            labs.run(*up(str(scenario), "own", "kubernetes"))
            summary = labs.green("own")
            assert "pod-external" in summary
            labs.run("status", "own", "--deep")
            change = json.dumps({"spec": {"selector": {"app": "web"}}})
            patch = ("patch", "svc", "to-worker-p1", "-n", NAMESPACE, "-p", change)
            labs.run("exec", "own", "master", "--", *KUBECTL, *patch)
            pair = ("explain", "own", "master-p1", "to-worker-p1")
            assert "Service to-worker-p1" in labs.run(*pair, code=1).stdout
            labs.run("repair", "own", "master", f"Service to-worker-p1 in namespace {NAMESPACE}")
            labs.run(*pair)
            check_by_kubeconfig(labs, tmp_path)
        finally:
            if (labs.state / "labs" / "own").is_dir():
                labs.run("down", "own")
    assert labs.left() == set()
