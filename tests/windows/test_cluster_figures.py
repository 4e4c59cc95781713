"""What a Windows node is given beyond what the goldens of its topologies hold."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cluster_nodes import decided

from lab._errors import UsageError
from lab.cluster.windows import calico_bgp, ovn
from lab.cluster.windows.decided import configuration


def written(plan):
    made = configuration(plan.cluster, plan.network)
    assert made is not None
    return json.loads(made[1])


def test_host_gateways_other_bridge_is_sdnbridge_told_to_use_the_second_address():
    plan = decided("host-gateway")
    plan = replace(plan, node=replace(plan.node, pod_cidr="10.10.187.0/26"))
    made = written(plan)["delegate"]
    assert (made["type"], made["optionalFlags"]) == ("sdnbridge", {"forceBridgeGateway": True})


def test_host_gateways_routes_are_the_intents():
    plan = decided("host-gateway")
    wanted = {
        (route.destination, route.via)
        for route in plan.intent.machine(plan.node.name).routes
        if route.destination != "default"
    }
    assert {(one.destination, one.via) for one in plan.routes().routes} == wanted
    assert len(wanted) == 4


def test_calico_by_bgp_is_kept_as_documented_and_refused():
    plan = decided("calico-vxlan")
    assert calico_bgp.settings(plan.cluster)["data"]["K8S_SERVICE_CIDR"] == "10.96.0.0/12"
    assert calico_bgp.settings(plan.cluster)["data"]["CALICO_NETWORKING_BACKEND"] == "windows-bgp"
    assert "Install-RemoteAccess -VpnType RoutingOnly" in calico_bgp.commands()
    plan = replace(plan, cluster=replace(plan.cluster, topology="calico-bgp"))
    with pytest.raises(UsageError, match="nobody has verified"):
        assert plan.network


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
