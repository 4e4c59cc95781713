"""Which bundle a lab on real machines is made from, and what is said of it beforehand."""

import json
from dataclasses import replace
from pathlib import Path

import bundle_parts as parts
import pytest

from lab._errors import PreflightError
from lab.machines.bundle import medium
from lab.machines.bundle.manifest import Manifest
from lab.machines.bundle.store import BundleStore
from lab.machines.kubernetes import Bundled, find_bundle
from lab.plan.planner import make_plan
from lab.providers.provider import LabHandle
from lab.scenario.loader import find, load
from lab.topology.intent import Intent
from lab.topology.registry import intent

WINDOWS = True


@pytest.fixture(scope="module")
def overlay():
    """Nodes of both systems."""
    return intent(make_plan(load(find("overlay"))))


def without_windows(both: Intent) -> Intent:
    return replace(
        both, machines=tuple(machine for machine in both.machines if machine.os == "linux")
    )


def made(store: BundleStore, source: Path, version: str = "1.36.1", *systems: str) -> Manifest:
    versions = {**parts.VERSIONS, "kubernetes": version}
    (source / "versions.json").write_text(json.dumps(versions))
    for name in parts.IMAGES[:4]:
        file = name.replace("/", "_").replace(":", "_")
        named = name.replace("v1.36.1", f"v{version}")
        (source / "images" / f"{file}.tar").write_bytes(
            parts.oci_archive(named, [parts.Image(named)])
        )
    return parts.create(store, source, *systems)


def chosen(tmp_path: Path, wanted: Intent) -> Bundled:
    lab = LabHandle("here", tmp_path / "lab", "token")
    return find_bundle(lab, wanted, tmp_path / "cache", "")


def test_the_newest_bundle_that_has_the_systems_of_the_nodes_is_taken(
    store, source, tmp_path, overlay
):
    both = made(store, source)
    linux = made(store, source, "1.36.2", "linux")
    assert chosen(tmp_path, overlay).manifest == both
    assert chosen(tmp_path, without_windows(overlay)).manifest == linux


def test_a_missing_windows_bundle_is_reported(store, source, tmp_path, overlay):
    made(store, source, "1.36.1", "linux")
    with pytest.raises(PreflightError, match="has programs for linux and windows") as refused:
        chosen(tmp_path, overlay)
    command, instead = str(refused.value.hint).splitlines()
    assert command.startswith("lab bundle create --kubernetes 1.36  # downloads about ")
    assert "'--only linux'" in instead


def test_a_missing_linux_bundle_has_two_ways_out(tmp_path, overlay):
    with pytest.raises(PreflightError, match="there is none") as refused:
        chosen(tmp_path, without_windows(overlay))
    command, instead = str(refused.value.hint).splitlines()
    assert command.startswith("lab bundle create --kubernetes 1.36 --os linux  # downloads about ")
    assert "'--pods namespaces'" in instead


def test_damage_is_named_before_anything_is_made_as_long_as_there_is_no_medium(
    store, source, tmp_path, overlay
):
    both = made(store, source)
    bundled = chosen(tmp_path, overlay)
    bundled.check()
    kubelet = store.blob(both, both.program("kubelet", "linux").blob)
    whole = kubelet.read_bytes()
    kubelet.write_bytes(whole[:-1] + b"X")
    store.blob(both, both.image("registry.k8s.io/pause", "windows").config).unlink()
    with pytest.raises(PreflightError) as refused:
        bundled.check()
    assert "program 'kubelet' (linux): " in refused.value.happened
    with pytest.raises(PreflightError, match=r"'registry.k8s.io/pause:3.10.2' \(windows\)"):
        medium.medium(store, both, "windows")
    with pytest.raises(PreflightError, match="has other content"):
        medium.medium(store, both, "linux")
    assert not list(store.directory(both).rglob("*.iso"))
    kubelet.write_bytes(whole)
    medium.medium(store, both, "linux")
    kubelet.unlink()
    medium.check(store, both, "linux")


def test_every_kubelet_that_does_not_go_with_the_control_plane_is_named(
    store, source, tmp_path, overlay
):
    made(store, source)

    def kubelets(version: str) -> Intent:
        return replace(
            overlay,
            machines=tuple(
                replace(machine, kubelet=replace(machine.kubelet, version=version))
                if machine.kubelet and machine.kubelet.role == "worker"
                else machine
                for machine in overlay.machines
            ),
        )

    with pytest.raises(PreflightError, match="is 4 minors older") as refused:
        chosen(tmp_path, kubelets("1.32"))
    assert "'worker1' and 'worker2' and 'win1' and 'win2'" in refused.value.doing
    with pytest.raises(PreflightError) as refused:
        chosen(tmp_path, kubelets("1.34"))
    assert "kubelet 1.34 (node 'worker1'; it has 1.36.1)" in refused.value.happened
    assert "remove the node's own 'version' from the scenario" in refused.value.hint
