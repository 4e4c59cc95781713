"""Static routes that a scenario gives its nodes: from the file to where they are set."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest
from shipped import intent_of

from lab._errors import PreflightError
from lab.cluster.cluster import underlay
from lab.plan.planner import make_plan
from lab.providers.machines.base import require_fit
from lab.providers.netns.compile import compile_intent
from lab.providers.netns.operations import RouteSet
from lab.scenario.loader import find, load
from lab.scenario.scenario import StaticRoute
from lab.topology.hypervisors import on_real_ones
from lab.topology.intent import Intent, Route
from lab.topology.registry import intent

FAR = StaticRoute(to=IPv4Network("172.20.0.0/16"), via=IPv4Address("10.127.132.254"))


def with_routes(name: str, node: str, *routes: StaticRoute) -> Intent:
    read = load(find(name))
    groups = (one.replace(routes=routes) if one.name == node else one for one in read.nodes)
    return intent(make_plan(read.replace(nodes=tuple(groups))))


def test_the_hard_ways_document_routes_its_windows_node_to_the_first_controller():
    built = intent_of("hard-way")
    wanted = Route("10.240.0.4/32", "eth0", "10.240.0.1", asked=True)
    assert wanted in built.machine("win-server").routes
    assert [m.name for m in built.machines if any(r.asked for r in m.routes)] == ["win-server"]


def test_every_node_of_a_group_has_its_routes_beside_the_topologys():
    bare, built = with_routes("host-gateway", "worker"), with_routes("host-gateway", "worker", FAR)
    wanted = Route("172.20.0.0/16", "eth0", "10.127.132.254", asked=True)
    for name in ("worker1", "worker2"):
        assert built.machine(name).routes == (*bare.machine(name).routes, wanted)
    assert built.machine("win1") == bare.machine("win1")


def test_a_route_to_anothers_pods_stands_instead_of_the_topologys():
    cidr = "10.10.187.64/26"
    detour = StaticRoute(to=IPv4Network(cidr), via=IPv4Address("10.127.132.129"))
    found = [
        route
        for route in with_routes("host-gateway", "master", detour).machine("master").routes
        if route.destination == cidr
    ]
    assert found == [Route(cidr, "eth0", "10.127.132.129", asked=True)]


def test_namespaces_and_machines_get_them():
    built = with_routes("host-gateway", "worker", FAR)
    made = {one.namespace: one.operations for one in compile_intent(built)}
    wanted = RouteSet("172.20.0.0/16", "eth0", "10.127.132.254", onlink=False)
    assert wanted in made["worker1"]
    own = underlay(built).machine("worker1")
    assert [route.destination for route in own.routes] == ["default", "172.20.0.0/16"]


def test_flannel_would_undo_a_route_to_pods_and_so_the_cluster_is_refused():
    require_fit(on_real_ones(with_routes("host-gateway", "worker", FAR)))
    detour = StaticRoute(to=IPv4Network("10.10.187.64/26"), via=IPv4Address("10.127.132.129"))
    built = with_routes("host-gateway", "worker", detour)
    require_fit(on_real_ones(replace(built, kubernetes=None)))
    with pytest.raises(PreflightError, match=r"'worker1' asks for a route to 10\.10\.187\.64/26"):
        require_fit(on_real_ones(built))
