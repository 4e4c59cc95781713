from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab._errors import BrokenError, DeadlineError
from lab.lifecycle.compilation import compile_scenario
from lab.machines.kubernetes import MachinesCluster
from lab.matrix.cells import cells
from lab.providers.provider import LabHandle
from lab.topology.bind import bind, bound_as, foresee, observed_in
from lab.topology.intent import Intent
from lab.topology.observed import (
    ClusterObserved,
    ObservedNode,
    ObservedPod,
    ObservedService,
    PodLink,
    from_text,
    read_node,
    read_pod,
    to_text,
)
from lab.topology.proxying import probed_services

DRAWN = compile_scenario("overlay")
INTENT = DRAWN.intent
VTEP = "8e:00:00:00:00:01"


def observed(intent: Intent = INTENT) -> ClusterObserved:
    """A cluster that has given every pod another address than planned."""
    pods = []
    for machine in intent.machines:
        hosts = (
            iter(list(ip_network(machine.kubelet.pod_cidr).hosts())[50:]) if machine.pods else ()
        )
        pods += [
            ObservedPod(pod.name, machine.name, str(address), "Running", ready=True, trouble="")
            for pod, address in zip(
                (pod for pod in machine.pods if pod.role == "probe"), hosts, strict=False
            )
        ]
    return ClusterObserved(
        pods=tuple(pods),
        dns=(
            ObservedPod("coredns-a", "worker2", "10.244.2.9", "Running", ready=True, trouble=""),
            ObservedPod("coredns-b", "worker2", "10.244.2.8", "Running", ready=True, trouble=""),
        ),
        services=tuple(
            ObservedService(service.name, service.address) for service in probed_services(intent)
        ),
        nodes=tuple(
            ObservedNode(
                machine.name, machine.kubelet.pod_cidr, VTEP if machine.name == "worker1" else None
            )
            for machine in intent.machines
            if machine.kubelet
        ),
        links=(PodLink("worker1-p1", "aa:00:00:00:00:01", "vethabc", 1450, "10.244.1.1"),),
    )


def test_pods_have_their_real_addresses_wherever_the_intent_speaks_of_them():
    bound = bind(INTENT, observed())
    there = {pod.name: pod.address for pod in observed().pods}
    for machine in bound.machines:
        for pod in machine.pods:
            if pod.role == "probe":
                assert pod.address == f"{there[pod.name]}/24"
        for service in machine.translation.services if machine.translation else ():
            for backend in service.backends:
                if backend.pod in there:
                    assert backend.address == there[backend.pod]
    assert not [one for one in there.values() if one in repr(INTENT)]
    planned = {p.address.partition("/")[0] for m in INTENT.machines for p in m.pods}
    assert not [one for one in planned if f"'{one}'" in repr(bound)]


def test_proxies_of_an_l2bridge_follow_their_pods():
    intent = compile_scenario("hard-way").intent
    bound = bind(intent, observed(intent))
    worker = next(machine for machine in bound.machines if machine.proxies)
    assert {proxy.address for proxy in worker.proxies} >= {
        pod.address.partition("/")[0] for pod in worker.pods if pod.role == "probe"
    }


def test_links_fill_in_only_what_they_contain():
    pods = {pod.name: pod for pod in bind(INTENT, observed()).machine("worker1").pods}
    known, unknown = pods["worker1-p1"], pods["worker1-p2"]
    assert (known.mac, known.port, known.mtu) == ("aa:00:00:00:00:01", "vethabc", 1450)
    assert (unknown.mac, unknown.port) == ("", "")


def test_tunnel_ends_have_the_macs_that_flannel_gave_them():
    bound = bind(INTENT, observed())
    planned = INTENT.machine("worker1").tunnel.mac
    assert bound.machine("worker1").tunnel.mac == VTEP
    for name in ("master", "worker2", "win1"):
        machine = bound.machine(name)
        assert VTEP in {neighbour.mac for neighbour in machine.neighbours}
        assert VTEP in {entry.mac for entry in machine.forwarding}
        assert planned not in repr(machine)


def test_only_tunnels_have_neighbours_that_are_foreseen():
    for machine in bind(INTENT, observed()).machines:
        assert {neighbour.device for neighbour in machine.neighbours} <= {"flannel.4096"}
        assert not [pod for pod in machine.pods if pod.neighbours]


def test_dns_is_where_the_cluster_has_it():
    bound = bind(INTENT, observed())
    assert [(m.name, p.name) for m in bound.machines for p in m.pods if p.role == "dns"] == [
        ("worker2", "coredns-a"),
        ("worker2", "coredns-b"),
    ]
    dns = next(
        service
        for service in bound.machine("win1").translation.services
        if service.name == "kube-dns"
    )
    assert [(backend.pod, backend.address, backend.node) for backend in dns.backends] == [
        ("coredns-a", "10.244.2.9", "worker2"),
        ("coredns-b", "10.244.2.8", "worker2"),
    ]


def test_without_any_dns_pod_the_cells_stay_and_fail_later():
    bound = bind(INTENT, replace(observed(), dns=()))
    assert [pod.name for m in bound.machines for pod in m.pods if pod.role == "dns"] == ["coredns"]


@pytest.mark.parametrize(
    "change", [lambda seen: seen, lambda seen: replace(seen, dns=(), links=())]
)
def test_what_an_intent_was_bound_to_is_found_in_it_and_survives_the_journal(change):
    bound = bind(INTENT, change(observed()))
    written = to_text(observed_in(INTENT, bound))
    assert bound_as(INTENT, from_text(written)) == bound


def test_without_an_answer_of_the_api_pods_are_as_they_were_last_unless_they_must_be_ready(
    tmp_path, monkeypatch
):
    answers: list[ClusterObserved] = [observed()]

    def observe(*_: object, ready: bool) -> ClusterObserved:
        del ready
        if not answers:
            raise DeadlineError("listing pods", "not done within 10 s")
        return answers.pop()

    monkeypatch.setattr(MachinesCluster, "_observe_pods", observe)
    cluster = MachinesCluster(LabHandle("lab", tmp_path, ""), INTENT, None, nullcontext)
    with cluster.probed() as bound:
        assert bound == bind(INTENT, observed())
    with cluster.probed(ready=False) as again:
        assert again == bound
    with pytest.raises(DeadlineError), cluster.probed():
        pass


def test_cells_have_the_same_ids_before_and_after_and_ask_real_addresses():
    before = cells(DRAWN.plan, foresee(INTENT))
    after = cells(DRAWN.plan, bind(INTENT, observed()))
    assert [cell.id for cell in before] == [cell.id for cell in after]
    address = {pod.name: pod.address for pod in observed().pods}
    for cell in after:
        if cell.target.kind == "pod":
            assert cell.target.address == address[cell.target.name]
        if cell.family == "pod-pod":
            assert cell.sources == {address[cell.source.name]}
    names = {cell.target.name for cell in after if cell.name_form == "full"}
    assert names == {"to-master-p1.hybridlab-probe.svc.cluster.local."}


def lose(name: str) -> Callable[[ClusterObserved], ClusterObserved]:
    return lambda observed: replace(
        observed, pods=tuple(pod for pod in observed.pods if pod.name != name)
    )


def change_pod(name: str, **facts: object) -> Callable[[ClusterObserved], ClusterObserved]:
    return lambda observed: replace(
        observed,
        pods=tuple(replace(pod, **facts) if pod.name == name else pod for pod in observed.pods),
    )


def change_service(name: str, **facts: object) -> Callable[[ClusterObserved], ClusterObserved]:
    return lambda observed: replace(
        observed,
        services=tuple(
            replace(service, **facts) if service.name == name else service
            for service in observed.services
        ),
    )


def change_node(name: str, **facts: object) -> Callable[[ClusterObserved], ClusterObserved]:
    return lambda observed: replace(
        observed,
        nodes=tuple(
            replace(node, **facts) if node.name == name else node for node in observed.nodes
        ),
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lose("win1-p1"), "there is no pod 'win1-p1'"),
        (
            change_pod("win1-p1", node="win2"),
            "pod 'win1-p1' runs on node 'win2', not on 'win1'",
        ),
        (change_pod("win1-p1", node=None), "pod 'win1-p1' runs nowhere, not on 'win1'"),
        (change_pod("win1-p1", address=None), "pod 'win1-p1' has no address"),
        (
            change_pod("win1-p1", address="10.244.77.3"),
            "pod 'win1-p1' has address 10.244.77.3, which is not in 10.244.3.0/24 of its node",
        ),
        (
            change_pod("win1-p1", address="10.244.3.52"),
            "pods 'win1-p1' and 'win1-p2' both have address 10.244.3.52",
        ),
        (
            change_service("to-win1-p1", address="10.99.0.1"),
            "Service 'to-win1-p1' has address 10.99.0.1, not ",
        ),
        (
            lambda seen: replace(seen, services=seen.services[1:]),
            "there is no Service 'to-master-p1'",
        ),
        (
            change_node("win1", pod_cidr="10.244.9.0/24"),
            "node 'win1' has pod CIDR 10.244.9.0/24, not 10.244.3.0/24",
        ),
        (lambda seen: replace(seen, nodes=seen.nodes[1:]), "the cluster has no node 'master'"),
    ],
)
def test_what_disagrees_is_named(change, complaint):
    with pytest.raises(BrokenError) as raised:
        bind(INTENT, change(observed()))
    assert complaint in raised.value.happened


def test_everything_that_disagrees_is_named_at_once():
    seen = change_service("to-win1-p1", address="10.99.0.1")(lose("win1-p1")(observed()))
    with pytest.raises(BrokenError) as raised:
        bind(INTENT, seen)
    assert raised.value.happened.count(";") == 1


def test_node_without_a_pod_cidr_in_the_api_is_bound_by_its_pods():
    assert bind(INTENT, change_node("win1", pod_cidr=None)(observed()))


def test_a_pending_pod_of_the_api_has_its_reason():
    found = {
        "metadata": {"name": "a"},
        "spec": {"nodeName": "n"},
        "status": {
            "phase": "Pending",
            "containerStatuses": [
                {
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                    "lastState": {"terminated": {"reason": "Error", "exitCode": 1}},
                }
            ],
        },
    }
    assert read_pod(found).trouble == "CrashLoopBackOff: back-off; Error"
    assert not read_pod(found).ready


def test_annotation_that_is_not_flannels_has_no_mac():
    for said in ("", "null", "no json", "[]", '{"VtepMAC": 7}', '{"VNI": 1}'):
        annotations = {"flannel.alpha.coreos.com/backend-data": said}
        assert read_node({"metadata": {"name": "n", "annotations": annotations}}).tunnel_mac is None


@pytest.mark.parametrize(("pod", "program"), [("win1-p1", "cmd"), ("worker1-p1", "sh")])
def test_a_shell_in_a_pod_is_one_that_its_system_has(
    tmp_path: Path, pod: str, program: str
) -> None:
    ran: list[Sequence[str]] = []
    plane = SimpleNamespace(attach=lambda words: ran.append(words) or 0)
    lab = LabHandle("overlay", tmp_path, "token")
    bundled = SimpleNamespace(
        cluster=SimpleNamespace(control_planes=lambda: [SimpleNamespace(name="master")])
    )
    cluster = MachinesCluster(lab, INTENT, bundled, nullcontext)  # type: ignore[arg-type]
    machine = cluster.machine(SimpleNamespace(shell=lambda _: plane), pod)  # type: ignore[arg-type]
    assert machine is not None
    assert machine.attach(()) == 0
    assert ran[0][-3:] == (pod, "--", program)
