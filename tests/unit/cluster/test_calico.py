"""Calico's documents against the figures of its scenarios and of its documentation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from linux_clusters import Case, bundle, case

from lab._errors import PreflightError
from lab.cluster import calico, rules
from lab.cluster.linux import addons, daemons, preparation
from lab.cluster.unverified import UNVERIFIED, unverified
from lab.topology.registry import topologies

SCENARIOS = ("calico-vxlan", "calico-bgp", "calico-bgp-tor")


def one(documents: Any, kind: str, name: str = "default") -> Any:
    (found,) = (d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name)
    return found["spec"]


def linux_alone(given: Case) -> Case:
    nodes = tuple(node for node in given.cluster.nodes if node.os == "linux")
    return replace(given, cluster=replace(given.cluster, nodes=nodes))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_node_has_a_pool_of_one_block_that_is_its_part_of_the_plan(scenario: str) -> None:
    made = case(scenario)
    network = one(calico.installation(made.cluster, made.intent), "Installation")["calicoNetwork"]
    assert {pool["nodeSelector"]: pool["cidr"] for pool in network["ipPools"]} == {
        f"kubernetes.io/hostname == '{node.name}'": node.pod_cidr for node in made.cluster.nodes
    }
    assert {pool["blockSize"] for pool in network["ipPools"]} == {26}
    assert network["nodeAddressAutodetectionV4"] == {"kubernetes": "NodeInternalIP"}


def test_vxlan_is_what_windows_asks_for() -> None:
    made = case("calico-vxlan")
    spec = one(calico.installation(made.cluster, made.intent), "Installation")
    network = spec["calicoNetwork"]
    assert (network["bgp"], network["windowsDataplane"], network["mtu"]) == (
        "Disabled",
        "HNS",
        1450,
    )
    assert {pool["encapsulation"] for pool in network["ipPools"]} == {"VXLAN"}
    assert spec["serviceCIDRs"] == ["10.96.0.0/12"]
    settings = calico.configuration(made.cluster, made.intent)
    assert one(settings, "IPAMConfiguration") == {"strictAffinity": True}
    felix = one(settings, "FelixConfiguration")
    assert felix == {"vxlanVNI": 4096, "vxlanPort": 4789, "vxlanMTU": 1450}


def test_without_windows_nodes_nothing_is_asked_for_them() -> None:
    made = linux_alone(case("calico-vxlan"))
    network = one(calico.installation(made.cluster, made.intent), "Installation")["calicoNetwork"]
    assert "windowsDataplane" not in network


def test_in_a_mesh_all_nodes_are_one_system() -> None:
    made = case("calico-bgp")
    documents = (
        *calico.installation(made.cluster, made.intent),
        *calico.configuration(made.cluster, made.intent),
    )
    settings = one(documents, "BGPConfiguration")
    assert settings == {"asNumber": 64512, "nodeToNodeMeshEnabled": True}
    assert {d["kind"] for d in documents}.isdisjoint({"BGPPeer", "Node"})
    assert not daemons.wanted(made.intent), "Calico brings its own BIRD"


def test_with_the_router_each_node_is_a_system_and_the_router_knows_them() -> None:
    made = case("calico-bgp-tor")
    documents = calico.configuration(made.cluster, made.intent)
    assert one(documents, "BGPConfiguration") == {"nodeToNodeMeshEnabled": False}
    peer = one(documents, "BGPPeer", "router")
    assert (peer["peerIP"], peer["asNumber"]) == ("10.30.0.1", 64512)
    numbers = {
        document["metadata"]["name"]: document["metadata"]["annotations"]
        for document in calico.installation(made.cluster, made.intent)
        if document["kind"] == "Node"
    }
    (bird,) = daemons.wanted(made.intent)["router"]
    for node in made.cluster.nodes:
        if node.os == "linux":
            asn = numbers[node.name]["projectcalico.org/ASNumber"]
            assert f"neighbor {node.address} as {asn};" in bird.files[0].text
    assert daemons.wanted(made.intent).keys() == {"router"}
    assert bird.ready.pattern == "^Daemon is up and running", "it learns nothing before the pods"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_kinds_that_the_operator_brings_come_after_it(scenario: str) -> None:
    made = case(scenario)
    waves = addons.waves(made.cluster, made.intent, made.manifest)
    first, second, third, _names = (wave.documents for wave in waves)
    assert "tigera-operator" in {d["metadata"]["name"] for d in first if d["kind"] == "Deployment"}
    assert {d["apiVersion"] for d in second} <= {"operator.tigera.io/v1", "v1"}
    assert {d["apiVersion"] for d in third} == {"projectcalico.org/v3"}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_bundle_without_calico_is_refused_naming_every_image(scenario: str) -> None:
    made = linux_alone(case(scenario))
    rules.require(made.manifest, made.cluster)
    bare = replace(
        made.manifest,
        images=tuple(image for image in bundle().images if not image.name.startswith("quay.io/")),
    )
    with pytest.raises(PreflightError) as raised:
        rules.require(bare, made.cluster)
    for image in calico.IMAGES:
        assert f"image '{image}:v" in raised.value.happened
    assert "lab bundle create --with calico" in raised.value.cure


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_images_that_are_asked_for_are_put_on_every_linux_node(scenario: str) -> None:
    made = case(scenario)
    for node in made.cluster.nodes:
        if node.os == "linux":
            held = set(preparation.repositories(made.cluster, node))
            assert held >= set(calico.IMAGES)


def test_what_nobody_has_run_is_said_of_clusters_alone() -> None:
    made = case("calico-bgp")
    assert "unverified: Calico's operator" in unverified(made.intent)
    assert not unverified(replace(made.intent, kubernetes=None))
    assert not unverified(case("overlay").intent)
    assert set(UNVERIFIED) <= set(topologies())
