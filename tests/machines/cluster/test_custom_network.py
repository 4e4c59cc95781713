"""A network plug-in of somebody's own: its files, and a network of which nothing is known."""

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from linux_clusters import bundle

from lab._errors import BrokenError, PreflightError
from lab.lifecycle.compilation import compile_scenario
from lab.machines.addons.addon import addons
from lab.machines.addons.custom import list_daemon_sets, order_objects, read_objects
from lab.machines.base import require_fit
from lab.machines.cluster.cluster import plan_cluster, underlay
from lab.machines.cluster.linux.bring_up import addon_waves
from lab.machines.cluster.linux.node import copy_cni_programs, prepare_node
from lab.machines.cluster.linux.operations import Symlink
from lab.matrix.cells import cells
from lab.providers.netns.provider import NetnsProvider
from lab.providers.provider import LabHandle
from lab.topology.bind import bind
from lab.topology.intent import Intent
from lab.topology.observed import (
    ClusterObserved,
    ObservedNode,
    ObservedPod,
    ObservedService,
    PodLink,
)

SCENARIO = """\
name: mine
summary: a network plug-in of my own
kubernetes:
  version: "1.36"
  pod_cidr: 10.244.0.0/16
  node_prefix: 24
  service_cidr: 10.96.0.0/16
  dns_address: 10.96.0.10
network:
  cidr: 10.9.176.0/24
topology:
  kind: custom
  images: [net.tar]
nodes:
  - {name: control, os: linux, role: control-plane}
  - {name: worker, os: linux}
"""
MANIFEST = """\
apiVersion: v1
kind: List
items:
  - apiVersion: apps/v1
    kind: DaemonSet
    metadata: {name: net, namespace: kube-net}
    spec: {template: {spec: {volumes: [{configMap: {name: net, defaultMode: 0644}}]}}}
---
---
apiVersion: v1
kind: ConfigMap
metadata: {name: net, annotations: {made: 2026-11-29}}
---
apiVersion: v1
kind: Namespace
metadata: {name: kube-net}
spec: {mode: 0755}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A scenario with its files beside it."""
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    (tmp_path / "cni.yaml").write_text(MANIFEST)
    with tarfile.open(tmp_path / "net.tar", "w"):
        pass
    return tmp_path


def intent_of(folder: Path) -> Intent:
    return compile_scenario(folder / "mine.yaml", None, None, "kubernetes", real=True).intent


def test_objects_are_read_as_kubectl_reads_them(folder):
    daemon_set, config, space = read_objects(str(folder / "cni.yaml"))
    volume = daemon_set["spec"]["template"]["spec"]["volumes"][0]
    assert volume["configMap"]["defaultMode"] == 0o644
    assert space["spec"]["mode"] == 0o755
    assert config["metadata"]["annotations"] == {"made": "2026-11-29"}
    assert config["metadata"]["namespace"] == "default"
    kinds = [each["kind"] for each in order_objects((daemon_set, config, space))]
    assert kinds == ["Namespace", "DaemonSet", "ConfigMap"]
    assert list_daemon_sets((daemon_set, config)) == (("kube-net", "net"),)


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        *((word, True) for word in ("on", "y", "Yes", "TRUE")),
        *((word, False) for word in ("off", "n", "NO", "false")),
        *(("~", None), ("Null", None), ("tRUE", "tRUE"), ("=", "="), ("_1", "_1")),
        *(("0644", 0o644), ("-0o644", -0o644), ("0b11", 3), ("0x1F", 31), ("1_000", 1000)),
        *(("08", 8), ("1e3", 1000), ("1.", 1), (".5", 0.5), ("1e400", "1e400")),
        *(("12:30:45", "12:30:45"), ("2026-11-29", "2026-11-29"), ("'on'", "on"), ("!!str 1", "1")),
    ],
)
def test_a_scalar_has_the_type_that_kubectl_gives_it(tmp_path, scalar, value):
    """The values are those of sigs.k8s.io/yaml 1.6.0."""
    path = tmp_path / "cni.yaml"
    path.write_text(
        f"apiVersion: v1\nkind: A\nmetadata: {{name: a}}\nvalue: {scalar}\non: {{<<: {{1: 2}}}}\n"
    )
    (made,) = read_objects(str(path))
    assert (type(made["value"]), made["value"]) == (type(value), value)
    assert made["true"] == {"1": 2}


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("cni.yaml", None, "cni.yaml' cannot be read: no such file or directory"),
        ("cni.yaml", "a: [1, 2\nb: }", "cni.yaml' is not YAML (line 2)"),
        ("cni.yaml", "\0", "cni.yaml' is not YAML"),
        ("cni.yaml", "name: x", "document 1 of manifest"),
        ("cni.yaml", "[1]", "no Kubernetes object"),
        ("cni.yaml", "kind: List\nitems: 3", "no Kubernetes object"),
        ("cni.yaml", "", "no DaemonSet is in the manifests"),
        ("net.tar", None, "net.tar' cannot be read: no such file or directory"),
        ("net.tar", "words", "net.tar' of 'images' is no archive of an image"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(folder, file, text, reason):
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    with pytest.raises(PreflightError) as caught:
        require_fit(intent_of(folder))
    assert reason in caught.value.happened
    assert "\n" not in caught.value.happened
    assert "'manifests' and 'images'" in caught.value.hint


def test_files_are_relative_to_the_scenario_and_all_that_is_wrong_comes_at_once(
    folder, tmp_path_factory, monkeypatch
):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    require_fit(intent_of(folder))
    for name in ("cni.yaml", "net.tar"):
        (folder / name).unlink()
    with pytest.raises(PreflightError, match=r"cni\.yaml.*; .*net\.tar"):
        require_fit(intent_of(folder))


def test_namespaces_refuse_it_by_name(folder):
    made = compile_scenario(folder / "mine.yaml")
    lab = LabHandle("mine", folder, "token")
    with pytest.raises(PreflightError, match="network of topology 'custom' exists on Kubernetes"):
        NetnsProvider().preflight(lab, made.intent)
    with pytest.raises(PreflightError, match="topology 'custom'") as caught:
        require_fit(made.intent)
    assert "--pods kubernetes" in caught.value.hint


def test_dns_waits_for_every_daemon_set_and_nodes_have_plugins_that_can_be_replaced(folder):
    intent, manifest = intent_of(folder), bundle("1.36.3")
    cluster = plan_cluster("mine", intent, manifest)
    objects, dns = addon_waves(cluster, intent, manifest)
    assert [each["kind"] for each in objects.documents] == ["Namespace", "DaemonSet", "ConfigMap"]
    assert dns.after == (("kube-net", "net"),)
    operations = prepare_node(cluster, intent, cluster.nodes[0], manifest)
    assert copy_cni_programs() in operations
    linked = [each.path for each in operations if isinstance(each, Symlink)]
    assert not any(path.startswith("/opt/cni") for path in linked)
    assert addons()["custom"].archives(intent) == (folder / "net.tar",)


def test_nodes_have_no_devices_of_a_pod_network(folder):
    intent = intent_of(folder)
    assert underlay(intent).machine("worker") == replace(
        underlay(intent).machine("worker"), bridge=None, tunnel=None
    )
    worker = intent.machine("worker")
    assert [route.destination for route in worker.routes] == ["default"]
    assert intent.control_plane() == "control"


def observed(intent: Intent, **addresses: str) -> ClusterObserved:
    pods = [
        (pod.name, machine.name)
        for machine in intent.machines
        for pod in machine.pods
        if pod.role == "probe"
    ]
    given = {name: f"192.168.7.{at}" for at, (name, _) in enumerate(pods, start=1)} | addresses
    services = {
        service.name: ObservedService(service.name, service.address)
        for machine in intent.machines
        for service in (machine.translation.services if machine.translation else ())
    }
    return ClusterObserved(
        pods=tuple(
            ObservedPod(name, node, given[name], "Running", ready=True, trouble="")
            for name, node in pods
        ),
        dns=(),
        services=tuple(services.values()),
        nodes=tuple(
            ObservedNode(machine.name, machine.kubelet.pod_cidr, None)
            for machine in intent.machines
            if machine.kubelet
        ),
        links=tuple(PodLink(name, "", "lxc1", 1370, "") for name, _ in pods),
    )


def test_addresses_may_be_outside_the_range_that_the_node_has(folder):
    intent = intent_of(folder)
    bound = bind(intent, observed(intent))
    assert bound.places()["worker-p1"][1].address.startswith("192.168.7.")
    assert bound.pod_mtu == 1370
    assert [route.destination for route in bound.machine("worker").routes] == ["default"]
    with pytest.raises(BrokenError, match="both have address"):
        bind(intent, observed(intent, **{"worker-p1": "192.168.7.1"}))


def test_the_same_pods_on_a_planned_network_contradict_it(folder):
    text = SCENARIO.replace("kind: custom\n  images: [net.tar]", "kind: overlay")
    (folder / "mine.yaml").write_text(text)
    intent = intent_of(folder)
    with pytest.raises(BrokenError, match=r"has address 192\.168\.7\.1, which is not in"):
        bind(intent, observed(intent))


def test_sources_are_kubernetes_promise_between_pods_and_any_elsewhere(folder):
    made = compile_scenario(folder / "mine.yaml", None, None, "kubernetes", real=True)
    intent = bind(made.intent, observed(made.intent))
    sources = {cell.family: cell.sources for cell in cells(made.plan, intent)}
    assert sources["pod-pod"]
    assert not sources["pod-service"] | sources["node-pod"] | sources["nodeport"]
    assert {"node-pod", "nodeport", "pod-node", "pod-external"} <= sources.keys()
