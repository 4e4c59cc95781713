"""Documents of network add-ons: a scenario's figures, and only what their kinds know."""

import json
from dataclasses import replace
from typing import Any

import pytest
from linux_clusters import Case, addon_documents, bundle, case, linux_only, of_every_topology

from lab._errors import PreflightError
from lab.lifecycle.compilation import compile_scenario
from lab.machines.addons import ovn_kubernetes
from lab.machines.addons.addon import addons
from lab.machines.addons.calico import (
    DAEMON_SET,
    IMAGES,
    NAMESPACE,
    OPERATOR_IMAGES,
    operator_waves,
)
from lab.machines.cluster import rules
from lab.machines.cluster.linux.bring_up import addon_waves
from lab.machines.cluster.linux.daemons import required_packages, unfit_daemons, wanted_daemons
from lab.machines.cluster.linux.joining import leave_cluster
from lab.machines.cluster.linux.node import node_images
from lab.machines.cluster.linux.operations import Remove, Run
from lab.machines.cluster.probe_manifests import ObjectOwner, manifests

SCENARIOS = ("calico-vxlan", "calico-bgp", "calico-bgp-tor")
WINDOWS_IMAGES = OPERATOR_IMAGES


def one(documents: Any, kind: str, name: str = "default") -> Any:
    (document,) = (d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name)
    return document["spec"]


def every(given: Case) -> tuple[Any, ...]:
    return addon_documents(given.cluster, given.intent, given.manifest)


def selected(given: Case) -> dict[str, str | None]:
    return {f"kubernetes.io/hostname == '{n.name}'": n.pod_cidr for n in given.cluster.nodes}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_node_has_a_pool_of_one_block_that_is_its_part_of_the_plan(scenario):
    made = case(scenario)
    network = one(every(made), "Installation")["calicoNetwork"]
    assert {pool["nodeSelector"]: pool["cidr"] for pool in network["ipPools"]} == selected(made)
    assert {pool["blockSize"] for pool in network["ipPools"]} == {26}
    assert network["nodeAddressAutodetectionV4"] == {"kubernetes": "NodeInternalIP"}
    alone = linux_only(made)
    pools = [d["spec"] for d in every(alone) if d["kind"] == "IPPool"]
    assert {pool["nodeSelector"]: pool["cidr"] for pool in pools} == selected(alone)
    assert {(pool["blockSize"], pool["natOutgoing"]) for pool in pools} == {(26, True)}


def test_calico_makes_its_network_on_the_card_of_the_windows_nodes_address():
    """X2: without a name it takes the first, which is the management network's."""
    made = case("calico-vxlan")
    adapter = one(every(made), "Installation")["windowsNodes"]["vxlanAdapter"]
    for node in made.cluster.nodes:
        if node.os == "windows":
            cards = {card.name: card for card in made.intent.machine(node.name).interfaces}
            assert cards[adapter].addresses[0].startswith(f"{node.address}/")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_both_ways_have_the_same_settings(scenario):
    made = linux_only(case(scenario))
    with_operator = [
        document
        for wave in operator_waves(made.cluster, made.intent, made.manifest)
        for document in wave
    ]
    stored = {"IPAMConfiguration": "IPAMConfig"}
    settings = {
        (stored.get(d["kind"], d["kind"]), d["metadata"]["name"]): d["spec"]
        for d in with_operator
        if d["apiVersion"] == "projectcalico.org/v3"
    }
    plain = {(d["kind"], d["metadata"]["name"]): d.get("spec") for d in every(made)}
    for key, spec in settings.items():
        assert plain[key].items() >= spec.items()
    assert (NAMESPACE, DAEMON_SET) in {
        (d["metadata"].get("namespace"), d["metadata"]["name"]) for d in every(made)
    }


def test_without_windows_nodes_there_is_no_operator_and_no_api_server_of_calico_s():
    documents = every(linux_only(case("calico-vxlan")))
    assert not [d for d in documents if d["apiVersion"].startswith(("operator.", "projectcalico."))]
    kinds = {d["metadata"]["name"] for d in documents if d["kind"] == "CustomResourceDefinition"}
    assert {"ippools.crd.projectcalico.org", "ipamblocks.crd.projectcalico.org"} <= kinds
    workloads = {
        d["metadata"]["name"] for d in documents if d["kind"] in {"DaemonSet", "Deployment"}
    }
    assert workloads == {"calico-node", "calico-kube-controllers", "coredns"}


@pytest.mark.parametrize(
    ("scenario", "backend", "encapsulated"),
    [("calico-vxlan", "vxlan", "Always"), ("calico-bgp", "bird", "Never")],
)
def test_the_backend_goes_with_the_pools(scenario, backend, encapsulated):
    documents = every(linux_only(case(scenario)))
    pod = one(documents, "DaemonSet", "calico-node")["template"]["spec"]
    given = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
    assert given["CALICO_NETWORKING_BACKEND"] == backend
    assert {d["spec"]["vxlanMode"] for d in documents if d["kind"] == "IPPool"} == {encapsulated}
    (installer,) = pod["initContainers"]
    asked = {e["name"]: e.get("value") for e in installer["env"]}
    plugin = json.loads(asked["CNI_NETWORK_CONFIG"])["plugins"][0]
    assert plugin["mtu"] == (1450 if backend == "vxlan" else 1500)


def test_a_node_that_leaves_loses_all_that_calico_made_on_it():
    made = linux_only(case("calico-vxlan"))
    operations = leave_cluster(made.cluster)
    (script,) = (o.command[-1] for o in operations if isinstance(o, Run) and o.command[0] == "sh")
    made_by_calico = addons()["calico-bgp"].footprint
    for name in (*made_by_calico.devices, *made_by_calico.tables):
        assert name in script
    assert "kube-proxy" in script
    removed = {path for o in operations if isinstance(o, Remove) for path in o.paths}
    assert removed >= set(made_by_calico.paths)
    assert "/etc/cni/net.d/10-calico.conflist" in removed


def test_in_a_mesh_all_nodes_are_one_system():
    made = case("calico-bgp")
    settings = one(every(made), "BGPConfiguration")
    assert settings == {"asNumber": 64512, "nodeToNodeMeshEnabled": True}
    assert "BGPPeer" not in {d["kind"] for d in every(made)}
    assert not addons()[made.cluster.topology].node_documents(made.cluster, made.intent)
    assert not wanted_daemons(made.intent), "Calico brings its own BIRD"


def test_with_the_router_each_node_is_a_system_and_the_router_knows_them():
    made = case("calico-bgp-tor")
    documents = every(made)
    assert one(documents, "BGPConfiguration") == {"nodeToNodeMeshEnabled": False}
    peer = one(documents, "BGPPeer", "router")
    assert (peer["peerIP"], peer["asNumber"]) == ("10.30.0.1", 64512)
    numbers = {
        document["metadata"]["name"]: document["metadata"]["annotations"]
        for document in addons()[made.cluster.topology].node_documents(made.cluster, made.intent)
    }
    (bird,) = wanted_daemons(made.intent)["router"]
    for node in made.cluster.nodes:
        if node.os == "linux":
            asn = numbers[node.name]["projectcalico.org/ASNumber"]
            assert f"neighbor {node.address} as {asn};" in bird.files[0].text
    assert wanted_daemons(made.intent).keys() == {"router"}
    assert bird.ready.pattern == "^Daemon is up and running", "it learns nothing before the pods"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_kinds_that_the_operator_brings_come_after_it(scenario):
    made = case(scenario)
    waves = addon_waves(made.cluster, made.intent, made.manifest)
    first, second, third, _names = (wave.documents for wave in waves)
    assert "tigera-operator" in {d["metadata"]["name"] for d in first if d["kind"] == "Deployment"}
    assert {d["apiVersion"] for d in second} == {"operator.tigera.io/v1"}
    assert {d["apiVersion"] for d in third} == {"projectcalico.org/v3"}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_bundle_without_calico_is_refused_naming_every_image(scenario):
    made = linux_only(case(scenario))
    rules.require(made.manifest, made.cluster)
    bare = replace(
        made.manifest,
        images=tuple(image for image in bundle().images if not image.name.startswith("quay.io/")),
    )
    with pytest.raises(PreflightError) as raised:
        rules.require(bare, made.cluster)
    for image in IMAGES:
        assert f"image '{image}'" in raised.value.happened
    for image in WINDOWS_IMAGES:
        assert image not in raised.value.happened
    assert "--os linux --with calico'" in raised.value.hint


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_linux_node_has_every_image(scenario):
    made = case(scenario)
    for node in made.cluster.nodes:
        if node.os == "linux":
            images = node_images(made.cluster, node, made.manifest)
            names = {image.name.rpartition(":")[0] for image in images}
            assert names >= {*IMAGES, *OPERATOR_IMAGES}


def test_only_a_cluster_with_windows_is_marked_unverified():
    made = case("calico-bgp")
    unverified = addons()["calico-bgp"].unverified
    assert "Calico's operator" in unverified(made.intent)
    linux = tuple(machine for machine in made.intent.machines if machine.os == "linux")
    assert not unverified(replace(made.intent, machines=linux))
    assert not addons()["overlay"].unverified(case("overlay").intent)


@pytest.fixture(scope="module")
def made():
    return case("ovn")


def documents(made: Case) -> list[Any]:
    return list(addon_documents(made.cluster, made.intent, made.manifest))


def test_every_linux_node_keeps_its_part_of_the_plan_and_is_a_zone(made):
    nodes = [
        document["metadata"]
        for document in ovn_kubernetes.ADDON.node_documents(made.cluster, made.intent)
    ]
    given = {
        node["name"]: json.loads(node["annotations"][ovn_kubernetes.SUBNETS]) for node in nodes
    }
    assert given == {
        "master": {"default": ["10.0.1.0/24"]},
        "worker1": {"default": ["10.0.2.0/24"]},
        "worker2": {"default": ["10.0.3.0/24"]},
    }
    assert all(node["labels"] == {"k8s.ovn.org/zone-name": node["name"]} for node in nodes)


def test_nodes_have_no_daemons_of_the_labs_but_the_package_of_the_switch(made):
    assert not wanted_daemons(made.intent)
    assert not unfit_daemons(made.intent)
    wanted = required_packages(made.intent)
    assert wanted == {one: {"openvswitch-switch"} for one in ("master", "worker1", "worker2")}


def test_a_bundle_without_it_is_refused_naming_the_image(made):
    nodes = tuple(node for node in made.cluster.nodes if node.os == "linux")
    linux = replace(made.cluster, nodes=nodes)
    rules.require(made.manifest, linux)
    bare = replace(
        made.manifest,
        images=tuple(image for image in bundle().images if "ovn-kube" not in image.name),
    )
    with pytest.raises(PreflightError, match=f"image '{ovn_kubernetes.IMAGE}:") as raised:
        rules.require(bare, linux)
    assert "--os linux --with ovn'" in raised.value.hint


OF_THE_ADD_ONS = ("operator.tigera.io/v1", "projectcalico.org/v3", "crd.projectcalico.org/v1")


def returned(document: Any) -> Any:
    """What is left of a document that went through its kind's model."""
    from kubernetes import client  # noqa: PLC0415  slow

    api = client.ApiClient()
    model = getattr(client, f"V1{document['kind']}")
    read = api._ApiClient__deserialize(document, model)  # type: ignore[attr-defined]
    return api.sanitize_for_serialization(read)


@pytest.mark.parametrize("windows", [True, False])
@pytest.mark.parametrize("scenario", [*of_every_topology(), "calico-bgp-tor"])
def test_nothing_in_a_document_is_unknown_to_its_kind(scenario, windows):
    one = case(scenario) if windows else linux_only(case(scenario))
    plain = [
        document
        for document in addon_documents(one.cluster, one.intent, one.manifest)
        if document["apiVersion"] not in OF_THE_ADD_ONS
    ]
    assert len(plain) > 4
    for document in plain:
        assert returned(document) == document, document["metadata"]["name"]


@pytest.mark.parametrize("scenario", ["overlay", "services", "kubeinit"])
def test_nothing_in_a_probe_pod_or_service_is_unknown_to_its_kind(scenario):
    owner, images = ObjectOwner("mine", "abc"), {"linux": "agnhost:l", "windows": "agnhost:w"}
    made = manifests(compile_scenario(scenario).intent, owner, images)
    for kind, documents in (("Pod", made.pods), ("Service", made.services)):
        assert documents
        for document in documents:
            assert document["kind"] == kind
            assert returned(document) == document, document["metadata"]["name"]


def test_a_misspelt_key_is_seen():
    bad = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"nmae": "x"}}
    assert returned(bad) != bad
