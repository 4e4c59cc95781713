"""BIRD and keepalived: their configuration, who holds a gateway, and what others learn."""

import re
from ipaddress import ip_interface
from pathlib import Path

import pytest
from shipped import intent_of

from lab.plan.planner import make_plan
from lab.scenario.loader import find, load
from lab.topology import bird, gateways, registry
from lab.topology.daemon import Daemon
from lab.topology.intent import Intent, MachineIntent, Route, Speaker
from lab.topology.kinds import upstream_vrrp
from lab.topology.path import Flow
from lab.topology.walk import walk

CASES = Path(__file__).parents[2] / "cases" / "daemons"
GOLDEN = {
    "bird-mesh": ("calico-bgp", "worker1"),
    "bird-node-of-tor": ("calico-bgp-tor", "win1"),
    "bird-tor": ("calico-bgp-tor", "router"),
    "bird-overlay": ("upstream-vrrp", "node001"),
}


def speaker_of(machine: MachineIntent) -> Speaker:
    assert machine.speaker is not None
    return machine.speaker


@pytest.mark.parametrize("case", GOLDEN)
def test_configuration_of_bird(case):
    scenario, name = GOLDEN[case]
    machine = intent_of(scenario).machine(name)
    (daemon,) = (daemon for daemon in machine.daemons if daemon.name == "bird")
    assert daemon.files[0].text == (CASES / f"{case}.conf").read_text(encoding="utf-8")


def test_it_is_ready_once_every_route_is_there_and_not_before():
    routes = (
        Route("10.244.0.0/26", "eth0", "10.30.0.10"),
        Route("10.244.0.64/26", "eth0", "10.30.0.1"),
    )
    speaker = Speaker("10.30.0.11", 64512, (), (), 9)
    pattern = bird.daemon(speaker, "10.244.0.0/16", routes).ready.pattern
    there = (
        "10.244.0.64/26 via 10.30.0.1 dev eth0 metric 32 \n"
        "10.244.0.0/26 via 10.30.0.10 dev eth0 metric 32 \n"
    )
    assert re.search(pattern, there, re.MULTILINE)
    one, other = there.splitlines()
    wrong = "unreachable 10.244.0.0/26 metric 32"
    for text in ("", one, other, f"{one}\n{wrong}", f"{one}1\n", there.replace(".10 ", ".11 ")):
        assert not re.search(pattern, text, re.MULTILINE), text


def test_without_a_route_to_learn_it_is_ready_when_it_is_up():
    ready = bird.daemon(Speaker("10.30.0.11", 64512, (), (), 9), "10.244.0.0/16", ()).ready
    assert re.search(ready.pattern, "BIRD 2\nDaemon is up and running\n", re.MULTILINE)


@pytest.mark.parametrize("name", ["calico-bgp", "calico-bgp-tor", "upstream-vrrp"])
def test_every_session_has_its_other_end(name):
    machines = intent_of(name).machines
    ends = {
        (machine.name, session.machine): (session.address, session.asn)
        for machine in machines
        if machine.speaker
        for session in machine.speaker.sessions
    }
    for near, far in ends:
        speaker = speaker_of(intent_of(name).machine(near))
        assert ends[far, near] == (speaker.address, speaker.asn)
    assert len(ends) == {"calico-bgp": 20, "calico-bgp-tor": 10, "upstream-vrrp": 12}[name]


def test_a_tor_passes_on_learned_routes_and_a_node_does_not():
    intent = intent_of("calico-bgp-tor")
    nodes = [machine for machine in intent.machines if machine.kind == "node"]
    assert speaker_of(intent.machine("router")).passes_on
    assert not any(speaker_of(node).passes_on for node in nodes)
    assert len({speaker_of(node).asn for node in nodes}) == len(nodes)
    assert {route.via for node in nodes for route in node.routes if route.by} == {"10.30.0.1"}


def vrrp(**parameters: object) -> Intent:
    scenario = load(find("upstream-vrrp"))
    chosen = {**scenario.topology.parameters, **parameters}
    topology = scenario.topology.replace(**chosen)
    return registry.intent(make_plan(scenario.replace(topology=topology)))


def daemon(intent: Intent, machine: str, name: str = "keepalived") -> Daemon:
    (daemon,) = (daemon for daemon in intent.machine(machine).daemons if daemon.name == name)
    return daemon


def learned(intent: Intent, machine: str) -> dict[str, Route]:
    return {
        route.destination: route for route in intent.machine(machine).routes if route.by == "bird"
    }


@pytest.mark.parametrize(
    ("case", "machine", "advert"),
    [("keepalived-holder", "master1", 1), ("keepalived-backup-at-100-ms", "master3", 0.1)],
)
def test_configuration_of_keepalived(case, machine, advert):
    text = daemon(vrrp(advert_seconds=advert), machine).files[0].text
    assert text == (CASES / f"{case}.conf").read_text(encoding="utf-8")


def test_a_holder_has_time_to_hear_three_advertisements_missing():
    assert daemon(vrrp(advert_seconds=10), "master1").ready.seconds > 3 * 10 + 10


@pytest.mark.parametrize(("mtu", "problems"), [(601, 1), (602, 0)])
def test_pods_behind_gateways_must_be_able_to_learn_the_tunnels_mtu(mtu, problems):
    scenario = load(find("upstream-vrrp"))
    smaller = scenario.replace(network=scenario.network.replace(mtu=mtu))
    assert len([*upstream_vrrp.check(smaller)]) == problems


def test_each_windows_node_has_a_gateway_of_its_own_off_the_node():
    intent = vrrp()
    assert [(gateway.node, gateway.address, gateway.router_id) for gateway in intent.gateways] == [
        ("node009", "10.160.11.1/24", 188),
        ("node010", "10.160.4.1/24", 189),
    ]
    for gateway in intent.gateways:
        address = gateway.address.partition("/")[0]
        machine = intent.machine(gateway.node)
        assert {pod.gateway for pod in machine.pods} == {address}
        assert machine.bridge
        assert str(ip_interface(machine.bridge.addresses[0]).ip) != address
        assert (address, "cbr0") in {(proxy.address, proxy.device) for proxy in machine.proxies}


def test_virtual_addresses_have_no_permanent_neighbour_anywhere():
    intent = vrrp()
    virtual = {gateway.address.partition("/")[0] for gateway in intent.gateways}
    for machine in intent.machines:
        known = {neighbour.address for neighbour in machine.neighbours}
        known |= {neighbour.address for pod in machine.pods for neighbour in pod.neighbours}
        assert not known & virtual, machine.name


def test_the_holder_starts_first_and_the_others_wait_as_backups():
    intent = vrrp()
    holder, other = daemon(intent, "master1"), daemon(intent, "master2")
    assert (holder.stage, other.stage, daemon(intent, "master1", "bird").stage) == (0, 1, 2)
    log = "(node009) Entering MASTER STATE\n(node010) Entering MASTER STATE\n"
    assert re.search(holder.ready.pattern, log, re.MULTILINE)
    assert not re.search(holder.ready.pattern, log.splitlines()[0], re.MULTILINE)
    assert not re.search(other.ready.pattern, log, re.MULTILINE)
    assert not [
        daemon for daemon in intent.machine("node001").daemons if daemon.name == "keepalived"
    ]


def test_where_another_holds_them_the_address_moves_and_the_routes_follow():
    before = vrrp()
    after = gateways.held(before, {"node009": "master3"})
    assert learned(before, "node001")["10.160.11.0/24"].via == "100.100.126.202"
    assert learned(after, "node001")["10.160.11.0/24"].via == "100.100.126.204"
    assert learned(after, "node001")["10.160.4.0/24"].via == "100.100.126.202"
    assert "10.160.11.0/24" not in learned(after, "master3")
    assert learned(after, "master1")["10.160.11.0/24"].via == "100.100.126.204"
    assert after.machine("master1").interfaces[1].virtual == ("10.160.4.1/24",)
    assert after.machine("master3").interfaces[1].virtual == ("10.160.11.1/24",)
    assert gateways.held(after, {"node009": "master1"}) == before


def test_where_nobody_holds_one_it_is_nowhere():
    lost = gateways.held(vrrp(), {"node009": None, "node010": None})
    for machine in lost.machines:
        assert not any(card.virtual for card in machine.interfaces)
        assert "10.160.11.0/24" not in learned(lost, machine.name)


def test_the_intended_path_of_a_windows_pod_leads_through_the_holder():
    intent = vrrp()
    target = intent.machine("node001").pods[0].address.partition("/")[0]
    flow = Flow("node009-p1", target, 8080, "tcp")
    (path,) = walk(intent, flow)
    assert path.end == ""
    assert path.machines == ("node009", "master1", "node001")
    (moved,) = walk(gateways.held(intent, {"node009": "master2"}), flow)
    assert moved.machines == ("node009", "master2", "node001")


def without_windows() -> Intent:
    return registry.intent(make_plan(load(Path(__file__).parents[2] / "failover.yaml")))


def test_a_gateway_is_where_one_machine_alone_was_seen_to_hold_it():
    intent = vrrp()
    alone = gateways.settle_gateways(intent, {"node009": ["master3"], "node010": []})
    assert alone == gateways.held(intent, {"node009": "master3"})
    assert (
        gateways.settle_gateways(intent, {"node009": ["master2", "master3"], "node010": []})
        == intent
    )


def test_a_linux_worker_can_be_behind_a_gateway_that_control_planes_hold():
    intent = without_windows()
    (gateway,) = intent.gateways
    assert (gateway.node, gateway.address) == ("worker", "10.160.3.1/24")
    assert gateway.candidates == ("master1", "master2", "master3")
    worker = intent.machine("worker")
    assert worker.tunnel is None
    assert worker.speaker is None
    assert {pod.gateway for pod in worker.pods} == {"10.160.3.2"}, "the node, which has the route"
    assert Route("10.160.0.0/12", "eth1", "10.160.3.1", requested=True) in worker.routes
    assert learned(intent, "master2")["10.160.3.0/24"].via == "100.100.126.10"
    assert "10.160.3.0/24" not in learned(intent, "master1"), "it is the holder"


def test_pods_behind_a_linux_worker_s_gateway_are_reached_by_way_of_its_holder():
    intent = without_windows()
    asking, pod = (intent.machine(name).pods[0] for name in ("master2", "worker"))
    flow = Flow(asking.name, pod.address.partition("/")[0], 8080, "tcp")
    (path,) = walk(intent, flow)
    assert path.end == ""
    assert path.machines == ("master2", "master1", "worker")
