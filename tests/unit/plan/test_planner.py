import json
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from lab.plan.canonical import digest, plain
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load, shipped


def plan_of(name: str) -> Plan:
    return make_plan(load(find(name)))


@pytest.mark.parametrize("name", shipped())
def test_no_address_mac_or_name_is_given_twice(name):
    plan = plan_of(name)
    addresses = [
        plan.router_address,
        plan.client_address,
        *(node.address for node in plan.nodes),
        *(pod.address for pod in plan.pods()),
        *(service.address for service in plan.services),
    ]
    assert len(set(addresses)) == len(addresses)
    macs = [*(node.mac for node in plan.nodes), *(pod.mac for pod in plan.pods())]
    assert len(set(macs)) == len(macs)
    names = [
        *(node.name for node in plan.nodes),
        *(pod.name for pod in plan.pods()),
        *(service.name for service in plan.services),
    ]
    assert len(set(names)) == len(names)
    ports = [
        port.node_port for service in plan.services for port in service.ports if port.node_port
    ]
    assert len(set(ports)) == len(ports)


@pytest.mark.parametrize("name", shipped())
def test_every_address_lies_where_it_belongs(name):
    plan = plan_of(name)
    for node in plan.nodes:
        assert node.address in plan.node_cidr
        for pod in node.pods:
            assert node.pod_cidr is not None
            assert pod.address in node.pod_cidr
            assert node.pod_cidr.subnet_of(plan.pod_cidr)
            assert pod.address not in {node.pod_cidr[n] for n in range(4)}
            assert pod.address != node.pod_cidr.broadcast_address
    for service in plan.services:
        assert service.address in plan.service_cidr


def test_mac_is_made_of_the_address():
    node = plan_of("overlay").node("master")
    assert node.address == IPv4Address("10.9.176.10")
    assert node.mac == "0a:58:0a:09:b0:0a"


def test_every_probe_pod_has_a_service_of_its_own_with_one_backend():
    plan = plan_of("overlay")
    single = {s.backends for s in plan.services if s.purpose == "single"}
    assert single == {(pod.name,) for pod in plan.pods() if pod.role == "probe"}


def test_shared_service_spreads_over_nodes_and_systems():
    plan = plan_of("overlay")
    shared = next(s for s in plan.services if s.purpose == "shared")
    nodes = [name.rsplit("-", 1)[0] for name in shared.backends]
    assert len(set(nodes)) == len(nodes) == 4
    assert {plan.node(node).os for node in nodes} == {"linux", "windows"}


def test_one_dns_pod_stands_on_the_first_linux_node_with_a_kubelet():
    plan = plan_of("hard-way")
    assert [(pod.name, pod.node) for pod in plan.pods() if pod.role == "dns"] == [
        ("coredns", "worker-0")
    ]


def test_explicit_addresses_are_skipped_when_others_are_handed_out():
    scenario = load(find("overlay"))
    first, *rest = scenario.nodes
    taken = IPv4Address("10.9.176.11")
    moved = scenario.replace(nodes=(first.replace(address=taken), *rest))
    addresses = [node.address for node in make_plan(moved).nodes]
    assert addresses[0] == taken
    assert addresses.count(taken) == 1


def test_plan_is_plain_json():
    text = json.dumps(plain(plan_of("overlay")))
    assert json.loads(text)["nodes"][3]["os"] == "windows"


def test_digest_changes_with_any_field():
    plan = plan_of("overlay")
    assert digest(plan) != digest(replace(plan, node_mtu=1400))


def test_a_value_without_one_spelling_is_refused():
    with pytest.raises(TypeError, match="no canonical form for object"):
        plain(object())
