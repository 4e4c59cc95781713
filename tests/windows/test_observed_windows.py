"""A Windows node that is as intended shows no difference, and each fault is named.

What the nodes say is composed: there was no Windows to ask.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from observed_nodes import Said, changed, windows, without
from shipped import intent_of as intent

from lab.explain.check import first_hop
from lab.explain.explainer import compare_lab
from lab.explain.explainer import compare_machine as differences
from lab.explain.losses import find_losses
from lab.facts.difference import Difference
from lab.facts.node import PACKETS, DeviceCounter, NodeFacts
from lab.topology.intent import Intent, MachineIntent
from lab.topology.path import Flow
from lab.topology.subject import PodSubject
from lab.topology.walk import walk
from lab.windows.facts import facts

SCENARIOS = ("overlay", "host-gateway", "upstream-tor", "hard-way")


def windows_node(scenario: str, which: int = 0) -> tuple[MachineIntent, Intent]:
    whole = intent(scenario)
    machine = [machine for machine in whole.machines if machine.os == "windows"][which]
    own = {pod.name for pod in machine.pods}
    linux = {
        pod.name for machine in whole.machines if machine.os == "linux" for pod in machine.pods
    }
    services = tuple(
        replace(service, backends=tuple(end for end in service.backends if end.pod in own | linux))
        for service in machine.translation.services
    )
    translation = replace(machine.translation, services=services)
    return replace(machine, translation=translation), whole


def told(machine: MachineIntent, said: Said) -> list[tuple[str, str]]:
    found = differences(machine, facts(said), by="kubernetes")
    assert all(isinstance(difference, Difference) and difference.mends for difference in found)
    return [(difference.kind, difference.object) for difference in found]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_node_that_is_as_intended_shows_no_difference(scenario: str) -> None:
    machine, whole = windows_node(scenario)
    assert differences(machine, facts(windows(machine, whole)), by="kubernetes") == ()


@pytest.mark.parametrize("scenario", ["overlay", "host-gateway"])
def test_two_nodes_that_are_as_intended_have_nothing_twice(scenario: str) -> None:
    both = [windows_node(scenario, which) for which in (0, 1)]
    nodes = {machine.name: facts(windows(machine, whole)) for machine, whole in both}
    differences = compare_lab(both[0][1], nodes, by="kubernetes")
    assert not [each for each in differences if each.kind.startswith("duplicate")]


def edit(what: str, old: str, new: str) -> Callable[[Said], Said]:
    return lambda said: changed(said, what, old, new)


def drop(what: str, text: str) -> Callable[[Said], Said]:
    return lambda said: without(said, what, text)


def older(answers: Said, balancer: str) -> str:
    """A load balancer as one that is there, whose backend is gone."""
    (policy,) = (text for text in answers["policies"] if f'"ID": "{balancer}"' in text)
    return json.dumps({**json.loads(policy), "References": ["/endpoints/gone"]})


TUNNEL, POD = "tunnel flannel.4096", "pod win1-p1"
OVERLAY = {
    "the network is gone": (drop("networks", "Overlay"), "tunnel-missing", TUNNEL),
    "wrong VNI": (edit("networks", '"VSID": 4096', '"VSID": 4097'), "wrong-vni", TUNNEL),
    "wrong port": (
        edit("networks", '{"Type": "HostRoute"}',
             '{"Type": "VxlanPort", "Settings": {"Port": 8472}}'), "wrong-port", TUNNEL),
    "another management address": (
        edit("networks", '"ManagementIP": "10.9.176.94"', '"ManagementIP": "10.0.2.15"'),
        "tunnel-local", TUNNEL),
    "a remote end is wrong": (
        edit("networks", '"ProviderAddress": "10.9.176.11"', '"ProviderAddress": "10.9.176.99"'),
        "wrong-entry", "forwarding entry 0a:58:0a:f4:01:00 on flannel.4096"),
    "a remote MAC is stale": (
        edit("networks", "0a-58-0a-f4-01-00", "02-00-00-00-00-01"),
        "stale-neighbour", "neighbour 10.244.1.0 on flannel.4096"),
    "a remote subnet is gone": (
        edit("networks", "10.244.1.0/24", "10.250.1.0/24"),
        "route-missing", "route to 10.244.1.0/24"),
    "an endpoint is gone": (drop("endpoints", "A8556439-WIN1-P1"), "pod-missing", POD),
    "an endpoint is marked remote": (
        edit("endpoints", '"IsRemoteEndpoint": null', '"IsRemoteEndpoint": true'),
        "pod-link-down", POD),
    "no exception": (
        edit("endpoints", '["10.244.0.0/16"]', '["10.96.0.0/12"]'),
        "masquerade-exception-missing", "packets of 10.244.3.0/24 to 10.244.0.0/16"),
    "no OutBoundNAT": (
        edit("endpoints", '"OutBoundNAT"', '"ROUTE"'),
        "masquerade-missing", "packets of 10.244.3.0/24 that leave the lab"),
    "load balancers are gone": (
        lambda said: {**said, "policies": []}, "service-rules-missing", "Services"),
    "one load balancer is gone": (
        drop("policies", '"ID": "to-worker1-p1-6-80"'),
        "service-missing", "Service to-worker1-p1, 10.96.0.22:80, tcp"),
    "a backend is stale": (
        edit("policies", "/endpoints/358e0976-worker1-p1", "/endpoints/358e0976-worker1-p2"),
        "stale-backend", "Service to-worker1-p1, 10.96.0.22:80, tcp and udp"),
    "an older load balancer goes before it": (
        lambda answers: {
            **answers,
            "policies": [older(answers, "to-worker1-p1-6-80"), *answers["policies"]],
        },
        "balancer-kept", "Service to-worker1-p1, 10.96.0.22:80, tcp"),
    "the card is down": (edit("adapters", '"Up"', '"Disconnected"'), "link-down", "card eth0"),
    "the address was lost": (
        edit("addresses", "10.9.176.94", "169.254.7.7"), "link-address", "card eth0"),
    "another MTU": (
        edit("interfaces", '"mtu": 1500', '"mtu": 1400'), "link-mtu", "card eth0"),
    "the default route is gone": (
        drop("routes", '"0.0.0.0/0"'), "route-missing", "route to default"),
    "a service has stopped": (
        edit("services", '"flanneld", "state": "Running"', '"flanneld", "state": "Stopped"'),
        "flannel-down", "service flanneld"),
    "nothing lets kubelet's port in": (
        drop("rules", "10250"), "kubelet-port-closed", "the firewall"),
    "nothing lets VXLAN in": (drop("rules", "4789"), "tunnel-port-closed", "the firewall"),
    "a list blocks DNS queries of pods": (
        edit("endpoints", '"Type": "OutBoundNAT"',
             '"Type": "ACL", "Action": "Block", "Direction": "Out", "Protocols": "17", '
             '"RemotePorts": "53"}, {"Type": "OutBoundNAT"'),
        "name-server-barred", "forward"),
    "the tunnel is blocked": (
        edit("rules", '["4789"], "enabled": "True", "action": "Allow"',
             '["4789"], "enabled": "True", "action": "Block"'),
        "tunnel-port-dropped", "firewall rule 'hybridlab: vxlan'"),
    "NodePorts are blocked": (
        edit("rules", '["30000-32767"], "enabled": "True", "action": "Allow"',
             '["30000-32767"], "enabled": "True", "action": "Block"'),
        "node-port-barred", "firewall rule 'hybridlab: nodeports-tcp'"),
}  # fmt: skip


@pytest.mark.parametrize(("harm", "kind", "thing"), OVERLAY.values(), ids=OVERLAY)
def test_a_fault_of_an_overlay_is_the_first_finding(
    harm: Callable[[Said], Said], kind: str, thing: str
) -> None:
    machine, whole = windows_node("overlay")
    assert told(machine, harm(windows(machine, whole)))[:1] == [(kind, thing)]


@pytest.mark.parametrize(
    ("state", "fault"), [("Running", "hns-balancers-refused"), ("Stopped", "service-rules-missing")]
)
def test_no_load_balancers_are_refused_ones_where_kube_proxy_runs(state: str, fault: str) -> None:
    machine, whole = windows_node("overlay")
    answers = {**windows(machine, whole), "policies": []}
    now = edit("services", '"kube-proxy", "state": "Running"', f'"kube-proxy", "state": "{state}"')
    listed = differences(
        machine, facts(now(answers) if state != "Running" else answers), by="kubernetes"
    )
    assert [each.fault for each in listed if each.kind == "service-rules-missing"] == [fault]


@pytest.mark.parametrize(("direct", "kinds"), [(True, []), (False, ["wrong-policy"]), (None, [])])
def test_a_node_port_of_local_pods_needs_direct_server_return(
    direct: bool | None, kinds: list[str]
) -> None:
    machine, whole = windows_node("overlay")
    assert machine.translation is not None
    (pod, *_), services = machine.pods, machine.translation.services
    (own,) = (each for each in services if [end.pod for end in each.backends] == [pod.name])
    local = (replace(each, outside="local") if each is own else each for each in services)
    translation = replace(machine.translation, services=tuple(local))
    machine, answers = replace(machine, translation=translation), windows(machine, whole)
    given = {True: '"IsDSR": true', False: '"IsDSR": false', None: '"Other": 0'}[direct]
    answers = changed(answers, "policies", '"IsDSR": true', given)
    listed = differences(machine, facts(answers), by="kubernetes")
    assert [each.kind for each in listed if each.kind == "wrong-policy"] == kinds


def test_a_network_that_hns_has_lost_is_named_alone_and_met_by_every_pod() -> None:
    """Endpoints and load balancers go with it."""
    machine, whole = windows_node("overlay")
    answer = without(windows(machine, whole), "networks", "Overlay")
    lost = facts({**answer, "endpoints": [], "policies": []})
    every = differences(machine, lost, by="kubernetes")
    assert {(each.kind, each.fault) for each in every} == {("tunnel-missing", NETWORK_REMOVED)}
    first, second = (pod for pod in machine.pods if pod.role == "probe")
    path = walk(whole, Flow(first.name, second.address.partition("/")[0], 8080, "tcp"))[0]
    assert [first_hop(each, path) for each in every] == [0]


NETWORK_REMOVED = "hns-network-removed"


def test_an_endpoint_that_hns_has_lost_is_named_alone_by_its_fault() -> None:
    """Services lose the backend with it."""
    machine, whole = windows_node("overlay")
    answer = without(windows(machine, whole), "endpoints", "A8556439-WIN1-P1")
    (difference,) = differences(machine, facts(answer), by="kubernetes")
    assert (difference.kind, difference.fault) == ("pod-missing", "hns-endpoint-removed")


def test_a_default_route_is_put_back_by_itself_and_one_to_pods_by_flannel() -> None:
    machine, whole = windows_node("overlay")
    own = (
        "New-NetRoute -DestinationPrefix 0.0.0.0/0 -InterfaceIndex "
        "(Get-NetIPAddress -IPAddress 10.9.176.94).InterfaceIndex -NextHop 10.9.176.1"
    )
    flannels = "Start-ScheduledTask -TaskName hybridlab-flanneld; "
    for prefix, fix in (("0.0.0.0/0", own), ("10.244.1.0/24", flannels)):
        part = "routes" if prefix.startswith("0") else "networks"
        answer = changed(windows(machine, whole), part, prefix, "10.250.1.0/24")
        difference = differences(machine, facts(answer), by="kubernetes")[0]
        assert (difference.kind, difference.fault) == ("route-missing", "route-missing")
        assert fix in difference.mends


def test_an_l2bridge_that_is_missing_or_has_another_prefix_is_reported() -> None:
    machine, whole = windows_node("host-gateway")
    said = windows(machine, whole)
    gone = without(said, "networks", "L2Bridge")
    assert told(machine, gone)[:1] == [("bridge-missing", "the pods' HNS network")]
    lost = facts({**gone, "endpoints": [], "policies": []})
    (difference,) = (
        each
        for each in differences(machine, lost, by="kubernetes")
        if not each.kind.startswith(("route", "forwarding"))
    )
    assert (machine.name, PodSubject(machine.pods[0].name)) in difference.concerns


def test_forwarding_matters_on_an_l2bridge_alone() -> None:
    bridged, whole = windows_node("host-gateway")
    off = changed(windows(bridged, whole), "interfaces", '"Enabled"', '"Disabled"')
    assert ("forwarding-off", "ip_forward") in told(bridged, off)
    overlaid, whole = windows_node("overlay")
    off = changed(windows(overlaid, whole), "interfaces", '"Enabled"', '"Disabled"')
    assert told(overlaid, off) == []


def test_commands_to_see_and_fix_are_those_of_windows() -> None:
    machine, whole = windows_node("overlay")
    said = without(windows(machine, whole), "networks", "Overlay")
    difference = differences(machine, facts(said), by="kubernetes")[0]
    assert difference.shows.startswith("powershell -Command 'Get-HnsNetwork | ")
    assert " -Value flannel.4096 | Remove-HnsNetwork; " in difference.mends
    assert difference.fixed_by("lab").startswith("lab exec lab win1 -- powershell -Command 'Stop-")


def test_what_could_not_be_asked_is_not_judged() -> None:
    machine, whole = windows_node("overlay")
    said = windows(machine, whole)
    reason = "The term 'Get-HnsPolicyList' is not recognized"
    cut = {**said, "policies": [], "absent": {"policies": reason}}
    assert told(machine, cut) == []
    assert dict(facts(cut).absent)["policies"] == reason


def test_a_policy_that_a_nodes_plugin_drops_is_told() -> None:
    machine, whole = windows_node("overlay")
    answer = windows(machine, whole)
    policy = {"Type": "OutBoundNAT", "ExceptionList": ["10.244.0.0/16"]}
    entry = {"Name": "EndpointPolicy", "Value": policy}
    written = json.dumps({"type": "sdnoverlay", "AdditionalArgs": [entry]})
    file = {"path": "C:\\etc\\cni\\net.d\\10-flannel.conf", "text": written}
    software = facts({**answer, "plugins": [json.dumps(file)]}).software
    assert software is not None
    assert software.dropped == (json.dumps(policy),)
    broken = {**answer, "plugins": [json.dumps({**file, "text": "{"})]}
    assert "10-flannel.conf cannot be read" in dict(facts(broken).absent)["plugins"]


def test_a_list_of_one_that_powershell_has_unrolled_is_still_a_list() -> None:
    machine, whole = windows_node("overlay")
    said = windows(machine, whole)
    one = {**said, "statistics": said["statistics"][0]}
    assert facts(one).counters == facts(said).counters != ()


def test_packets_that_a_windows_card_received_are_no_loss() -> None:
    machine, whole = windows_node("overlay")
    path = walk(whole, Flow("worker1", machine.address(), 10_250, "tcp"))[0]

    def count(packets: int) -> Mapping[str, NodeFacts]:
        received = {"name": "vEthernet (eth0)", "received": packets, "sent": packets}
        answer = {**windows(machine, whole), "statistics": [json.dumps(received)]}
        sent = tuple(DeviceCounter("eth0", way, PACKETS, packets) for way in ("received", "sent"))
        linux = NodeFacts("linux", "", counters=sent)
        return {machine.name: facts(answer), "worker1": linux}

    assert find_losses(path, count(1), count(9)) == ()
    silent = replace(count(9)[machine.name], counters=())
    losses = find_losses(path, count(1), {**count(9), machine.name: silent})
    assert [(loss.kind, loss.node) for loss in losses] == [("lost-between", machine.name)]


def test_what_is_no_json_stands_in_what_is_absent() -> None:
    assert "cannot be read" in dict(facts({"version": "1", "networks": ["{"]}).absent)["networks"]


def test_the_second_schema_of_policies_is_read_too() -> None:
    machine, whole = windows_node("overlay")
    said = windows(machine, whole)
    networks = [json.loads(network) for network in said["networks"]]
    for network in networks:
        network["Policies"] = [
            {"Type": policy.pop("Type"), "Settings": policy} for policy in network["Policies"]
        ]
    v2 = {**said, "networks": [json.dumps(network) for network in networks]}
    assert told(machine, v2) == []


RECORDED = json.loads((Path(__file__).parents[1] / "cases/windows/recorded.json").read_text())


def recorded(when: str) -> Said:
    """What Get-NetAdapter and netsh said, as observe.ps1 tells it."""
    adapter = RECORDED["adapters"][when]
    lists = {
        "adapters": [{"name": n, "mac": m, "status": "Up"} for n, m in adapter["adapters"]],
        "interfaces": [{"name": n, "mtu": mtu} for n, mtu in adapter["mtu"]],
        "addresses": [{"name": n, "address": a, "length": 32} for n, a in adapter["addresses"]],
        "networks": adapter["networks"],
    }
    return {key: [json.dumps(one) for one in found] for key, found in lists.items()}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_card_is_found_behind_its_switch_by_its_mac(when: str) -> None:
    """W12, recorded: 'vEthernet (Ethernet)' is a container's, the card's is called '... 2'."""
    found = facts(recorded(when))
    card = found.link("Ethernet")
    assert card is not None
    assert (card.mac, card.addresses) == ("42:01:0a:8a:00:05", ("10.138.0.5/32",))
    assert card.mtu == {"before": 1432, "after": 1450}[when]
    container = found.link("vEthernet (Ethernet)")
    assert container is not None
    assert container.mac == "00:15:5d:63:74:e3"
    assert found.link("vEthernet (Ethernet) 2") is None


@pytest.mark.parametrize(
    ("mtu", "plan", "wrong"),
    [
        (1450, 1500, False),
        (1500, 1500, False),
        (1450, 1450, False),
        (1450, 1432, True),
        (1400, 1500, True),
        (1501, 1500, True),
    ],
)
def test_an_mtu_behind_a_switch_may_be_1450_and_never_more_than_the_plan_s(
    mtu: int, plan: int, wrong: bool
) -> None:
    """W11, recorded: the card had 1432, and its adapter behind the switch gets 1450."""
    machine, whole = windows_node("overlay")
    cards = tuple(replace(interface, mtu=plan) for interface in machine.interfaces)
    machine = replace(machine, interfaces=cards)
    said = windows(machine, whole)
    lists = [json.loads(interface) for interface in said["interfaces"]]
    behind = f"vEthernet ({machine.interfaces[0].name})"
    said["interfaces"] = [
        json.dumps(one | ({"mtu": mtu} if one["name"] == behind else {})) for one in lists
    ]
    kinds = [kind for kind, _ in told(machine, said)]
    assert ("link-mtu" in kinds) == wrong
