"""The node segment on a scenario's own hypervisors, and the services node in front of it."""

from dataclasses import replace
from ipaddress import ip_interface

import pytest

from lab.lifecycle.compilation import compile_scenario
from lab.matrix.cells import cells, counts, select_families
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.scenario.loader import load, meant
from lab.scenario.scenario import Hypervisors
from lab.topology import registry
from lab.topology.hypervisors import on_real_ones
from lab.topology.intent import FLOOD, Intent, MachineIntent

SPECS = ("kubeinit", "k8s-libvirt-1-2-1,compute.os=windows", "k8s-libvirt-2-7-3")


def built(wanted: str) -> tuple[Plan, Intent]:
    plan = make_plan(load(meant(wanted), topology_check=registry.check))
    return plan, registry.intent(plan)


def frames_to(intent: Intent, start: MachineIntent, mac: str) -> str | None:
    """Who gets a frame that leaves a machine of the node segment for a MAC, by the intent alone."""
    hosts = {hypervisor.name: hypervisor for hypervisor in intent.hypervisors}
    ends = {str(ip_interface(host.interfaces[0].addresses[0]).ip): host for host in hosts.values()}
    here = hosts[str(start.interfaces[0].host)]
    entry = next((entry for entry in here.forwarding if entry.mac == mac), None)
    there = ends[entry.remote] if entry else here
    assert there.switch
    for port in there.switch.ports:
        machine = intent.machine(port.machine)
        if next(card for card in machine.interfaces if card.name == port.card).mac == mac:
            return machine.name
    return None


@pytest.mark.parametrize("wanted", SPECS)
def test_every_frame_between_two_machines_of_the_segment_arrives(wanted):
    _, intent = built(wanted)
    machines = [machine for machine in intent.machines if machine.interfaces[0].host]
    assert {machine.name for machine in intent.machines} - {
        machine.name for machine in machines
    } == {"client"}
    for start in machines:
        for end in machines:
            if start is not end:
                assert frames_to(intent, start, end.interfaces[0].mac) == end.name


@pytest.mark.parametrize("wanted", SPECS)
def test_a_frame_to_all_goes_to_every_other_hypervisor(wanted):
    plan, intent = built(wanted)
    addresses = {hypervisor.name: str(hypervisor.address) for hypervisor in plan.hypervisors}
    for hypervisor in intent.hypervisors:
        flooded = [entry.remote for entry in hypervisor.forwarding if entry.mac == FLOOD]
        assert sorted(flooded) == sorted(
            at for name, at in addresses.items() if name != hypervisor.name
        )


def test_the_second_hypervisor_has_the_first_compute_and_the_first_all_that_controls():
    plan, intent = built("k8s-libvirt-2-4-2")
    second = {name for name, host in intent.hosts() if host == "hypervisor-02"}
    assert second == {"compute-01", "compute-03"}
    first = {name for name, host in intent.hosts() if host == "hypervisor-01"}
    controls = {"controller-01", "controller-02", "services", "router"}
    assert first == {*controls, "compute-02", "compute-04"}
    assert [hypervisor.name for hypervisor in plan.hypervisors] == [
        "hypervisor-01",
        "hypervisor-02",
    ]


def test_what_is_asked_goes_before_the_order():
    _, intent = built("k8s-libvirt-3-1-2,controller-03.hypervisor=2,services.hypervisor=2")
    hosts = dict(intent.hosts())
    assert (hosts["controller-03"], hosts["services"]) == ("hypervisor-02", "hypervisor-02")


@pytest.mark.parametrize(
    ("hypervisors", "asked", "nodes"),
    [
        (Hypervisors(count=2, mtu=1500), 1500, 1450),
        (Hypervisors(count=1, mtu=1500), 1500, 1500),
        (Hypervisors(count=2, mtu=9000), 1500, 1500),
        (Hypervisors(count=2, mtu=9000), 9000, 8950),
        (Hypervisors(count=2, mtu=1500), 1400, 1400),
        (None, 9000, 9000),
    ],
)
def test_the_mtu_is_what_is_left_at_each_level(hypervisors, asked, nodes):
    scenario = load(meant("kubeinit"))
    network = scenario.network.replace(mtu=asked)
    plan = make_plan(scenario.replace(network=network, hypervisors=hypervisors))
    intent = registry.intent(plan)
    assert (plan.node_mtu, intent.node_mtu, intent.pod_mtu) == (nodes, nodes, nodes - 50)
    for machine in intent.machines:
        assert all(card.mtu == nodes for card in machine.interfaces)
    for hypervisor in intent.hypervisors:
        assert hypervisor.switch
        assert hypervisor.switch.mtu == nodes
        assert hypervisor.tunnel is None or hypervisor.tunnel.mtu >= nodes


def test_on_real_hypervisors_nothing_of_the_emulated_ones_is_left():
    plan, intent = built("kubeinit")
    real = on_real_ones(intent)
    assert not real.hypervisors
    assert not real.hosts()
    assert [segment.name for segment in real.segments] == ["cluster", "outside"]
    assert real.services_node
    assert real.services_node.tls
    names, pods, nodes, protocols = 8, 12, 6, 2
    asked = cells(plan, real)
    assert counts(asked)["node-names"] == names * (pods + nodes) * protocols
    api = [cell for cell in asked if cell.family == "api"]
    assert len(api) == 8 + 4 + 1, "Windows nodes and pods do not ask"
    for one in api:
        assert one.backends == ("controller-01", "controller-02", "controller-03")
        assert not one.sources, "real API servers do not say whom they see"
    run = {machine.name: [daemon.name for daemon in machine.daemons] for machine in real.machines}
    assert {name: names for name, names in run.items() if names} == {"services": ["dnsmasq"]}
    assert real.machine("compute-01").hardware.place == 2
    assert {machine.hardware.hypervisor for machine in real.machines} == {None}
    assert {machine.name for machine in real.machines} == {
        machine.name for machine in intent.machines
    }
    assert plan.node("services").pod_cidr is None


def test_the_api_is_asked_on_real_machines_whose_pods_are_namespaces():
    plan, intent = built("kubeinit")
    real = on_real_ones(replace(intent, kubernetes=None))
    assert real.services_node
    assert not real.services_node.tls
    assert set(select_families(plan, real)) == set(select_families(plan, intent))
    run = [daemon.name for daemon in real.machine("services").daemons]
    assert run == ["haproxy", "dnsmasq"]


def test_the_services_node_balances_every_control_plane_and_names_every_node():
    plan, intent = built("k8s-libvirt-3-2-2")
    front = intent.services_node
    assert front
    assert front.api_servers == ("controller-01", "controller-02", "controller-03")
    assert dict(front.names) == {
        f"{name}.k8scluster.kubeinit.local.": address
        for name, address in (
            ("api", "10.0.0.253"),
            *((node.name, str(node.address)) for node in plan.nodes),
        )
    }
    files = {
        file.name: file.text
        for daemon in intent.machine("services").daemons
        for file in daemon.files
    }
    for number in (1, 2, 3):
        assert f"server controller-0{number} 10.0.0.{number}:6443\n" in files["haproxy.cfg"]
    assert "host-record=compute-02.k8scluster.kubeinit.local,10.0.0.5\n" in files["dnsmasq.conf"]
    assert "bind 10.0.0.253:6443\n" in files["haproxy.cfg"]


def test_all_nodes_ask_the_services_node_for_names_and_nobody_else_does():
    _, intent = built("kubeinit")
    for machine in intent.machines:
        asks = machine.resolver.server if machine.resolver else None
        assert asks == ("10.0.0.253" if machine.kind in {"node", "services"} else None)


def test_without_its_windows_nodes_a_lab_still_asks_its_services_node():
    drawn = compile_scenario("kubeinit", only="linux")
    asked = counts(cells(drawn.plan, drawn.intent))
    assert asked["node-names"] == 6 * (8 + 4) * 2
    assert asked["api"] == 8 + 4 + 1
