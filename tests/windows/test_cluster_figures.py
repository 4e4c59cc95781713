"""Figures of the documents that the scenarios come from, in what a Windows node is given."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cluster_nodes import decided, seen

from lab._errors import UsageError
from lab.cluster.windows import calico_bgp, cni, flannel, hns, ovn


def plugin(topology):
    return written(decided(topology))


def written(plan):
    made = cni.configuration(plan.cluster, plan.network)
    assert made is not None
    return json.loads(made[1])


def policies(document):
    """Type of each endpoint policy with its settings."""
    inner = document.get("delegate", document)
    listed = inner.get("AdditionalArgs") or inner["policies"]
    values = [{key.lower(): one for key, one in entry.items()}["value"] for entry in listed]
    return [(value["Type"], value["Settings"]) for value in values]


def exceptions(document):
    return set(dict(policies(document))["OutBoundNAT"]["Exceptions"])


def encapsulated(document):
    routes = [settings for kind, settings in policies(document) if kind.upper() == "SDNROUTE"]
    assert all(settings["NeedEncap"] is True for settings in routes)
    return {settings["DestinationPrefix"] for settings in routes}


def test_overlay_has_the_vni_and_port_that_flannel_takes_on_windows():
    plan = decided("overlay")
    assert json.loads(flannel.net_conf(plan.cluster, plan.network)) == {
        "Network": "10.244.0.0/16",
        "Backend": {"Type": "vxlan", "VNI": 4096, "Port": 4789},
    }


def test_overlay_plugin_is_flannels_with_sdnoverlay():
    made = plugin("overlay")
    assert (made["name"], made["type"]) == ("flannel.4096", "flannel")
    assert made["delegate"]["type"] == "sdnoverlay"
    assert [kind for kind, _ in policies(made)] == ["OutBoundNAT", "SDNROUTE", "ProviderAddress"]
    nat, route, provider = (settings for _, settings in policies(made))
    assert nat == {"Exceptions": ["10.96.0.0/12", "10.244.0.0/16"]}
    assert route == {"DestinationPrefix": "10.96.0.0/12", "NeedEncap": True}
    assert provider == {"ProviderAddress": "10.9.176.94"}


def test_flanneld_is_told_the_real_api_server_and_the_nodes_own_address():
    plan = decided("overlay")
    assert "--kube-subnet-mgr" in flannel.arguments(plan.node)
    assert "--iface=10.9.176.94" in flannel.arguments(plan.node)
    told = flannel.environment(plan.cluster, plan.node)
    assert told["KUBERNETES_SERVICE_HOST"] == plan.cluster.control_planes()[0].address
    assert told["KUBERNETES_SERVICE_PORT"] == "6443"


def test_overlays_source_address_is_asked_of_host_local_as_upstream_does():
    wanted = decided("overlay").source_vip()
    assert wanted.container == "dummy"
    assert wanted.answer_file == "C:\\sourcevip\\sourceVip.json"
    request = json.loads(wanted.request)
    assert request["name"] == "flannel.4096"
    assert request["ipam"]["dataDir"] == "/var/lib/cni/networks"


@pytest.mark.parametrize(
    ("topology", "name"),
    [
        ("overlay", "flannel.4096"),
        ("kubeinit", "flannel.4096"),
        ("host-gateway", "cbr0"),
        ("upstream-tor", "l2bridge"),
        ("hard-way", "l2bridge"),
        ("calico-vxlan", "Calico"),
    ],
)
def test_kube_proxy_works_on_the_network_of_its_topology(topology, name):
    plan = decided(topology)
    vip = "10.244.3.2" if plan.network.kind == "Overlay" else None
    service = plan.proxy(seen("2022"), vip)
    assert service.environment == (f"KUBE_NETWORK={name}",)
    assert ("--source-vip=10.244.3.2" in service.command) == (vip is not None)


def test_host_gateway_has_the_guides_figures():
    """The guide's service range is wider than an API server takes: 11.0.0.0/12 is its first."""
    made = plugin("host-gateway")
    assert exceptions(made) == {"11.0.0.0/12", "10.10.0.0/16", "10.127.132.128/25"}
    assert encapsulated(made) == {"11.0.0.0/12", "10.127.132.213/32"}
    assert made["delegate"]["dns"]["nameservers"] == ["11.0.0.10"]
    own = decided("host-gateway").network
    assert (own.pod_cidr, own.endpoint_address) == ("10.10.187.64/26", "10.10.187.66")


def test_host_gateways_bridge_knows_a_network_that_does_not_end_in_zero():
    """sdnbridge sets the last byte of the gateway to 2: 10.10.187.2 is not in 10.10.187.64/26."""
    assert plugin("host-gateway")["delegate"]["type"] == "win-bridge"


def test_host_gateways_other_bridge_is_sdnbridge_told_to_use_the_second_address():
    plan = decided("host-gateway")
    plan = replace(plan, node=replace(plan.node, pod_cidr="10.10.187.0/26"))
    made = written(plan)["delegate"]
    assert (made["type"], made["optionalFlags"]) == ("sdnbridge", {"forceBridgeGateway": True})


def test_upstream_router_has_the_walk_throughs_figures():
    made = plugin("upstream-tor")
    assert (made["name"], made["type"], made["apiVersion"]) == ("l2bridge", "win-bridge", 2)
    assert exceptions(made) == {"10.160.0.0/12", "10.176.0.0/12"}
    assert encapsulated(made) == {"10.176.0.0/12"}
    assert made["dns"]["nameservers"] == ["10.176.0.10"]


def test_upstream_routers_bridge_is_made_as_in_the_walk_through():
    plan = decided("upstream-tor")
    network = json.loads(plan.hns_network().networks[-1])
    assert network == {
        "Type": "L2Bridge",
        "Name": "l2bridge",
        "Subnets": [{"AddressPrefix": "10.160.11.0/24", "GatewayAddress": "10.160.11.1"}],
    }
    endpoint = json.loads(plan.hns_network().endpoint)
    assert endpoint["Name"] == "cbr0"
    assert endpoint["IPAddress"] == "10.160.11.2"
    assert endpoint["GatewayAddress"] == "0.0.0.0"
    assert hns.attachment()["CompartmentId"] == 1


def test_only_the_vrrp_bridge_leaves_the_pods_gateway_to_hns():
    """There it is the address that the Linux nodes hand on: network + 1."""
    assert "ipam" not in plugin("upstream-vrrp")
    assert plugin("upstream-tor")["ipam"]["ranges"] == [
        [{"subnet": "10.160.11.0/24", "rangeStart": "10.160.11.3"}]
    ]


def test_hard_way_has_the_talks_figures_in_wincnis_form():
    made = plugin("hard-way")
    assert made["ipam"] == {
        "environment": "azure",
        "subnet": "10.200.3.0/24",
        "routes": [{"GW": "10.200.3.2"}],
    }
    assert exceptions(made) == {"10.200.0.0/16", "10.32.0.0/24", "10.240.0.0/24"}
    own = decided("hard-way").node.address
    assert encapsulated(made) == {"10.32.0.0/24", f"{own}/32"}
    assert made["dns"]["Nameservers"] == ["10.32.0.10"]


def test_hard_way_alone_has_a_route_to_the_first_control_plane():
    plan = decided("hard-way")
    routes = {route.destination: route.via for route in plan.routes().routes}
    assert {"10.200.0.0/24", "10.200.1.0/24", "10.200.2.0/24"} < set(routes)
    assert "10.200.3.0/24" not in routes
    master = plan.cluster.control_planes()[0].address
    assert routes[f"{master}/32"] not in {None, master}


@pytest.mark.parametrize("topology", ["overlay", "upstream-tor", "upstream-vrrp"])
def test_nodes_that_know_a_default_route_alone_get_no_other(topology):
    assert decided(topology).routes().routes == ()


def test_host_gateways_routes_are_the_intents():
    plan = decided("host-gateway")
    wanted = {
        (route.destination, route.via)
        for route in plan.intent.machine(plan.node.name).routes
        if route.destination != "default"
    }
    assert {(one.destination, one.via) for one in plan.routes().routes} == wanted
    assert len(wanted) == 4


def test_first_network_is_of_the_same_kind_and_on_no_range_of_the_lab():
    for topology, kind in (("overlay", "Overlay"), ("hard-way", "L2Bridge")):
        first = json.loads(decided(topology).hns_network().networks[0])
        assert (first["Name"], first["Type"]) == ("External", kind)
        assert first["Subnets"][0]["AddressPrefix"] == "192.168.255.0/30"


def test_calico_by_bgp_is_kept_as_documented_and_refused():
    plan = decided("calico-vxlan")
    assert calico_bgp.settings(plan.cluster)["data"]["K8S_SERVICE_CIDR"] == "10.96.0.0/12"
    assert calico_bgp.settings(plan.cluster)["data"]["CALICO_NETWORKING_BACKEND"] == "windows-bgp"
    assert "Install-RemoteAccess -VpnType RoutingOnly" in calico_bgp.commands()
    plan = replace(plan, cluster=replace(plan.cluster, topology="calico-bgp"))
    with pytest.raises(UsageError, match="nobody has verified"):
        assert plan.network


def test_calico_makes_its_own_networks_and_endpoint():
    plan = decided("calico-vxlan")
    assert plan.hns_network() is None
    assert plan.plugin_files() is None
    assert plan.source_vip().endpoint == "Calico_ep"


def test_ovn_is_kept_as_its_guide_has_it_and_refused():
    plan = decided("overlay")
    node = replace(plan.node, pod_cidr="10.0.1.0/24")
    subnet = {"AddressPrefix": "10.0.1.0/24", "GatewayAddress": "10.0.1.1"}
    assert ovn.network(node)["Subnets"] == [subnet]
    assert ovn.plugin(node)["bridge"] == "br-int"
    assert any("add-br br-ex" in one for one in ovn.commands("Ethernet0"))
    plan = replace(plan, cluster=replace(plan.cluster, topology="ovn"))
    with pytest.raises(UsageError, match="nobody has verified"):
        assert plan.network
