"""Rules that hold for every scenario, whatever the files of the golden test say."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from linux_clusters import Case, addon_documents, bundle, case
from processes import run_program

from lab._errors import PreflightError
from lab.cluster import rules
from lab.cluster.addons import addon
from lab.cluster.addons.bridges import bridge_config
from lab.cluster.cluster import plan_cluster, underlay
from lab.cluster.kubeadm import (
    api_server_arguments,
    static_pod_patches,
)
from lab.cluster.linux.node import haproxy_config, node_images, prepare_node
from lab.cluster.linux.operations import Symlink
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load
from lab.topology.intent import MachineIntent
from lab.topology.registry import intent as intent_of

SCENARIOS = ("overlay", "host-gateway", "upstream-tor", "hard-way", "upstream-vrrp", "calico-vxlan")
WORKLOADS = {"Deployment", "DaemonSet", "StatefulSet", "Job", "CronJob", "Pod"}


def nodes(one: Case) -> list[MachineIntent]:
    return [one.intent.machine(node.name) for node in one.cluster.nodes if node.os == "linux"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_image_of_a_workload_is_on_every_node_it_may_land_on(scenario):
    one = case(scenario)
    wanted = {
        container["image"]
        for document in addon_documents(one.cluster, one.intent, one.manifest)
        if document["kind"] in WORKLOADS
        for container in document["spec"]["template"]["spec"]["containers"]
    }
    for node in one.cluster.nodes:
        if node.os == "linux" and node.pod_cidr:
            held = {image.name for image in node_images(one.cluster, node, one.manifest)}
            assert wanted <= held, node.name


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_program_that_is_linked_is_asked_of_the_bundle(scenario):
    one = case(scenario)
    for node in one.cluster.nodes:
        if node.os != "linux":
            continue
        done = prepare_node(one.cluster, one.intent, node, one.manifest)
        linked = {op.path.rpartition("/")[2] for op in done if isinstance(op, Symlink)}
        needs = rules.missing(replace(one.manifest, programs=()), one.cluster)
        asked = {what.split("'")[1].rpartition("/")[2] for what in needs if "program " in what}
        beside = {"crictl", "flannel", "flanneld"}  # of the bundle, wanted or not
        assert linked - beside <= asked | {"kubeadm"}, node.name


@pytest.mark.skipif(shutil.which("unshare") is None, reason="util-linux is not installed")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nft_takes_the_table_twice(scenario, tmp_path):
    one = case(scenario)
    translation = next(m.translation for m in nodes(one) if m.translation)
    rules = tmp_path / "pods.nft"
    rules.write_text(addon.masquerade(translation))
    load = f"nft -f {rules} && nft -f {rules} && nft list table ip {addon.TABLE}"
    words = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", load]
    done = run_program(words, check=False)
    if "nft: not found" in done.stderr or "unshare failed" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("masquerade") == 1


def test_the_balancer_waits_for_an_emulated_api_server_as_long_as_it_leaves_between_looks():
    one = case("overlay", planes=3)
    for patience, seconds in ((1, 3), (8, 12)):
        text = haproxy_config(one.cluster, one.intent, patience)
        assert f"    timeout check {seconds}s\n" in text
        assert f" inter {seconds}s fall 3 " in text


def test_a_probe_that_a_minor_may_not_have_is_not_patched():
    older, newer = static_pod_patches("1.33.2", 8), static_pod_patches("1.36.3", 8)
    assert older.keys() == newer.keys()
    assert "readinessProbe" not in newer["kube-controller-manager+strategic.json"]
    assert "readinessProbe" not in older["kube-scheduler+strategic.json"]
    assert "readinessProbe" in newer["kube-scheduler+strategic.json"]
    assert static_pod_patches("1.36.3", 1) == {}


@pytest.mark.parametrize(
    ("ports", "arguments"),
    [
        ((30000, 32767), {}),
        ((20000, 20999), {"service-node-port-range": "20000-20010"}),
        ((32760, 40000), {"service-node-port-range": "32760-32770"}),
    ],
)
def test_node_ports_outside_of_the_default_range_change_it(ports, arguments):
    scenario = load(find("overlay"))
    services = scenario.services.replace(node_ports=ports)
    intent = intent_of(make_plan(scenario.replace(services=services)))
    assert api_server_arguments(intent, 1) == arguments


def test_a_linux_node_behind_a_gateway_answers_for_its_pods_and_leaves_the_gateway_free():
    scenario = load(Path(__file__).parents[2] / "failover.yaml")
    worker = intent_of(make_plan(scenario)).machine("worker")
    given = json.loads(bridge_config(worker))["plugins"][0]["ipam"]["ranges"][0][0]
    assert given == {
        "subnet": "10.160.3.0/24",
        "gateway": "10.160.3.2",
        "rangeStart": "10.160.3.3",
    }
    unit = addon.masqueraded(worker)[1].content
    for device in ("eth1", "cbr0"):
        assert f"net.ipv4.conf.{device}.proxy_arp=1" in unit
    assert "After=network-pre.target hybridlab-network.service" in unit


def test_a_bundle_of_another_minor_is_refused():
    with pytest.raises(PreflightError, match=r"holds Kubernetes 1\.35\.9"):
        plan_cluster("x", case("overlay").intent, bundle("1.35.9"))


def test_the_underlay_keeps_cards_and_the_default_route_alone():
    whole = case("overlay").intent
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
