"""What a Windows node is given: as it was, and meant so; which versions go together."""

from __future__ import annotations

import json
from dataclasses import replace

import cluster_nodes
import pytest
from cluster_nodes import BUILDS, GOLDEN, MINORS, TOPOLOGIES, decided, manifest, seen
from golden_files import check_golden
from tables import table

from lab._errors import UsageError
from lab.machines.cluster import rules
from lab.windows.nodes import join_plan, paths
from lab.windows.nodes.join_checks import (
    WindowsObserved,
    images_for_build,
    join_refusals,
    missing_images,
    pause_image,
    too_old,
    version_refusal,
    year_of,
)
from lab.windows.nodes.join_plan import plugin_config


def proxy(minor, where=None):
    plan = decided("overlay", minor)
    return plan.proxy(where or seen("2022"), "10.244.3.2").command


@pytest.mark.parametrize("minor", MINORS)
def test_kube_proxy_on_an_overlay_gets_all_that_the_rules_have(minor):
    assert set(rules.flags("kube-proxy", "windows", minor)) <= set(proxy(minor).split())


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_bundle_has_what_the_rules_ask_for_each_topology(topology):
    """And what is copied has a place."""
    plan = decided(topology)
    lacking = [one for one in rules.missing(plan.manifest, plan.cluster) if "windows" in one]
    assert lacking == []
    places = {file.source: file.target for file in plan.bundle().files}
    assert places["bin/kubelet.exe"] == "C:\\k\\kubelet.exe"
    assert places["cni/host-local.exe"] == "C:\\opt\\cni\\bin\\host-local.exe"
    assert places["bin/containerd.exe"] == "C:\\Program Files\\containerd\\containerd.exe"


@pytest.mark.parametrize(("revision", "dsr"), [(1553, False), (1554, True)])
def test_windows_2019_has_direct_server_return_from_one_update_on(revision, dsr):
    old = WindowsObserved(17763, revision)
    command = proxy("1.33", old)
    assert f"--enable-dsr={str(dsr).lower()}" in command.split()
    assert ("WinDSR" in command) == dsr


def test_four_minors_are_known_and_kubelets_that_never_start_refused_by_name():
    for version in ("1.31.0", "1.31.1"):
        assert "does not start on Windows" in str(version_refusal(version))
    known = ("1.32.9", "1.33.0", "1.36.3", "1.37.0")
    assert [version_refusal(one) is None for one in known] == [False, True, True, False]


@pytest.mark.parametrize(("build", "revision", "topology", "said"), table("too-old"))
def test_windows_too_old_for_a_topology_is_refused_with_the_reason(build, revision, topology, said):
    found = too_old(WindowsObserved(build, revision), topology)
    assert (said in str(found)) if said else found is None


def test_release_is_read_of_an_images_name():
    table = {
        "windows-server-2022": "2022",
        "my-2019-core": "2019",
        "windows": None,
        "2019-to-2022": None,
    }
    assert {name: year_of(name) for name in table} == table


def test_images_are_those_of_the_nodes_own_build():
    bundle = manifest()
    for build in (17763, 20348):
        container_images = images_for_build(bundle, build)
        assert {image.os_version for image in container_images} == {f"10.0.{build}.1"}
        assert len(container_images) == 2
    assert pause_image(bundle, 20348) == "registry.k8s.io/pause:3.10.2"
    with pytest.raises(KeyError):
        pause_image(bundle, 26100)


def test_windows_2025_is_refused_until_its_images_are_in_the_bundle():
    found = missing_images(manifest(), 26100)
    assert len(found) == 2
    assert (
        "'registry.k8s.io/pause' for Windows build 26100: it has 10.0.17763.1, 10.0.20348.1"
        in found[0]
    )


def test_image_that_the_bundle_lacks_is_named_before_anything_is_created():
    plan = decided("overlay")
    bare = replace(plan.manifest, images=plan.manifest.images[:2])
    (refusal,) = join_refusals(plan.cluster, plan.intent, plan.node, bare)
    assert refusal.startswith("win1: the bundle has no image")
    assert "agnhost" in refusal
    assert join_refusals(plan.cluster, plan.intent, plan.node, plan.manifest) == ()


def test_everything_wrong_with_a_node_is_reported_at_once():
    plan = decided("overlay")
    made = replace(plan.cluster, topology="calico-bgp")
    node = replace(plan.node, version="1.31.1")
    refusals = join_refusals(made, plan.intent, node, replace(plan.manifest, images=()))
    assert len(refusals) == 4
    assert all(one.startswith("win1: ") for one in refusals)


def test_host_gateways_other_bridge_is_sdnbridge_with_the_second_address():
    plan = decided("host-gateway")
    plan = replace(plan, node=replace(plan.node, pod_cidr="10.10.187.0/26"))
    written = plugin_config(plan.cluster, plan.network, dsr=True)
    assert written is not None
    made = json.loads(written[1])["delegate"]
    flags = {"forceBridgeGateway": True, "loopbackDSR": True}
    assert (made["type"], made["optionalFlags"]) == ("sdnbridge", flags)


@pytest.mark.parametrize("topology", ["overlay", "host-gateway", "hard-way", "upstream-tor"])
def test_a_policy_that_the_plugin_drops_silently_is_refused(topology, monkeypatch):
    plan = decided(topology)
    old = {"Type": "OutBoundNAT", "ExceptionList": ["10.244.0.0/16"]}
    policies = [{"Name": "EndpointPolicy", "Value": old}]
    monkeypatch.setattr(join_plan, "_policies", lambda *_, **__: policies)
    with pytest.raises(UsageError, match="would drop a part of"):
        plugin_config(plan.cluster, plan.network, dsr=True)


@pytest.mark.parametrize("topology", ["overlay", "host-gateway", "hard-way", "upstream-tor"])
@pytest.mark.parametrize("dsr", [True, False])
def test_pods_get_their_way_to_themselves_only_with_direct_server_return(topology, dsr):
    plan = decided(topology)
    written = plugin_config(plan.cluster, plan.network, dsr=dsr)
    assert written is not None
    config = json.loads(written[1])
    plugin = config.get("delegate", config)
    assert plugin.get("optionalFlags", plugin)["loopbackDSR"] is dsr


def test_a_kubelet_has_no_flag_that_its_configuration_replaces():
    """X13: kubelet 1.36 calls them deprecated (AddKubeletConfigFlags)."""
    plan = decided("overlay")
    command = plan.kubelet(seen("2022"), start=True).command
    fields = ("runtime-endpoint", "debugging", "cgroups", "allocatable", "resolv")
    assert not [word for word in command.split() if any(field in word for field in fields)]
    (patch,) = (o for o in plan.files(cluster_nodes.JOIN).files if o.path == paths.KUBELET_PATCH)
    document = json.loads(plan.join(cluster_nodes.JOIN).document)
    assert patch.path.startswith(document["patches"]["directory"])
    assert json.loads(patch.text) == {
        "cgroupsPerQOS": False,
        "containerRuntimeEndpoint": "npipe:////./pipe/containerd-containerd",
        "enforceNodeAllocatable": [],
        "resolvConf": "",
    }


def test_host_gateways_routes_are_the_intents():
    plan = decided("host-gateway")
    routes = plan.intent.machine(plan.node.name).routes
    wanted = {(route.destination, route.via) for route in routes if route.destination != "default"}
    assert {(route.destination, route.via) for route in plan.routes().routes} == wanted
    assert len(wanted) == 4


@pytest.mark.parametrize("topology", ["calico-bgp", "ovn"])
def test_a_topology_that_is_only_documented_is_refused(topology):
    plan = decided("overlay")
    plan = replace(plan, cluster=replace(plan.cluster, topology=topology))
    with pytest.raises(UsageError, match="unverified"):
        assert plan.network


PAUSE = " --pod-infra-container-image=registry.k8s.io/pause:3.10.2"
GATES = " --feature-gates=WinDSR=true"
OVERLAY = ",WinOverlay=true"
FLAGS = {"1.33": (PAUSE, OVERLAY, GATES)}
"""What Kubernetes' programs are given below the newest minor, and the newest does not know."""

GIVEN = {
    OVERLAY: {"overlay", "kubeinit", "calico-vxlan"},
    GATES: set(TOPOLOGIES) - {"hard-way", "upstream-vrrp"},
}
"""Topologies with a flag that not all have."""


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_node_is_given_what_it_was_given(topology):
    of = TOPOLOGIES[topology].get("like")
    like = cluster_nodes.golden(of) if of else None
    check_golden(GOLDEN / f"{topology}.yaml", cluster_nodes.golden(topology), like)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("year", BUILDS)
@pytest.mark.parametrize("minor", MINORS)
def test_releases_differ_by_their_flags_alone(topology, year, minor):
    made = cluster_nodes.golden(topology, year, minor)
    for flag in FLAGS.get(minor, ()):
        assert made.count(flag) == (topology in GIVEN.get(flag, TOPOLOGIES))
        made = made.replace(flag, "")
    assert made == cluster_nodes.golden(topology)


def test_no_golden_is_of_nobody():
    of = TOPOLOGIES.items()
    names = {f"{name}.yaml.diff" if "like" in one else f"{name}.yaml" for name, one in of}
    assert {path.name for path in GOLDEN.iterdir()} == names


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("minor", MINORS)
def test_all_is_ascii_and_no_command_line_holds_a_quote_or_the_token(topology, minor):
    """PowerShell reads unmarked text in its code page, and hands sc.exe quotes unescaped."""
    made = cluster_nodes.everything(
        cluster_nodes.decided(topology, minor), cluster_nodes.seen("2022")
    )
    assert json.dumps(made, ensure_ascii=False).isascii()
    commands = [
        one["command"] for step in made["steps"] for one in step.values() if "command" in one
    ]
    assert len(commands) == 2
    assert not [
        command for command in commands if '"' in command or cluster_nodes.JOIN.token in command
    ]
