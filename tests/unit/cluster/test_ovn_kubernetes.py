"""ovn-kubernetes' documents and its nodes' own switch, against the scenario's figures."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from linux_clusters import Case, addon_documents, bundle, case

from lab._errors import PreflightError
from lab.cluster import rules
from lab.cluster.addons import ovn_kubernetes
from lab.cluster.linux.daemons import required_packages, unfit_daemons, wanted_daemons


@pytest.fixture(scope="module")
def made():
    return case("ovn")


def documents(made: Case) -> list[Any]:
    return list(addon_documents(made.cluster, made.intent, made.manifest))


def test_every_linux_node_keeps_its_part_of_the_plan_and_is_a_zone(made):
    nodes = [
        one["metadata"] for one in ovn_kubernetes.ADDON.node_documents(made.cluster, made.intent)
    ]
    given = {one["name"]: json.loads(one["annotations"][ovn_kubernetes.SUBNETS]) for one in nodes}
    assert given == {
        "master": {"default": ["10.0.1.0/24"]},
        "worker1": {"default": ["10.0.2.0/24"]},
        "worker2": {"default": ["10.0.3.0/24"]},
    }
    assert all(one["labels"] == {"k8s.ovn.org/zone-name": one["name"]} for one in nodes)


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
        images=tuple(one for one in bundle().images if "ovn-kube" not in one.name),
    )
    with pytest.raises(PreflightError, match=f"image '{ovn_kubernetes.IMAGE}:") as raised:
        rules.require(bare, linux)
    assert "lab bundle create --with ovn" in raised.value.hint
