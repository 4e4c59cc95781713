"""Routes that a scenario gives its nodes, on machines and in clusters."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from lab._errors import PreflightError
from lab.machines.base import require_fit
from lab.machines.cluster.cluster import underlay
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load
from lab.scenario.scenario import StaticRoute
from lab.topology.hypervisors import on_real_ones
from lab.topology.intent import Intent
from lab.topology.registry import intent as intent_of


def with_route(to: str, via: str) -> Intent:
    read = load(find("host-gateway"))
    route = StaticRoute(to=IPv4Network(to), via=IPv4Address(via))
    groups = (
        group.replace(routes=(route,)) if group.name == "worker" else group for group in read.nodes
    )
    return intent_of(make_plan(read.replace(nodes=tuple(groups))))


def test_machines_get_the_routes_of_their_group():
    own = underlay(with_route("172.20.0.0/16", "10.127.132.254")).machine("worker1")
    assert [route.destination for route in own.routes] == ["default", "172.20.0.0/16"]


def test_flannel_would_undo_a_route_to_pods_and_so_the_cluster_is_refused():
    require_fit(on_real_ones(with_route("172.20.0.0/16", "10.127.132.254")))
    built = with_route("10.10.187.64/26", "10.127.132.129")
    require_fit(on_real_ones(replace(built, kubernetes=None)))
    with pytest.raises(PreflightError, match=r"'worker1' asks for a route to 10\.10\.187\.64/26"):
        require_fit(on_real_ones(built))
