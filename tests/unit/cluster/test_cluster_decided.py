from __future__ import annotations

from dataclasses import replace

import pytest

from lab._errors import PreflightError
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import plan_cluster, underlay
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load
from lab.topology.intent import Intent
from lab.topology.registry import intent as intent_of

BUNDLE = Manifest((("kubernetes", "1.36.1"),), (), ())


def shipped(name: str) -> Intent:
    return intent_of(make_plan(load(find(name))))


def test_nodes_get_the_bundles_patch_version() -> None:
    made = plan_cluster("x", shipped("overlay"), BUNDLE)
    assert made.version == "1.36.1"
    assert {node.version for node in made.nodes} == {"1.36.1"}
    assert made.how == "kubeadm"
    assert made.endpoint == made.control_planes()[0].address
    assert [node.name for node in made.nodes] == ["master", "worker1", "worker2", "win1", "win2"]


def test_control_planes_without_a_kubelet_are_made_by_hand() -> None:
    made = plan_cluster("x", shipped("hard-way"), BUNDLE)
    assert made.how == "by-hand"
    assert len(made.control_planes()) == 3
    assert all(node.pod_cidr is None for node in made.control_planes())


def test_a_bundle_of_another_minor_is_refused() -> None:
    other = replace(BUNDLE, versions=(("kubernetes", "1.35.9"),))
    with pytest.raises(PreflightError, match=r"holds Kubernetes 1\.35\.9"):
        plan_cluster("x", shipped("overlay"), other)


def test_the_underlay_keeps_cards_and_the_default_route_alone() -> None:
    whole = shipped("overlay")
    bare = underlay(whole)
    for machine, before in zip(bare.machines, whole.machines, strict=True):
        assert machine.interfaces == before.interfaces
        if machine.kind == "node":
            assert [route.destination for route in machine.routes] == ["default"]
            assert machine.bridge is None
            assert machine.tunnel is None
            assert not machine.pods
        else:
            assert machine == before
