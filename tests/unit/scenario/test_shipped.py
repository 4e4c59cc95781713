"""The shipped scenarios, against the figures of the documents they come from."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from lab.scenario.loader import SpecString, find, load, shipped
from lab.scenario.scenario import Scenario, node_names, probe_pods

FIGURES = {
    "overlay": ("10.9.176.0/24", "10.244.0.0/16", 24, "10.96.0.0/12", "10.96.0.10"),
    "host-gateway": ("10.127.132.128/25", "10.10.0.0/16", 26, "11.0.0.0/12", "11.0.0.10"),
    "upstream-tor": ("100.100.126.0/23", "10.160.0.0/12", 24, "10.176.0.0/12", "10.176.0.10"),
    "calico-bgp": ("10.30.0.0/24", "10.244.0.0/16", 26, "10.96.0.0/12", "10.96.0.10"),
    "calico-bgp-tor": ("10.30.0.0/24", "10.244.0.0/16", 26, "10.96.0.0/12", "10.96.0.10"),
    "calico-vxlan": ("10.30.0.0/24", "10.244.0.0/16", 26, "10.96.0.0/12", "10.96.0.10"),
    "upstream-vrrp": ("100.100.126.0/23", "10.160.0.0/12", 24, "10.176.0.0/12", "10.176.0.10"),
    "kubeinit": ("10.0.0.0/24", "10.244.0.0/16", 24, "10.96.0.0/12", "10.96.0.10"),
    "ovn": ("10.20.0.0/24", "10.0.0.0/16", 24, "10.96.0.0/12", "10.96.0.10"),
    "hard-way": ("10.240.0.0/24", "10.200.0.0/16", 24, "10.32.0.0/24", "10.32.0.10"),
}
VARIANTS = {"calico-bgp-tor": "calico-bgp"}
"""Scenarios that are not named like their topology."""


def of(name: str) -> Scenario:
    return load(find(name))


def nodes(scenario: Scenario) -> list[str]:
    return [name for group in scenario.nodes for name in node_names(group)]


def test_every_shipped_scenario_has_its_figures_here() -> None:
    assert set(shipped()) >= set(FIGURES)


@pytest.mark.parametrize("name", shipped())
def test_shipped_scenario_is_valid_and_named_like_its_file(name: str) -> None:
    scenario = of(name)
    assert scenario.name == name
    assert scenario.kubernetes.version == "1.36"
    assert {group.os for group in scenario.nodes} == {"linux", "windows"}
    assert probe_pods(scenario) >= 8


@pytest.mark.parametrize("name", FIGURES)
def test_addresses_are_those_of_the_document(name: str) -> None:
    scenario = of(name)
    kubernetes = scenario.kubernetes
    found = (scenario.network.cidr, kubernetes.pod_cidr, kubernetes.node_prefix)
    found += (kubernetes.service_cidr, kubernetes.dns_address)
    assert tuple(map(str, found)) == tuple(map(str, FIGURES[name]))
    assert scenario.topology.kind == VARIANTS.get(name, name)


def test_overlay_has_five_nodes_and_ten_pods() -> None:
    scenario = of("overlay")
    assert nodes(scenario) == ["master", "worker1", "worker2", "win1", "win2"]
    assert probe_pods(scenario) == 10
    assert scenario.topology.parameters == {"vni": 4096, "port": 4789}
    assert [(one.name, one.backends) for one in scenario.services.shared] == [("everyone", 4)]


def test_ovn_has_the_documents_pod_range_on_its_first_node() -> None:
    first = of("ovn").nodes[0]
    assert (str(first.pod_cidr), first.role) == ("10.0.1.0/24", "control-plane")


def test_host_gateway_has_the_documents_windows_node() -> None:
    win = next(group for group in of("host-gateway").nodes if group.os == "windows")
    assert win.address == IPv4Address("10.127.132.213")
    assert str(win.pod_cidr) == "10.10.187.64/26"


def test_upstream_tor_has_the_documents_windows_node() -> None:
    win = next(group for group in of("upstream-tor").nodes if group.os == "windows")
    assert win.name == "node009"
    assert win.address == IPv4Address("100.100.126.216")
    assert str(win.pod_cidr) == "10.160.11.0/24"


def test_upstream_vrrp_has_the_documents_masters_networks_and_suffix() -> None:
    scenario = of("upstream-vrrp")
    masters = [group for group in scenario.nodes if group.role == "control-plane"]
    assert {one.name: (str(one.address), str(one.pod_cidr)) for one in masters} == {
        "master1": ("100.100.126.202", "10.160.0.0/24"),
        "master2": ("100.100.126.203", "10.160.1.0/24"),
        "master3": ("100.100.126.204", "10.160.2.0/24"),
    }
    win = next(group for group in scenario.nodes if group.os == "windows")
    assert (win.name, str(win.address), str(win.pod_cidr)) == (
        "node009",
        "100.100.126.216",
        "10.160.11.0/24",
    )
    assert scenario.kubernetes.domain == "mylan.k8s"
    assert scenario.topology.parameters == {
        "office_cidr": "172.16.126.0/24",
        "advert_seconds": 1,
    }


def test_kubeinit_has_the_nodes_in_the_documents_order() -> None:
    scenario = of("kubeinit")
    assert [str(group.address) for group in scenario.nodes] == [
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.3",
        "10.0.0.4",
        "10.0.0.5",
        "10.0.0.6",
        "10.0.0.253",
    ]
    roles = [group.role for group in scenario.nodes]
    assert roles == ["control-plane"] * 3 + ["worker"] * 3 + ["services"]
    assert str(scenario.network.router) == "10.0.0.254"


def test_kubeinit_is_what_its_spec_string_makes() -> None:
    shipped, made = of("kubeinit"), load(SpecString("k8s-libvirt-3-3-2,compute-03.os=linux"))
    kept = {"name": "", "summary": "", "nodes": ()}
    assert shipped.replace(**kept) == made.replace(**kept)
    assert [group.replace(line=0) for group in shipped.nodes] == [
        group.replace(line=0) for group in made.nodes
    ]


def test_hard_way_has_three_controllers_without_pods() -> None:
    scenario = of("hard-way")
    controllers = [group for group in scenario.nodes if group.role == "control-plane"]
    assert [(one.name, one.kubelet) for one in controllers] == [
        (f"controller-{number}", False) for number in range(3)
    ]
    assert controllers[0].address == IPv4Address("10.240.0.4")
    assert {one.name: str(one.pod_cidr) for one in scenario.nodes if one.kubelet} == {
        "worker-0": "10.200.0.0/24",
        "worker-1": "10.200.1.0/24",
        "worker-2": "10.200.2.0/24",
        "win-server": "10.200.3.0/24",
    }
