"""What a Windows node is given beyond what the goldens of its topologies hold."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cluster_nodes import decided

from lab._errors import UsageError
from lab.cluster.windows.join_plan import plugin_config


def written(plan):
    made = plugin_config(plan.cluster, plan.network)
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


@pytest.mark.parametrize("topology", ["calico-bgp", "ovn"])
def test_a_topology_that_is_only_documented_is_refused(topology):
    plan = decided("overlay")
    plan = replace(plan, cluster=replace(plan.cluster, topology=topology))
    with pytest.raises(UsageError, match="unverified"):
        assert plan.network
