"""What labs virtual machines can have, what they cost, and their logs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError
from lab.inventory.inventory import STOCK, Hypervisor
from lab.lifecycle.compilation import compile_scenario
from lab.machines.addons.addon import addons
from lab.machines.addons.calico import MOST_POOLS
from lab.machines.base import require_fit, require_packages, unfit
from lab.machines.cluster.cluster import ClusterNode
from lab.machines.cluster.linux.daemons import required_packages
from lab.machines.evidence import RECENTLY
from lab.machines.images import recipes
from lab.machines.kubernetes import MachinesCluster
from lab.machines.libvirt.guests import LibvirtGuests
from lab.machines.libvirt.placement import LibvirtLayout, predict_cost
from lab.machines.libvirt.provider import LibvirtProvider
from lab.providers.provider import LabHandle
from lab.scenario.loader import shipped
from lab.shells.shell import Completed
from lab.topology.registry import topologies


@pytest.mark.parametrize("pods", ["namespaces", "kubernetes"])
@pytest.mark.parametrize("name", shipped())
def test_what_machines_cannot_have_is_ovn_without_a_cluster_and_a_cluster_without_an_add_on(
    name, pods
):
    intent = compile_scenario(name, "linux", None, pods, real=True).intent
    lacks = intent.topology == "ovn" if pods == "namespaces" else intent.topology not in addons()
    assert bool(unfit(intent)) == lacks


def test_the_refusal_has_the_reason_and_the_alternatives():
    with pytest.raises(PreflightError, match="need commands once they are ready") as raised:
        require_fit(compile_scenario("ovn", real=True).intent)
    assert raised.value.hint == "'--provider netns' brings it up in network namespaces"


def test_calico_has_no_more_pools_than_its_operator_takes():
    intent = compile_scenario("calico-vxlan", None, None, "kubernetes", real=True).intent
    machine = intent.machine("worker1")
    many = tuple(replace(machine, name=f"more{number}") for number in range(MOST_POOLS - 5))
    require_fit(replace(intent, machines=(*intent.machines, *many)))
    with pytest.raises(PreflightError, match="26 nodes that run pods") as raised:
        require_fit(replace(intent, machines=(*intent.machines, *many, machine)))
    assert "'--pods namespaces'" in raised.value.hint


def test_an_image_without_the_daemons_is_named_with_its_packages():
    intent = compile_scenario("upstream-vrrp", None, None, "kubernetes", real=True).intent
    require_packages(intent, lambda _: ("bird2", "keepalived"))
    require_packages(intent, lambda _: None)  # of a vendor's image nobody knows
    with pytest.raises(PreflightError, match="'debian-12' lacks bird2, keepalived"):
        require_packages(intent, lambda _: ("haproxy",))


def test_a_kube_proxy_that_is_no_pod_asks_for_iptables_in_mode_iptables():
    for name, wanted in (("hard-way", {"iptables"}), ("overlay", set[str]())):
        intent = compile_scenario(name, "linux", None, "kubernetes", real=True).intent
        assert intent.kubernetes
        other = replace(intent, kubernetes=replace(intent.kubernetes, proxy_mode="iptables"))
        assert set[str]().union(*required_packages(other).values()) == wanted
        assert not required_packages(intent)
    hard_way = compile_scenario("hard-way", "linux", None, "kubernetes", real=True).intent
    assert hard_way.kubernetes
    mode = replace(hard_way.kubernetes, proxy_mode="iptables")
    with pytest.raises(PreflightError, match="'debian-12' lacks iptables"):
        require_packages(replace(hard_way, kubernetes=mode), recipe_packages)


def recipe_packages(image: str) -> tuple[str, ...]:
    bootstrap = recipes.load(image).bootstrap
    assert bootstrap
    return bootstrap.packages


@pytest.mark.parametrize("image", ["debian-12", "debian-13"])
@pytest.mark.parametrize("name", shipped())
def test_the_shipped_images_have_every_daemon_that_is_started_on_machines(name, image):
    intent = compile_scenario(name, None, None, "kubernetes", real=True).intent
    recipe = recipes.load(image)
    assert recipe.bootstrap
    if not unfit(intent):
        require_packages(intent, lambda _: recipe.bootstrap.packages)


def test_every_topology_listed_with_clusters_exists():
    assert set(topologies()) >= set(addons())


INTENT = compile_scenario("overlay", only="linux").intent
ONE = (Hypervisor(name="one", uri="qemu:///system", parallel_boots=1),)
TWO = (*ONE, Hypervisor(name="two", uri="qemu+ssh://two/system", parallel_boots=1))


def test_a_cost_is_that_of_its_machines_images_nodes_and_hypervisors():
    built, unbuilt = (predict_cost(INTENT, ONE, {"debian-12": done}) for done in (True, False))
    assert built.memory_mib == 3 * 2048 + 2 * 512
    assert built.disk_gib == 3 * 20 + 2 * 8
    assert built.counts["machine"] == 5
    assert (built.counts["unbuilt image"], unbuilt.counts["unbuilt image"]) == (0, 1)
    assert unbuilt.seconds > built.seconds
    image = {"debian-12": True}
    assert predict_cost(INTENT, TWO, image).seconds < built.seconds
    cluster = compile_scenario("overlay", only="linux", pods="kubernetes").intent
    one, two = (predict_cost(cluster, hosts, image).seconds for hosts in (ONE, TWO))
    assert one > two > built.seconds


def test_the_cost_of_windows_machines_without_their_iso_is_refused_with_the_way_round():
    provider = LibvirtProvider(STOCK)
    with pytest.raises(PreflightError, match="it needs the ISO of Windows Server 2022") as caught:
        provider.cost(compile_scenario("overlay").intent)
    assert "--only linux" in caught.value.hint


SWAP = "E1121 1 run.go:72] failed to run Kubelet: running with swap on is not supported"
LAB = LabHandle("lab", Path("/nowhere"), "token")
LAYOUT = LibvirtLayout({"worker1": "here", "worker2": "here", "client": "here"}, {"here": True}, {})


class Shell:
    """A machine whose kubelet has said one thing; or one that does not answer."""

    def __init__(self, *, answers: bool = True) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        del deadline, stdin
        self.asked.append(command[-1])
        if not self.answers:
            raise BrokenError("running 'sh' on 'worker1'", "connection refused")
        return Completed(0, SWAP if "--unit=kubelet" in command[-1] else "", "")

    def close(self) -> None:
        pass


def guests(**shells: Shell) -> LibvirtGuests:
    made = LibvirtGuests(LAB, LAYOUT, {})
    made._shells.update(shells)  # type: ignore[arg-type]  # as much of one as is used
    return made


def test_machines_that_are_asked_show_their_logs_and_no_other_is_spoken_to():
    shells = {name: Shell() for name in LAYOUT.machines}
    pieces = list(guests(**shells).logs(("worker2",), Deadline(60)))
    assert {piece.path: piece.content for piece in pieces}["worker2/kubelet.log"] == SWAP.encode()
    assert all(piece.is_log and piece.path.startswith("worker2/") for piece in pieces)
    assert shells["worker1"].asked == shells["client"].asked == []


def test_recent_logs_are_the_journal_s_last_minutes():
    shells = {name: Shell() for name in LAYOUT.machines}
    list(guests(**shells).logs(("worker1",), Deadline(60)))
    list(guests(**shells).logs(("worker2",), Deadline(60), RECENTLY))
    whole, recent = (
        [line for line in shells[name].asked if line.startswith("journalctl")]
        for name in ("worker1", "worker2")
    )
    assert len(whole) == len(recent) > 2
    assert not any("--since" in line for line in whole)
    assert all(" --since=-15min " in line for line in recent)


def test_a_machine_that_does_not_answer_is_a_piece_that_is_no_log():
    shells = {name: Shell(answers=name != "worker1") for name in LAYOUT.machines}
    pieces = list(guests(**shells).logs(("worker1", "worker2"), Deadline(60)))
    missing = [piece for piece in pieces if not piece.is_log]
    assert [evidence.path for evidence in missing] == ["worker1/kubelet.log.missing"]
    assert b"connection refused" in missing[0].content
    assert "worker2/kubelet.log" in {piece.path for piece in pieces}


def test_of_a_cluster_its_nodes_are_asked_and_what_stands_beside_them():
    nodes = tuple(
        ClusterNode(name, "linux", "worker", "10.0.0.1", None, "1.36.3")
        for name in ("worker1", "worker2")
    )
    bundled = SimpleNamespace(cluster=SimpleNamespace(nodes=nodes))
    shells = {name: Shell() for name in LAYOUT.machines}
    machines = guests(**shells)
    made = MachinesCluster(LAB, None, bundled, lambda: machines)  # type: ignore[arg-type]  # the same
    found = made.logs(machines, ("worker1", "client"), Deadline(60))
    pieces = {evidence.path: evidence.content for evidence in found}
    assert pieces["worker1/kubelet.log"] == SWAP.encode()
    assert pieces["client/kubelet.log"] == SWAP.encode()
    assert {path.partition("/")[0] for path in pieces} == {"worker1", "client"}
    for name in ("worker1", "client"):
        assert any(" --since=-15min " in line for line in shells[name].asked)
