"""What topologies make of scenarios, with the static routes that these give their nodes."""

import json
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest
from shipped import intent_of, plan_of

from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.providers.netns.compile import compile_intent
from lab.providers.netns.operations import RouteSet
from lab.scenario.loader import find, load, shipped
from lab.scenario.scenario import Scenario, StaticRoute
from lab.scenario.validation import schema
from lab.topology import registry
from lab.topology.cost import cost
from lab.topology.intent import Intent, Route
from lab.topology.registry import intent

KINDS = shipped()


def scenario_of(name: str) -> Scenario:
    return load(find(name))


def built(name: str) -> tuple[Plan, Intent]:
    return plan_of(name), intent_of(name)


def test_hard_way_gives_static_routes_to_windows_alone():
    plan, intent = built("hard-way")
    for node in plan.nodes:
        static = [r for r in intent.machine(node.name).routes if r.destination != "default"]
        assert bool(static) == (node.os == "windows"), node.name
    assert len(intent.machine("router").routes) == 4


def test_overlay_takes_the_tunnels_bytes_from_the_pods_mtu():
    _, intent = built("overlay")
    assert (intent.pod_mtu, intent.node_mtu) == (1450, 1500)
    tunnel = intent.machine("win1").tunnel
    assert tunnel
    assert (tunnel.name, tunnel.vni, tunnel.port, tunnel.mtu) == ("flannel.4096", 4096, 4789, 1450)


def test_overlay_has_a_forwarding_entry_and_a_neighbour_for_every_other_end():
    _, intent = built("overlay")
    for machine in (m for m in intent.machines if m.tunnel):
        assert machine.tunnel
        assert len(machine.forwarding) == 4
        tunnel_neighbours = [n for n in machine.neighbours if n.device == machine.tunnel.name]
        assert {n.mac for n in tunnel_neighbours} == {e.mac for e in machine.forwarding}


def test_direct_routing_leaves_the_tunnel_unused():
    scenario = scenario_of("overlay")
    direct = scenario.replace(topology=scenario.topology.replace(direct_routing=True))
    plan = make_plan(direct)
    for machine in registry.intent(plan).machines:
        assert all(route.device == "eth0" for route in machine.routes)


@pytest.mark.parametrize("kind", ["host-gateway", "upstream-tor", "hard-way", "calico-bgp"])
def test_windows_node_answers_arp_for_its_pods_and_is_their_gateway_at_two(kind):
    plan, intent = built(kind)
    for node in plan.nodes:
        machine = intent.machine(node.name)
        if node.os != "windows":
            assert not machine.proxies
            continue
        assert node.pod_cidr
        assert {proxy.address for proxy in machine.proxies} == {str(p.address) for p in node.pods}
        assert {pod.gateway for pod in machine.pods} == {str(node.pod_cidr[2])}


@pytest.mark.parametrize("kind", KINDS)
def test_no_device_name_is_longer_than_the_kernel_allows(kind):
    _, intent = built(kind)
    for machine in intent.machines:
        names = [interface.name for interface in machine.interfaces]
        names += [pod.port for pod in machine.pods]
        names += [device.name for device in (machine.bridge, machine.tunnel) if device]
        assert all(len(name) <= 15 for name in names)
        assert len(set(names)) == len(names)


def test_every_topology_has_a_schema_of_its_own_parameters():
    shipped = {scenario_of(name).topology.kind for name in KINDS}
    assert set(registry.schemas()) == {*shipped, "custom"}, "custom has no file of ours"
    assert "vni" in str(registry.schemas()["overlay"])


def test_scenario_exceptions_come_before_the_topologys_limits():
    plan, _ = built("overlay")
    limit = registry.limits(plan)[-1]
    special = limit.replace(id="overlay-exception-1")
    assert registry.limits(replace(plan, exceptions=(special,)))[0] == special


def test_prediction_grows_with_the_lab():
    scenario = scenario_of("overlay")
    larger = make_plan(scenario.replace(pods_per_node=20))
    small = cost(registry.intent(make_plan(scenario)))
    large = cost(registry.intent(larger))
    assert large.counts["namespace"] == small.counts["namespace"] + 90
    assert large.seconds > small.seconds


def test_nodes_have_the_services_of_their_own_plan_in_common():
    few, more = (make_plan(scenario_of("overlay").replace(pods_per_node=pods)) for pods in (1, 2))
    made = [registry.intent(few), registry.intent(more), registry.intent(few)]
    for made_intent, plan in zip(made, (few, more, few), strict=True):
        (services,) = {
            id(machine.translation.services): machine.translation.services
            for machine in made_intent.machines
            if machine.translation
        }.values()
        assert [service.name for service in services] == [service.name for service in plan.services]
    assert made[0] == made[2]


def test_published_schema_is_the_one_that_the_command_prints():
    published = find("overlay").with_name("scenario.schema.json")
    assert json.loads(published.read_text()) == schema(registry.schemas())


def test_topology_that_a_nodes_system_cannot_do_is_named_with_the_node(monkeypatch):
    linux_only = replace(registry.topologies()["overlay"], systems=frozenset({"linux"}))
    monkeypatch.setattr(registry, "topologies", lambda: {"overlay": linux_only})
    messages = [problem.what for problem in registry.check(scenario_of("overlay"))]
    assert messages == [
        f'node "{name}" cannot take part: topology "overlay" does not exist on Windows'
        for name in ("win1", "win2")
    ]


FAR = StaticRoute(to=IPv4Network("172.20.0.0/16"), via=IPv4Address("10.127.132.254"))


def with_routes(name: str, node: str, *routes: StaticRoute) -> Intent:
    read = load(find(name))
    groups = (group.replace(routes=routes) if group.name == node else group for group in read.nodes)
    return intent(make_plan(read.replace(nodes=tuple(groups))))


def test_the_hard_ways_document_routes_its_windows_node_to_the_first_controller():
    built = intent_of("hard-way")
    wanted = Route("10.240.0.4/32", "eth0", "10.240.0.1", requested=True)
    assert wanted in built.machine("win-server").routes
    assert [m.name for m in built.machines if any(r.requested for r in m.routes)] == ["win-server"]


def test_every_node_of_a_group_has_its_routes_beside_the_topologys():
    bare, built = with_routes("host-gateway", "worker"), with_routes("host-gateway", "worker", FAR)
    wanted = Route("172.20.0.0/16", "eth0", "10.127.132.254", requested=True)
    for name in ("worker1", "worker2"):
        assert built.machine(name).routes == (*bare.machine(name).routes, wanted)
    assert built.machine("win1") == bare.machine("win1")


def test_a_route_to_anothers_pods_stands_instead_of_the_topologys():
    cidr = "10.10.187.64/26"
    detour = StaticRoute(to=IPv4Network(cidr), via=IPv4Address("10.127.132.129"))
    routes = [
        route
        for route in with_routes("host-gateway", "master", detour).machine("master").routes
        if route.destination == cidr
    ]
    assert routes == [Route(cidr, "eth0", "10.127.132.129", requested=True)]


def test_namespaces_get_them():
    built = with_routes("host-gateway", "worker", FAR)
    made = {operations.namespace: operations.operations for operations in compile_intent(built)}
    wanted = RouteSet("172.20.0.0/16", "eth0", "10.127.132.254", onlink=False)
    assert wanted in made["worker1"]
