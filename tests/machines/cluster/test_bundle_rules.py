"""Which versions go together, what a bundle lacks for a cluster, and its bill of materials."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import bundle_parts as parts
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from linux_clusters import bundle
from packageurl import PackageURL

from lab._errors import PreflightError
from lab.machines.bundle import directory
from lab.machines.bundle.manifest import (
    SYSTEMS,
    Blob,
    ContainerImage,
    Layer,
    Manifest,
    wanted_assets,
    wanted_images,
)
from lab.machines.bundle.sbom import SPECIFICATION, bill_of_materials
from lab.machines.bundle.store import BundleStore
from lab.machines.cluster import rules
from lab.machines.cluster.cluster import Cluster, plan_cluster
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load
from lab.scenario.versions import SUPPORTED
from lab.topology.registry import intent

CASES = Path(__file__).parents[2] / "cases" / "bundle"


def cases(name: str) -> list[Any]:
    return json.loads((CASES / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    place = tmp_path_factory.mktemp("whole")
    source = parts.directory(place / "given", windows=True)
    return directory.create(BundleStore(place / "cache"), source, (), None, print)


def decided(scenario: str, bundle: Manifest) -> Cluster:
    return plan_cluster("here", intent(make_plan(load(find(scenario)))), bundle)


def without(manifest: Manifest, *names: str) -> Manifest:
    return replace(
        manifest,
        programs=tuple(program for program in manifest.programs if program.name not in names),
        images=tuple(
            image
            for image in manifest.images
            if image.name.rpartition(":")[0].rpartition("/")[2] not in names
        ),
    )


@pytest.mark.parametrize("case", cases("skew"), ids=lambda case: case["kubelet"])
def test_skew_follows_the_policy(case):
    assert rules.skew(case["control plane"], case["kubelet"]) == case["refused"]


@pytest.mark.parametrize("case", cases("flags"), ids=lambda case: f"{case['program']}-{case['os']}")
def test_programs_are_given_what_their_version_takes(case):
    assert list(rules.flags(case["program"], case["os"], case["version"])) == case["given"]


@pytest.mark.parametrize("minor", SUPPORTED)
def test_every_minor_has_all_its_components(minor):
    versions = {**rules.components(minor), "kubernetes": f"{minor}.0"}
    assert len(list(wanted_assets(versions, SYSTEMS))) > 20
    assert len(list(wanted_images(versions, SYSTEMS))) == len(parts.IMAGES)


@pytest.mark.parametrize("scenario", ["overlay", "host-gateway", "upstream-tor", "hard-way"])
def test_a_whole_bundle_lacks_nothing(whole, scenario):
    assert rules.missing(whole, decided(scenario, whole)) == ()
    rules.require(whole, decided(scenario, whole))


@pytest.mark.parametrize(
    ("scenario", "gone", "said"),
    [
        ("overlay", "kubelet", "program 'kubelet' for linux"),
        ("overlay", "kubelet.exe", "program 'kubelet.exe' for windows"),
        ("overlay", "kube-log-runner.exe", "program 'kube-log-runner.exe' for windows"),
        ("overlay", "kubeadm", "program 'kubeadm' for linux"),
        ("overlay", "kube-apiserver", "image 'registry.k8s.io/kube-apiserver:v1.36.1' for linux"),
        ("overlay", "coredns", "image 'registry.k8s.io/coredns/coredns' for linux"),
        ("overlay", "flannel", "image 'ghcr.io/flannel-io/flannel' for linux"),
        ("overlay", "cni/sdnoverlay.exe", "program 'cni/sdnoverlay.exe' for windows"),
        ("overlay", "cni/win-bridge.exe", None),
        ("host-gateway", "cni/sdnbridge.exe", "program 'cni/sdnbridge.exe' for windows"),
        ("upstream-tor", "cni/win-bridge.exe", "program 'cni/win-bridge.exe' for windows"),
        ("upstream-tor", "flannel", None),
        ("hard-way", "kubeadm", None),
        ("hard-way", "cni/sdnbridge.exe", "program 'cni/sdnbridge.exe' for windows"),
        ("hard-way", "kube-apiserver", "program 'kube-apiserver' for linux"),
        ("hard-way", "etcd", "program 'etcd' for linux"),
    ],
)
def test_what_a_topology_needs_and_the_bundle_lacks_is_named(whole, scenario, gone, said):
    lacking = rules.missing(without(whole, gone), decided(scenario, whole))
    assert lacking == ((said,) if said else ())


def test_everything_missing_is_reported_at_once_before_anything_is_made(whole):
    bare = without(whole, "runc", "pause", "kubelet.exe")
    with pytest.raises(PreflightError) as refused:
        rules.require(bare, decided("overlay", whole))
    assert refused.value.happened == (
        "it lacks program 'runc' for linux, image 'registry.k8s.io/pause' for linux, "
        "program 'kubelet.exe' for windows, image 'registry.k8s.io/pause' for windows"
    )


def test_a_windows_node_needs_images_with_a_base_of_its_build(whole):
    image = rules.windows_image(whole, "registry.k8s.io/pause", "10.0.17763.3650")
    assert image is not None
    assert image.os_version == "10.0.17763.6054"
    assert rules.windows_image(whole, "registry.k8s.io/pause", "10.0.99999.1") is None


def test_a_node_of_another_version_is_missing_its_kubelet_or_breaks_the_rule(whole):
    made = decided("overlay", whole)
    older = replace(made, nodes=(replace(made.nodes[1], version="1.34"),))
    assert rules.missing(whole, older) == ("kubelet 1.34 (node 'worker1'; it has 1.36.1)",)
    newer = replace(made, nodes=(replace(made.nodes[1], version="1.37.0"),))
    with pytest.raises(PreflightError, match="the version skew policy forbids") as refused:
        rules.require(whole, newer)
    assert refused.value.doing == "joining node 'worker1' to lab 'here'"


def test_a_containerd_that_is_too_old_for_the_minor_is_named(whole):
    versions = tuple((name, "1.7.27" if name == "containerd" else v) for name, v in whole.versions)
    old = replace(whole, versions=versions)
    assert rules.missing(old, decided("overlay", whole)) == (
        "containerd 2.0.0 or newer (it has 1.7.27)",
    )


BLOB = Blob("ab" * 32, 10)
WINDOWS = ContainerImage(
    "registry.k8s.io:443/e2e/pause:3.10",
    "windows",
    "10.0.20348.2762",
    BLOB,
    Blob("cd" * 32, 1),
    (Layer("application/vnd.oci.image.layer.v1.tar+gzip", Blob("ef" * 32, 5)),),
    "pulled",
)


@pytest.fixture
def manifest():
    manifest = bundle()
    newer = replace(WINDOWS, os_version="10.0.17763.1", manifest=Blob("12" * 32, 3))
    return replace(manifest, images=(*manifest.images, WINDOWS, newer))


def components(manifest: Manifest) -> list[dict[str, Any]]:
    components: list[dict[str, Any]] = json.loads(bill_of_materials(manifest))["components"]
    return components


def test_it_is_valid_by_the_schema_of_cyclonedx(manifest):
    validator = JsonStrictValidator(SchemaVersion.from_version(SPECIFICATION))
    assert validator.validate_str(bill_of_materials(manifest)) is None
    broken = bill_of_materials(manifest).replace('"SHA-256"', '"SHA-257"')
    assert validator.validate_str(broken) is not None, "else the validator sees nothing"


def test_every_program_and_every_image_is_in_it_once(manifest):
    found = components(manifest)
    refs = [one["bom-ref"] for one in found]
    assert len(set(refs)) == len(refs) == len(manifest.programs) + len(manifest.images)
    document = json.loads(bill_of_materials(manifest))
    assert document["dependencies"][0]["dependsOn"] == refs
    digests = {one["hashes"][0]["content"] for one in found}
    assert digests == {program.blob.sha256 for program in manifest.programs} | {
        image.manifest.sha256 for image in manifest.images
    }


def test_a_program_has_the_version_of_its_component_where_that_is_known(manifest):
    known, unknown = manifest.programs[:2]
    programs = (replace(known, component="kubernetes"), replace(unknown, component="own"))
    found = components(replace(manifest, programs=programs, images=()))
    assert {one["name"]: one.get("version") for one in found} == {
        known.name: manifest.kubernetes,
        unknown.name: None,
    }


def test_an_image_has_a_package_url_that_leads_back_to_it(manifest):
    (image, _) = [
        component for component in components(manifest) if component["name"].endswith("e2e/pause")
    ]
    assert (image["name"], image["version"]) == ("registry.k8s.io:443/e2e/pause", "3.10")
    url = PackageURL.from_string(image["purl"])
    assert (url.type, url.name) == ("oci", "pause")
    assert str(url.version).removeprefix("sha256:") in {"12" * 32, "ab" * 32}
    assert url.qualifiers == {
        "arch": "amd64",
        "repository_url": "registry.k8s.io:443/e2e/pause",
        "tag": "3.10",
    }


def test_the_same_bundle_gives_the_same_document_and_another_another(manifest):
    shuffled = replace(manifest, programs=tuple(reversed(manifest.programs)))
    assert bill_of_materials(shuffled) == bill_of_materials(manifest)
    other = replace(manifest, images=manifest.images[:1])
    one, two = (json.loads(bill_of_materials(each)) for each in (manifest, other))
    assert one["serialNumber"] != two["serialNumber"]
