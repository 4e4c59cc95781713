"""Rules for every scenario, and what differs on nodes that share the kernel of their host."""

import json
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from linux_clusters import Case, addon_documents, bundle, case
from linux_world import World
from processes import run_program
from test_linux_golden import TICKET

from lab._deadline import Deadline
from lab._errors import DeadlineError, PreflightError
from lab.machines.addons import addon
from lab.machines.addons.bridges import bridge_config
from lab.machines.cluster import rules
from lab.machines.cluster.cluster import VIRTUAL_MACHINE, HostTraits, plan_cluster, underlay
from lab.machines.cluster.kubeadm import (
    api_server_arguments,
    init_documents,
    join_documents,
    kube_proxy_config,
    kubelet_config,
    static_pod_patches,
)
from lab.machines.cluster.linux.api import (
    ClusterApi,
    daemon_set_rollout,
    node_condition,
    unready_nodes,
)
from lab.machines.cluster.linux.hard_way import worker_kubelet_config
from lab.machines.cluster.linux.node import (
    containerd_config,
    haproxy_config,
    node_images,
    prepare_machine,
    prepare_node,
)
from lab.machines.cluster.linux.operations import Operations, Run, Symlink, WriteFile
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load
from lab.topology import footprint
from lab.topology.intent import MachineIntent
from lab.topology.registry import intent as intent_of

SCENARIOS = ("overlay", "host-gateway", "upstream-tor", "hard-way", "upstream-vrrp", "calico-vxlan")
WORKLOADS = {"Deployment", "DaemonSet", "StatefulSet", "Job", "CronJob", "Pod"}


def nodes(case: Case) -> list[MachineIntent]:
    return [case.intent.machine(node.name) for node in case.cluster.nodes if node.os == "linux"]


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
    load = f"nft -f {rules} && nft -f {rules} && nft list table ip {footprint.POD_TABLE}"
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
    unit = addon.load_masquerade(worker)[1].content
    for device in ("eth1", "cbr0"):
        assert f"net.ipv4.conf.{device}.proxy_arp=1" in unit
    assert "After=network-pre.target hybridlab-network.service" in unit
    created = "ExecStart=-/usr/sbin/ip link add name cbr0 type bridge\n"
    assert f"{created}ExecStart=/usr/sbin/ip link set dev cbr0 mtu 1500\n" in unit


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


SHARED = HostTraits(shared_kernel=True)
OF_ITS_OWN = VIRTUAL_MACHINE
V1 = HostTraits(cgroup_v1=True)
CAPPED = HostTraits(can_lower_oom_score=False)


def on(host: HostTraits, scenario: str = "overlay") -> Case:
    one = case(scenario)
    return replace(one, cluster=replace(one.cluster, host=host))


def prepared(host: HostTraits) -> Operations:
    case = on(host)
    return prepare_machine(case.cluster, case.intent, case.intent.machine("worker1"))


def commands(host: HostTraits) -> list[str]:
    return [" ".join(one.command) for one in prepared(host) if isinstance(one, Run)]


def files(host: HostTraits) -> dict[str, str]:
    return {one.path: one.content for one in prepared(host) if isinstance(one, WriteFile)}


def test_nothing_that_all_containers_share_is_changed_by_one_of_them():
    own, shared = commands(OF_ITS_OWN), commands(SHARED)
    for word in ("modprobe", "swapoff", "swap.target"):
        assert any(word in line for line in own)
        assert not any(word in line for line in shared)
    assert "/etc/modules-load.d/hybridlab.conf" not in files(SHARED)
    settings = files(SHARED)["/etc/sysctl.d/90-hybridlab.conf"].splitlines()
    assert settings
    assert all(line.startswith("net.") for line in settings)
    assert "fs.inotify" in files(OF_ITS_OWN)["/etc/sysctl.d/90-hybridlab.conf"]


def test_a_module_that_the_host_lacks_is_its_owners_to_load():
    runs = [one for one in prepared(SHARED) if isinstance(one, Run) and "modprobe" in one.hint]
    assert [run.hint for run in runs] == [
        f"run 'modprobe {name}' on the host of the lab" for name in ("overlay", "br_netfilter")
    ]


@pytest.mark.parametrize("host", [OF_ITS_OWN, SHARED])
def test_a_module_is_known_by_what_the_kernel_has_with_it(host):
    guards = " ".join(one.unless for one in prepared(host) if isinstance(one, Run))
    assert "/proc/sys/net/bridge" in guards
    assert "/proc/filesystems" in guards
    assert "/sys/module" not in guards, "of what is built in, it may hold nothing"


@pytest.mark.parametrize(
    ("host", "verified", "more"),
    [
        (OF_ITS_OWN, True, {}),
        (CAPPED, True, {}),
        (SHARED, False, {"failSwapOn": False}),
        (V1, False, {"failCgroupV1": False}),
        (HostTraits(True, True, False), False, {"failSwapOn": False, "failCgroupV1": False}),
    ],
    ids=["own", "capped", "shared", "v1", "all"],
)
def test_kubeadm_and_kubelet_take_the_hosts_kernel_swap_and_control_groups(host, verified, more):
    case, wanted = on(host), ["NumCPU", "Mem", *([] if verified else ["SystemVerification"])]
    first = init_documents(case.cluster, case.intent, case.manifest, case.around)[0]
    (joined,) = join_documents(case.cluster, case.node("worker1"), TICKET, case.around)
    for document in (first, joined):
        assert document["nodeRegistration"]["ignorePreflightErrors"] == wanted
    plain = kubelet_config(on(OF_ITS_OWN).cluster, 1)
    assert not more.keys() & plain.keys()
    assert kubelet_config(case.cluster, 1) == {**plain, **more}
    by_hand = worker_kubelet_config(on(host, "hard-way").cluster, 1)
    assert more.items() <= by_hand.items()


def test_kube_proxy_leaves_the_connections_a_shared_kernel_tracks():
    plain = kube_proxy_config(on(OF_ITS_OWN).cluster)
    assert "conntrack" not in plain
    shared = kube_proxy_config(on(SHARED).cluster)
    assert shared == {**plain, "conntrack": {"maxPerCore": 0, "min": 0}}


def test_containerd_lowers_no_score_where_nobody_may():
    plain = tomllib.loads(containerd_config("pause", OF_ITS_OWN))
    capped = tomllib.loads(containerd_config("pause", CAPPED))
    own = capped["plugins"]["io.containerd.cri.v1.runtime"]
    assert own.pop("restrict_oom_score_adj") is True
    assert capped == plain


def test_privileged_containers_get_no_devices_of_a_kernel_that_is_shared():
    plain = tomllib.loads(containerd_config("pause", OF_ITS_OWN))
    shared = tomllib.loads(containerd_config("pause", SHARED))
    containerd = shared["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]
    assert containerd["runtimes"]["runc"].pop("privileged_without_host_devices") is True
    assert shared == plain


def node(**condition: str) -> dict:
    return {"status": {"conditions": [{"type": "Ready", **condition}]}}


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (None, "not registered"),
        ({"status": {}}, "has no condition Ready yet"),
        (node(status="True"), "Ready"),
        (
            node(status="Unknown", reason="NodeStatusUnknown", message="stopped"),
            "NodeStatusUnknown: stopped",
        ),
        (node(status="False"), "NotReady:"),
    ],
)
def test_an_unready_nodes_condition_is_described(seen, said):
    assert node_condition(seen) == said
    nodes = {"b": node(status="False")} | ({"a": seen} if seen else {})
    assert unready_nodes(nodes, ["a"]) == ({} if said == "Ready" else {"a": said})


def daemon_set(**status: int) -> dict:
    metadata = {"name": "net", "generation": 2}
    return {"kind": "DaemonSet", "metadata": metadata, "spec": {}, "status": status}


def owned(node_name: str, **status: object) -> dict:
    metadata = {"name": f"net-{node_name}", "ownerReferences": [{"name": "net"}]}
    return {
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": node_name},
        "status": status,
    }


SCHEDULED = {"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
ABSENT = {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImageNeverPull"}}}]}


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        ([], {"net": "not created yet"}),
        ([daemon_set()], {"net": "not scheduled yet"}),
        ([daemon_set(**SCHEDULED | {"observedGeneration": 1})], {"net": "not scheduled yet"}),
        ([daemon_set(**SCHEDULED)], {"net": "ready on 0 of 2 nodes"}),
        (
            [daemon_set(**SCHEDULED, numberReady=1), owned("a", **READY), owned("b", **ABSENT)],
            {"b": "ErrImageNeverPull"},
        ),
        (
            [daemon_set(**SCHEDULED | {"updatedNumberScheduled": 1}, numberReady=2)],
            {"net": "ready on 2 of 2 nodes"},
        ),
        ([daemon_set(**SCHEDULED, numberReady=2), owned("a", **READY)], {}),
    ],
)
def test_a_daemon_set_is_there_when_every_node_has_it(seen, missing):
    net, pods = (seen[0], seen[1:]) if seen else (None, [])
    assert daemon_set_rollout(net, "net", pods) == missing


def test_dns_that_does_not_start_is_reported_with_its_pods(tmp_path):
    one = case("overlay")
    world = World(("master",))
    waiting = {"waiting": {"reason": "ErrImageNeverPull"}}
    status = {"phase": "Pending", "containerStatuses": [{"state": waiting}]}
    world.pods = [{"metadata": {"name": "coredns-1"}, "spec": {}, "status": status}]
    with pytest.raises(DeadlineError, match=r"coredns-1.*ErrImageNeverPull"):
        ClusterApi(one.cluster, world.site(tmp_path)).wait_for_dns(Deadline(0.01))
