"""What differs on nodes that share the kernel of their host, or cannot do all that root may."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest
from linux_clusters import Case, case
from test_linux_golden import TICKET

from lab.cluster.cluster import VIRTUAL_MACHINE, HostTraits
from lab.cluster.kubeadm import init_documents, join_documents, kube_proxy_config, kubelet_config
from lab.cluster.linux.hard_way import worker_kubelet_config
from lab.cluster.linux.node import containerd_config, prepare_machine
from lab.cluster.linux.operations import Operations, Run, WriteFile

SHARED = HostTraits(shared_kernel=True)
OF_ITS_OWN = VIRTUAL_MACHINE
V1 = HostTraits(cgroup_v1=True)
CAPPED = HostTraits(can_lower_oom_score=False)


def on(host: HostTraits, scenario: str = "overlay") -> Case:
    one = case(scenario)
    return replace(one, cluster=replace(one.cluster, host=host))


def prepared(host: HostTraits) -> Operations:
    one = on(host)
    return prepare_machine(one.cluster, one.intent, one.intent.machine("worker1"))


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
    asked = [one for one in prepared(SHARED) if isinstance(one, Run) and "modprobe" in one.hint]
    assert [one.hint for one in asked] == [
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
    one, wanted = on(host), ["NumCPU", "Mem", *([] if verified else ["SystemVerification"])]
    first = init_documents(one.cluster, one.intent, one.manifest, one.around)[0]
    (joined,) = join_documents(one.cluster, one.node("worker1"), TICKET, one.around)
    for document in (first, joined):
        assert document["nodeRegistration"]["ignorePreflightErrors"] == wanted
    plain = kubelet_config(on(OF_ITS_OWN).cluster, 1)
    assert not more.keys() & plain.keys()
    assert kubelet_config(one.cluster, 1) == {**plain, **more}
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
