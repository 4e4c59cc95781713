"""The whole matrix from an agent on each node, pods answered by agnhost's netexec."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Self, cast

import pytest
from cluster_pods import TOKEN, cluster_fleet, inhabit
from guest_provider import GuestCluster, opened
from kubernetes_programs import HOW, programs
from node_lab import NodeLab, verdicts

from lab._deadline import Deadline
from lab.lifecycle.faults import FaultRequest, heal, put_in
from lab.machines import base
from lab.machines.agents.exec_probes import DIRECTORY
from lab.machines.agents.fleet import Fleet
from lab.machines.base import MachinesProvider
from lab.matrix.run import RunPace, run
from lab.providers.provider import LabHandle, Outcome, Probe, ProbeSettings
from lab.topology.intent import KubernetesIntent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def agnhost():
    folder = programs("agnhost")
    if folder is None:
        pytest.skip(f"there is no agnhost: {HOW}")
    return folder / "agnhost"


@pytest.fixture(scope="module")
def lab(new_lab, agnhost):
    lab = new_lab("overlay")
    lab.up()
    inhabit(lab, agnhost)
    return lab


def test_every_cell_passes(lab):
    fleet = cluster_fleet(lab)
    sent: list[Probe] = []

    def send(probes: Sequence[Probe], settings: ProbeSettings) -> Mapping[int, Outcome]:
        sent.extend(probes)
        return fleet.probe_all(lab.intent, probes, settings, lambda _: None)

    results = run(
        lab.cells(), lab.limits, send, time.monotonic, lambda cell: cell.id, pace=RunPace()
    )
    assert verdicts(results) == {"pass": len(lab.cells())}, [
        (result.cell.id, result.detail) for result in results if result.verdict != "pass"
    ][:5]


def test_pods_that_are_asked_by_exec_see_the_same(lab):
    assert shutil.which("curl"), "of the development tools"
    fleet = cluster_fleet(lab, "worker1")
    try:
        own = {pod.name for pod in lab.intent.machine("worker1").pods}
        wanted = [cell for cell in lab.cells() if cell.source.name in own]

        def send(probes: Sequence[Probe], settings: ProbeSettings) -> Mapping[int, Outcome]:
            return fleet.probe_all(lab.intent, probes, settings, lambda _: None)

        results = run(
            wanted, lab.limits, send, time.monotonic, lambda cell: cell.id, pace=RunPace()
        )
    finally:
        shutil.rmtree(DIRECTORY)
    amiss = [
        (result.cell.id, result.verdict, result.detail)
        for result in results
        if result.verdict != "pass"
    ]
    assert not amiss, amiss[:5]


def test_links_show_how_each_pod_is_attached(lab):
    links = {link.pod: link for link in cluster_fleet(lab).links(Deadline(20.0))}
    wanted = {
        pod.name: (pod.mac, pod.port, pod.mtu, pod.gateway)
        for machine in lab.intent.machines
        for pod in machine.pods
        if pod.role == "probe"
    }
    assert {one: (it.mac, it.port, it.mtu, it.gateway) for one, it in links.items()} == wanted


def test_command_in_a_pod_sees_its_network_and_its_resolver(lab):
    machine = cluster_fleet(lab).machine(lab.intent, "worker1-p1")
    pod = next(pod for pod in lab.intent.machine("worker1").pods if pod.name == "worker1-p1")
    done = machine.run(["sh", "-c", "ip -br addr; cat /etc/resolv.conf"], Deadline(20.0))
    assert pod.address in done.stdout
    assert pod.resolver.server in done.stdout
    assert machine.run(["sh", "-c", "exit 7"], Deadline(20.0)).code == 7


def addresses(lab: NodeLab, pod: str) -> str:
    machine = cluster_fleet(lab).machine(lab.intent, pod)
    return machine.run(["ip", "-o", "-4", "address", "show", "dev", "eth0"], Deadline(20.0)).stdout


def test_a_fault_in_a_pod_of_kubernetes_is_done_from_its_node_and_healed(lab, tmp_path):
    real = replace(
        lab.intent,
        kubernetes=KubernetesIntent("1.36", "10.244.0.0/16", "10.96.0.0/12", "10.96.0.10"),
    )
    provider = GuestCluster(cluster_fleet(lab), real)
    there = opened(lab, provider, tmp_path / "state", real)
    victim = next(pod for pod in lab.intent.machine("worker2").pods if pod.role == "probe")
    before = addresses(lab, "worker1-p1")
    put_in(there, FaultRequest("duplicate-pod-address", "worker1", victim.name), print)
    assert victim.address.partition("/")[0] in addresses(lab, "worker1-p1")
    assert provider.asked == 1
    heal(there, print)
    assert provider.asked == 2, "its pods are waited for, once it is mended"
    assert addresses(lab, "worker1-p1") == before
    there.store.close()


class Guests:
    """What the steps and the provider need of a lab's machines."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def deadline(self, seconds: float) -> Deadline:
        return Deadline(seconds)


def test_what_is_done_to_a_node_or_a_pod_after_up_differs_from_what_up_recorded(lab, tmp_path):
    real = replace(
        lab.intent,
        kubernetes=KubernetesIntent("1.36", "10.244.0.0/16", "10.96.0.0/12", "10.96.0.10"),
    )
    handle = LabHandle("guests", tmp_path, TOKEN)
    guests = cast("base.Guests", Guests(cluster_fleet(lab)))
    provider = cast("MachinesProvider", SimpleNamespace(_guests=lambda _: guests))
    places = ["worker1", "worker1-p1", "worker1-p2", "worker2"]

    def found() -> list[tuple[str, str, str]]:
        deviations = MachinesProvider.deviations(provider, handle, real, places, Deadline(60))
        return [(at, one.object, one.mends) for at, own in deviations.items() for one in own]

    assert found() == []
    *_, states = base.on_machines(handle, lab.intent, None, lambda: guests)
    states.run()
    assert found() == []
    node, pod = (guests.fleet.machine(real, place) for place in places[:2])
    for machine in (node, pod):
        machine.run(["nft", "table ip mine { chain c { drop; }; }"], Deadline(20))
    by_node = "/run/hybridlab/enter worker1-p1 sh -c 'nft delete table ip mine'"
    assert found() == [
        ("worker1", "table ip mine", "nft delete table ip mine"),
        ("worker1-p1", "table ip mine", by_node),
    ]
    text = (tmp_path / "states.json").read_text()
    (tmp_path / "states.json").write_text(text.replace('"asked": "', '"asked": "other'))
    assert found() == []  # another version asked for something else
    (tmp_path / "states.json").write_text(text)
    states.run()  # it keeps what is recorded of a machine that it has not made
    assert len(found()) == 2
    for one in ("nft delete table ip mine", by_node):
        node.run(["sh", "-c", one], Deadline(20))
    assert found() == []


def test_pod_that_does_not_run_is_a_probe_that_cannot_be_made(lab):
    lab.guest("worker2").shell(
        "for one in $(pgrep -x agnhost); do"
        " if tr '\\0' ' ' < /proc/$one/environ | grep -q POD=worker2-p2; then kill $one; fi; done"
    )
    probe = Probe(1, "worker2-p2", "tcp", "small", "10.0.0.1", 8080, 1450)
    outcomes = cluster_fleet(lab).probe_all(
        lab.intent, [probe], ProbeSettings(1.0, 4), lambda _: None
    )
    assert outcomes[1].status == "error"
    assert "looking for pod 'worker2-p2'" in outcomes[1].detail
