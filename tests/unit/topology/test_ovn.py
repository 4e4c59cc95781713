"""OVN's intent: what the switches, the databases and the daemons are told, and what it implies."""

from dataclasses import replace
from ipaddress import ip_interface, ip_network
from pathlib import Path

import pytest
from shipped import cells_of, intent_of, plan_of

from lab.matrix.judge import expect
from lab.plan.planner import make_plan
from lab.providers.netns.services import ruleset
from lab.providers.netns.windows import RULES, realise
from lab.scenario.loader import find, load
from lab.topology import ovn_daemons, registry
from lab.topology.cost import cost
from lab.topology.daemon import Daemon
from lab.topology.intent import Drop, Intent, MachineIntent, ProxiedService

CASES = Path(__file__).parents[2] / "cases" / "ovn"
SCENARIO = load(find("ovn"))
PLAN, INTENT = plan_of("ovn"), intent_of("ovn")
CELLS = {cell.id: cell for cell in cells_of("ovn")}
IDS = frozenset(RULES)


def daemon(machine: str, name: str) -> Daemon:
    return next(daemon for daemon in INTENT.machine(machine).daemons if daemon.name == name)


def told(machine: str, name: str, file: str) -> str:
    return next(one.text for one in daemon(machine, name).files if one.name == file)


GOLDEN = {
    "northbound.sh": ("master", "ovn-northbound", "northbound.sh"),
    "southbound.sh": ("master", "ovn-southbound", "southbound.sh"),
    "switch-of-worker1.sh": ("worker1", "ovsdb-server", "switch.sh"),
    "tunnel-neighbours-of-win1.sh": ("win1", "ovs-vswitchd", "tunnel-neighbours.sh"),
    "no-empty-nat.sh": ("win1", "ovs-vswitchd", "no-empty-nat.sh"),
}
RULESETS = {"linux-node.nft": "worker1", "windows-node.nft": "win1"}


@pytest.mark.parametrize("case", GOLDEN)
def test_the_daemons_get_their_golden_configuration(case):
    assert told(*GOLDEN[case]) == (CASES / case).read_text(encoding="utf-8")


@pytest.mark.parametrize("case", RULESETS)
def test_what_a_nodes_own_kernel_does(case):
    machine = realise(INTENT).machine(RULESETS[case])
    assert ruleset(machine) == (CASES / case).read_text(encoding="utf-8")


def test_every_file_is_a_case():
    assert {path.name for path in CASES.iterdir()} == {*GOLDEN, *RULESETS, "policies.txt"}


def test_every_node_is_a_chassis_and_the_control_plane_has_the_databases():
    on = {machine.name: [daemon.name for daemon in machine.daemons] for machine in INTENT.machines}
    chassis = ["ovsdb-server", "ovs-vswitchd", "ovn-controller"]
    assert on.pop("master") == ["ovn-northbound", "ovn-southbound", "ovn-northd", *chassis]
    assert on.pop("router") == on.pop("client") == []
    assert set(map(tuple, on.values())) == {tuple(chassis)}


def test_the_nodes_address_is_the_bridges_and_the_card_is_its_port():
    (card,) = INTENT.machine("worker1").interfaces
    assert (card.name, card.card, card.addresses) == ("br-ex", "eth0", ("10.20.0.11/24",))
    routes = {route.destination: route.device for route in INTENT.machine("worker1").routes}
    assert routes == {
        "default": "br-ex",
        "10.0.0.0/16": "ovn-k8s-mp0",
        "10.96.0.0/12": "ovn-k8s-mp0",
    }


def test_pods_ask_the_router_and_have_what_geneve_leaves():
    pod = INTENT.machine("worker1").pods[0]
    assert (pod.gateway, pod.mtu, INTENT.pod_mtu) == ("10.0.2.1", 1442, 1442)


def test_every_pod_and_node_has_a_port_where_it_stands():
    assert INTENT.logical
    for switch in INTENT.logical.switches:
        machine = INTENT.machine(switch.name)
        assert machine.bridge
        wanted = {(pod.name, pod.port, pod.address.partition("/")[0]) for pod in machine.pods}
        own = machine.bridge.addresses[0]
        wanted.add((f"k8s-{machine.name}", machine.bridge.name, own.partition("/")[0]))
        assert {(port.name, port.device, port.address) for port in switch.ports} == wanted
        subnet = ip_network(switch.subnet)
        assert ip_interface(own).network == subnet == ip_interface(switch.gateway).network
    names = [port.name for port in INTENT.logical.ports()]
    assert len(set(names)) == len(names)


def test_windows_pods_leave_by_the_first_linux_node():
    assert INTENT.logical
    assert INTENT.logical.gateways() == {
        "master": "master",
        "worker1": "worker1",
        "worker2": "worker2",
        "win1": "master",
        "win2": "master",
    }


def test_a_node_without_a_kubelet_is_no_chassis_and_can_be_the_central_one():
    first, *others = SCENARIO.nodes
    without = first.replace(kubelet=False, pod_cidr=None)
    intent = registry.intent(make_plan(SCENARIO.replace(nodes=(without, *others))))
    master = intent.machine("master")
    assert master.chassis is None
    assert [interface.name for interface in master.interfaces] == ["eth0"]
    assert [daemon.name for daemon in master.daemons] == [
        "ovn-northbound",
        "ovn-southbound",
        "ovn-northd",
    ]
    assert intent.logical
    assert intent.logical.gateways()["win1"] == "worker1"


def test_a_cluster_whose_only_pods_are_on_windows_is_refused():
    nodes = tuple(
        group.replace(kubelet=False, pod_cidr=None) if group.os == "linux" else group
        for group in SCENARIO.nodes
    )
    (problem,) = registry.check(SCENARIO.replace(nodes=nodes))
    assert "only a Linux node can be a gateway" in problem.what


@pytest.mark.parametrize(
    ("cell", "sources"),
    [
        ("pod-pod/worker1-p1/win1-p1/tcp-small", {"10.0.2.4"}),
        ("pod-service/worker1-p1/to-win1-p1/tcp-small", {"10.0.2.4"}),
        ("pod-service/win1-p1/to-worker1-p1/tcp-small", {"10.0.4.4"}),
        ("hairpin/worker1-p1/to-worker1-p1/tcp-small", {"169.254.169.5"}),
        ("hairpin/win1-p1/to-win1-p1/tcp-small", {"169.254.169.5"}),
        ("node-service/worker1/to-worker2-p1/tcp-small", {"10.0.2.2"}),
        ("node-pod/worker1/worker1-p1/tcp-small", {"10.0.2.2"}),
        ("nodeport/client/worker1:to-worker1-p1/tcp-small", {"10.0.2.2"}),
        ("nodeport/client/worker1:to-win1-p1/tcp-small", {"10.0.2.2"}),
        ("pod-node/worker1-p1/worker1/tcp-small", {"10.0.2.4"}),
        ("pod-node/worker1-p1/worker2/tcp-small", {"10.20.0.11"}),
        ("pod-node/win1-p1/win1/tcp-small", {"10.20.0.10"}),
        ("pod-node/win1-p1/master/tcp-small", {"10.0.4.4"}),
        ("pod-external/worker1-p1/client/tcp-small", {"10.20.0.11"}),
        ("pod-external/win1-p1/client/tcp-small", {"10.20.0.10"}),
    ],
)
def test_what_a_backend_sees_as_the_source(cell, sources):
    assert CELLS[cell].sources == sources


@pytest.mark.parametrize(
    ("cell", "rule"),
    [
        ("hairpin/worker1-p1/to-worker1-p1/udp-large", "OVN-HAIRPIN-FRAGMENTS"),
        ("hairpin/worker1-p1/to-worker1-p1/udp-small", "K8S-HAIRPIN"),
        ("hairpin/win1-p1/to-win1-p1/tcp-large", "K8S-HAIRPIN"),
        ("nodeport/client/win1:to-win1-p1/tcp-small", "WIN-OVN-NODEPORT"),
        ("nodeport/win1/win1:to-win1-p1/udp-small", "WIN-OVN-NODEPORT"),
        ("nodeport/win1/worker1:to-win1-p1/udp-small", "K8S-NODEPORT"),
        ("node-service/win1/to-win1-p1/tcp-small", "K8S-NODE-SERVICE"),
        ("node-pod/win1/worker1-p1/tcp-small", "K8S-NODE-POD"),
    ],
)
def test_which_rule_speaks_of_a_cell(cell, rule):
    assert expect(CELLS[cell], registry.limits(PLAN)).rule == rule


def only(rule: str) -> MachineIntent:
    return realise(INTENT, IDS - {rule}).machine("win1")


def test_a_windows_node_serves_no_node_ports_and_loses_what_asks_for_them():
    machine = only("WIN-OVN-NODEPORT")
    assert machine.translation
    assert not any(service.node_ports() for service in machine.translation.services)
    assert machine.drops == (
        Drop(
            "WIN-OVN-NODEPORT",
            ("10.0.4.2/32", "10.20.0.13/32"),
            (30000, 30010),
            hook="input",
        ),
    )


@pytest.mark.parametrize("rule", ["WIN-NODEPORT-SELF", "WIN-HOST-SERVICE", "WIN-OVERLAY-NODE-POD"])
def test_rules_of_kube_proxy_and_flannel_do_not_hold_for_ovn(rule):
    assert only(rule) == INTENT.machine("win1")


def with_service(change: dict[str, object]) -> Intent:
    """The intent with its shared Service changed."""

    def changed(service: ProxiedService) -> ProxiedService:
        return replace(service, **change) if service.name == "everyone" else service  # type: ignore[arg-type]

    machines = tuple(
        replace(
            machine,
            daemons=(),
            translation=replace(
                machine.translation, services=tuple(map(changed, machine.translation.services))
            )
            if machine.translation
            else None,
        )
        for machine in INTENT.machines
    )
    return ovn_daemons.add(replace(INTENT, machines=machines))


POLICIES: dict[str, dict[str, object]] = {
    "affinity": {"affinity": 10_800},
    "affinity-longer-than-ovn-can": {"affinity": 86_400},
    "for-local-backends-inside": {"inside": "local"},
    "for-local-backends-outside": {"outside": "local"},
    "without-backends": {"backends": ()},
}


def test_policies_of_services():
    """What differs for each policy: of the load balancers, and of one node's own rules."""
    found = []
    for name, change in POLICIES.items():
        intent = with_service(change)
        balancing = next(daemon for daemon in intent.machine("master").daemons)
        lines = [
            *(line for line in balancing.files[0].text.splitlines() if "everyone" in line),
            *(line for line in balancing.files[0].text.splitlines() if "load_balancer @" in line),
            *_of_everyone(ruleset(intent.machine("worker1"))),
            *_of_everyone(ruleset(intent.machine("worker2"))),
        ]
        found.append("".join(f"{line}\n" for line in (f"# {name}", *lines)))
    assert "\n".join(found) == (CASES / "policies.txt").read_text(encoding="utf-8")


def _of_everyone(rules: str) -> list[str]:
    lines = rules.splitlines()
    start = next(n for n, line in enumerate(lines) if "chain external-everyone" in line)
    end = next(n for n in range(start, len(lines)) if lines[n].strip() == "}")
    lost = [
        line
        for place, line in enumerate(lines)
        if "elements" in line and "no-local-backends" in lines[place - 2]
    ]
    return lines[start : end + 1] + lost


def test_daemons_are_counted_in_what_a_lab_takes():
    overlay = cost(intent_of("overlay"))
    found = cost(INTENT)
    assert found.counts["daemon"] == 18
    assert 200 < found.memory_mib - overlay.memory_mib < 400
    assert 1 < found.seconds - overlay.seconds < 4
