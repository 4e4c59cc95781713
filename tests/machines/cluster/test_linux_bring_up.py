"""Bringing clusters up on machines that are none: order, kills, second runs, and re-joining."""

import itertools
import json
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import pytest
from cryptography import x509
from linux_clusters import Case, case, linux_only
from linux_world import Killed, World, ready_pod

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.lifecycle.up import group_parallel_steps
from lab.machines.bundle.store import BundleStore
from lab.machines.cluster.credentials import read_kubeconfig
from lab.machines.cluster.linux.api import ClusterApi
from lab.machines.cluster.linux.bring_up import linux_steps
from lab.machines.cluster.linux.joining import MARK, JoinCredentials
from lab.machines.kubernetes import Bundled, MachinesCluster, renewed
from lab.machines.recorded_states import read_records, write_records
from lab.machines.system import NodeCredentials
from lab.providers.provider import LabHandle

CASES = {
    "overlay": lambda: linux_only(case("overlay")),
    "three-planes": lambda: linux_only(case("overlay", planes=3)),
    "hard-way": lambda: linux_only(case("hard-way")),
}
ONCE = {
    **CASES,
    "upstream-vrrp": lambda: linux_only(case("upstream-vrrp")),
    "calico-bgp-tor": lambda: linux_only(case("calico-bgp-tor")),
}
"""Those that are not killed everywhere, which takes seconds each."""


def test_credentials_are_made_anew_once_they_are_old() -> None:
    made, at = [], [0.0]

    def make() -> NodeCredentials:
        made.append(NodeCredentials("", f"token {len(made)}", "", b"", None))
        return made[-1]

    get = renewed(make, 60.0, lambda: at[0])
    tokens = []
    for at[0] in (0.0, 59.0, 61.0, 120.0):
        tokens.append(get().token)
    assert tokens == ["token 0", "token 0", "token 1", "token 1"]


def world_of(case: Case, kill_at: int = 0) -> World:
    names = [node.name for node in case.cluster.nodes]
    return World((*names, "router"), kill_at)


def bring(case: Case, world: World, directory: Path) -> None:
    site = world.site(directory)
    for step in linux_steps(case.cluster, case.intent, case.manifest, site):
        step.run()


def begun(name: str) -> tuple[Case, World]:
    case = ONCE[name]()
    return case, world_of(case)


def brought_up(name: str, directory: Path) -> tuple[Case, World]:
    case, world = begun(name)
    bring(case, world, directory)
    return case, world


def is_up(case: Case, world: World) -> None:
    running = [node for node in case.cluster.nodes if node.pod_cidr]
    assert {n: o["spec"].get("podCIDR") for n, o in world.nodes.items()} == {
        node.name: node.pod_cidr for node in running
    }
    assert any(document["kind"] == "Deployment" for document in world.applied)
    for machine in world.machines.values():
        assert not machine.half
        assert "/run/hybridlab/kubeadm.yaml" not in machine.files, "it holds a token"


@pytest.mark.parametrize("name", ONCE)
def test_every_step_brings_the_cluster_up(name, tmp_path):
    case, world = brought_up(name, tmp_path)
    is_up(case, world)


@pytest.mark.parametrize("name", CASES)
def test_a_second_run_changes_nothing(name, tmp_path):
    case, world = brought_up(name, tmp_path)
    before = {n: (dict(m.files), dict(m.units)) for n, m in world.machines.items()}
    nodes = json.dumps(world.nodes)
    world.log.clear()
    bring(case, world, tmp_path)
    assert {n: (m.files, m.units) for n, m in world.machines.items()} == before
    assert json.dumps(world.nodes) == nodes
    for words in ("kubeadm init", "kubeadm join", "kubeadm reset", "tar -x", "PATCH"):
        assert not world.ran(words), words


def kinds(world: World) -> dict[str, list[int]]:
    """Numbers of commands: of each kind one on each machine."""
    found: dict[str, dict[str, int]] = {}
    for number, (machine, line) in enumerate(world.log, 1):
        found.setdefault(line[:48], {}).setdefault(machine, number)
    return {kind: list(by_machine.values()) for kind, by_machine in found.items()}


def killed_and_run_again(name: str, moments: Iterable[int], tmp_path: Path) -> None:
    case = CASES[name]()
    for kill_at in moments:
        directory = tmp_path / ("whole" if name == "hard-way" else str(kill_at))
        world = world_of(case, kill_at)
        with pytest.raises(Killed):
            bring(case, world, directory)
        world.kill_at = 0
        bring(case, world, directory)
        is_up(case, world)


@pytest.mark.parametrize("name", ["three-planes", "hard-way"])
def test_killed_at_a_command_of_each_kind_the_next_run_brings_it_up(name, tmp_path):
    each = kinds(brought_up(name, tmp_path / "whole")[1]).values()
    sample = [numbers[turn % len(numbers)] for turn, numbers in enumerate(each)]
    killed_and_run_again(name, sample, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["three-planes", "hard-way"])
def test_killed_at_any_command_the_next_run_brings_it_up(name, tmp_path):
    each = kinds(brought_up(name, tmp_path / "whole")[1]).values()
    killed_and_run_again(name, itertools.chain(*each), tmp_path)


def test_digests_ask_no_machine_and_hold_for_another_lab_directory(tmp_path):
    for name, make in CASES.items():
        case = make()
        world = world_of(case)
        first = linux_steps(case.cluster, case.intent, case.manifest, world.site(tmp_path / "a"))
        again = linux_steps(case.cluster, case.intent, case.manifest, world.site(tmp_path / "b"))
        assert [(s.name, s.digest) for s in first] == [(s.name, s.digest) for s in again]
        further = ["control-planes"] if name == "three-planes" else []
        assert [s.name for s in first] == [
            *("nodes", "control-plane", *further, "workers", "add-ons", "dns", "ready")
        ]
        alongside = ["workers", "add-ons"] if further else ["add-ons"]
        assert [s.name for s in first if s.alongside] == alongside
        assert world.commands == 0


def test_nodes_of_other_systems_are_prepared_and_join_beside_those_of_linux(tmp_path):
    whole = case("overlay", "1.36.3")
    bundled = Bundled(BundleStore(tmp_path), whole.manifest, whole.cluster)
    made = MachinesCluster(LabHandle("a", tmp_path, "11"), whole.intent, bundled, nullcontext)
    assert [[step.name for step in group] for group in group_parallel_steps(made.steps())] == [
        ["nodes"],
        ["control-plane", "windows-programs"],
        ["workers", "add-ons", "windows"],
        ["dns"],
        ["ready", "pods"],
    ]


def test_another_version_makes_the_cluster_anew(tmp_path):
    old, new = linux_only(case("overlay", "1.36.2")), linux_only(case("overlay", "1.36.3"))
    world = world_of(old)
    bring(old, world, tmp_path)
    world.log.clear()
    bring(new, world, tmp_path)
    is_up(new, world)
    assert world.ran("skip-phases=preflight") == ["master"]
    assert set(world.ran("kubeadm join")) == {"worker1", "worker2"}


def test_a_deleted_node_is_an_ailment_and_joins_again(tmp_path):
    case, world = brought_up("overlay", tmp_path)
    api = ClusterApi(case.cluster, world.site(tmp_path))
    assert api.ailments(Deadline(1)) == {}
    del world.nodes["worker1"]
    assert api.ailments(Deadline(1)) == {"worker1": "not registered"}
    world.log.clear()
    bring(case, world, tmp_path)
    is_up(case, world)
    assert world.ran("kubeadm reset") == ["worker1"]
    assert world.ran("kubeadm join") == ["worker1"]


def test_nodes_that_rejoin_get_their_bridge_and_are_recorded_anew(tmp_path):
    """Leaving deletes the bridge and the tunnel's device: their addresses are others afterwards."""
    case, world = brought_up("overlay", tmp_path)
    places = ("", "master", "router", "worker1", "worker1-p1", "worker2")
    write_records(tmp_path, {place: {"made_by": "", "state": place} for place in places})
    world.log.clear()
    bring(case, world, tmp_path)
    assert read_records(tmp_path).keys() == set(places)
    assert not world.ran("systemctl try-restart hybridlab-pods.service")
    del world.nodes["worker1"], world.nodes["worker2"]
    bring(case, world, tmp_path)
    assert read_records(tmp_path).keys() == {"", "master", "router", "worker1-p1"}
    for node in ("worker1", "worker2"):
        commands = [line for name, line in world.log if name == node]
        deleted, created, joined = (
            next(n for n, line in enumerate(commands) if words in line)
            for words in (
                "ip link delete",
                "systemctl try-restart hybridlab-pods.service",
                "kubeadm join",
            )
        )
        assert deleted < created < joined


def test_pods_of_a_node_that_rejoins_are_removed(tmp_path):
    """Their old readiness would be taken for that of the new ones."""
    case, world = brought_up("overlay", tmp_path)
    for node in ("worker1", "worker2"):
        pod = ready_pod(f"{node}-p1")
        pod["metadata"]["namespace"] = "probes"
        pod["spec"]["nodeName"] = node
        world.pods.append(pod)
    world.log.clear()
    del world.nodes["worker1"]
    bring(case, world, tmp_path)
    removed = [line for _, line in world.log if line.startswith("DELETE") and "pods" in line]
    assert removed == ["DELETE /api/v1/namespaces/probes/pods/worker1-p1"]


def test_a_node_that_rejoins_gets_its_autonomous_system_again(tmp_path):
    case, world = brought_up("calico-bgp-tor", tmp_path)
    world.applied.clear()
    del world.nodes["worker1"]
    bring(case, world, tmp_path)
    said = {
        document["metadata"]["name"]: document["metadata"]["annotations"]
        for document in world.applied
        if document["kind"] == "Node"
    }
    assert said["worker1"] == {"projectcalico.org/ASNumber": "64514"}


def test_a_deleted_worker_of_the_hard_way_registers_again(tmp_path):
    case, world = brought_up("hard-way", tmp_path)
    del world.nodes["worker-1"]
    bring(case, world, tmp_path)
    is_up(case, world)
    assert world.ran("exec systemctl restart kubelet.service") == ["worker-1"]


# SECURITY.md: No secret is on a command line.
def test_join_tokens_and_keys_stand_on_no_command_line(tmp_path):
    _, world = brought_up("three-planes", tmp_path)
    assert world.tokens
    assert len(world.keys) == 2, "each further control plane has its own"
    assert world.machines["router"].units.keys() == {"haproxy.service"}
    for _, line in world.log:
        assert not any(secret in line for secret in world.tokens | world.keys)


def test_a_control_plane_joins_once_the_one_before_serves(tmp_path):
    case, world = brought_up("three-planes", tmp_path)
    _, second, third = case.cluster.control_planes()
    lines = [
        (name, line) for name, line in world.log if "kubeadm join" in line or "/readyz" in line
    ]
    serves = [
        n for n, (name, line) in enumerate(lines) if (name, "GET /readyz") == (second.name, line)
    ]
    joins = [n for n, (name, line) in enumerate(lines) if "join" in line and name == third.name]
    assert serves[0] < joins[0]


def test_a_failure_has_the_command_its_machine_its_output_and_its_meaning(tmp_path):
    case, world = begun("overlay")
    world.broken = {
        "kubeadm init": "first line\n[ERROR Swap]: running with swap on is not supported"
    }
    with pytest.raises(BrokenError) as caught:
        bring(case, world, tmp_path)
    text = str(caught.value)
    assert "running 'kubeadm init --config /run/hybridlab/kubeadm.yaml" in text
    assert "on 'master': exit code 1" in text
    assert "first line / [ERROR Swap]" in text


def test_a_node_that_never_gets_ready_is_reported_with_condition_and_log(tmp_path, monkeypatch):
    case, world = begun("overlay")
    world.ready = False
    monkeypatch.setattr("lab.machines.cluster.linux.bring_up.READY_SECONDS", 0.05)
    with pytest.raises(DeadlineError) as caught:
        bring(case, world, tmp_path)
    text = str(caught.value)
    assert "'worker1': KubeletNotReady: cni plugin not initialized" in text
    assert "try: " in text
    assert world.ran("journalctl --no-pager -o cat -u kubelet")


@pytest.mark.parametrize("name", ["overlay", "calico-bgp-tor"])
def test_the_dns_is_not_applied_before_the_pod_network_is_ready(name, tmp_path, monkeypatch):
    case, world = begun(name)
    world.network = False
    monkeypatch.setattr("lab.machines.cluster.linux.bring_up.READY_SECONDS", 0.05)
    with pytest.raises(DeadlineError, match=r"waiting for DaemonSet '.*' on every node"):
        bring(case, world, tmp_path)
    assert "coredns" not in {document["metadata"]["name"] for document in world.applied}
    world.network = True
    bring(case, world, tmp_path)
    is_up(case, world)


def test_a_node_with_another_part_of_the_pod_network_is_refused(tmp_path):
    case, world = begun("overlay")
    world.register("worker1")
    world.nodes["worker1"]["spec"] = {"podCIDR": "10.9.9.0/24"}
    api = ClusterApi(case.cluster, world.site(tmp_path))
    with pytest.raises(BrokenError, match=r"it has 10\.9\.9\.0/24"):
        api.set_pod_cidr(case.node("worker1"), Deadline(1))


def test_an_api_that_does_not_answer_is_the_control_planes_ailment(tmp_path):
    case, world = begun("overlay")
    world.broken = {"API": "connection refused"}
    ailments = ClusterApi(case.cluster, world.site(tmp_path)).ailments(Deadline(0.01))
    assert set(ailments) == {"master"}
    assert "connection refused" in ailments["master"]


def test_a_join_token_is_given_once_the_cluster_has_signed_it(tmp_path):
    case, world = brought_up("overlay", tmp_path)
    token = JoinCredentials(case.cluster, world.site(tmp_path)).token(Deadline(1))
    assert f"jws-kubeconfig-{token.partition('.')[0]}" in world.signed


def test_windows_nodes_get_kubeconfigs_of_the_clusters_own_authority(tmp_path):
    case, world = brought_up("overlay", tmp_path)
    entrance = JoinCredentials(case.cluster, world.site(tmp_path))
    text = entrance.kubeconfig("system:node:win1", ("system:nodes",), Deadline(1)).decode()
    read = read_kubeconfig(text, "x")
    assert read.server == "https://10.9.176.10:6443"
    client = x509.load_pem_x509_certificate(read.client.certificate.encode())
    ca = x509.load_pem_x509_certificate(read.ca.encode())
    client.verify_directly_issued_by(ca)
    assert client.subject.rfc4514_string() == "CN=system:node:win1,O=system:nodes"


def test_the_mark_is_written_only_where_the_machine_is_a_member(tmp_path):
    case, world = begun("overlay")
    world.broken = {"kubeadm join": "no way"}
    with pytest.raises(BrokenError):
        bring(case, world, tmp_path)
    assert MARK in world.machines["master"].files
    assert MARK not in world.machines["worker1"].files
