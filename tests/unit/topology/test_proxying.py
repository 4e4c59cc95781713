"""Where a node sends a Service's packets: policies, ports, and who asks."""

from dataclasses import replace

import pytest
from shipped import intent_of

from lab.topology import proxying
from lab.topology.intent import MachineIntent, Translation

INTENT = intent_of("services")
HOME, OTHER = INTENT.machine("worker1"), INTENT.machine("worker2")
ADDRESS = (
    {service.name: service.address for service in HOME.translation.services}
    if HOME.translation
    else {}
)
NODE = {"worker1": "10.9.176.11", "worker2": "10.9.176.12"}
OUTSIDE = "198.51.100.10"


def node_port(name: str) -> int:
    assert HOME.translation
    service = next(service for service in HOME.translation.services if service.name == name)
    return service.node_ports()[0]


def chosen(machine: MachineIntent, source: str, name: str) -> tuple[list[str], bool, bool]:
    """Backends by the port of the node, whether they see the node, whether none is refused."""
    choice = proxying.choice(machine, "tcp", source, NODE[machine.name], node_port(name))
    assert choice
    return [backend.pod for backend in choice.backends], choice.masqueraded, choice.refused


@pytest.mark.parametrize(
    ("machine", "source", "backends", "masqueraded"),
    [
        (HOME, OUTSIDE, ["worker1-p1"], False),
        (OTHER, OUTSIDE, [], False),
        (OTHER, "10.244.2.4", ["worker1-p1"], False),
        (OTHER, NODE["worker2"], ["worker1-p1"], True),
        (OTHER, NODE["worker1"], [], False),
        (OTHER, "10.244.1.4", [], False),
    ],
    ids=["at home", "elsewhere", "own pod", "itself", "another node", "another node's pod"],
)
def test_a_node_port_for_local_backends(machine, source, backends, masqueraded):
    assert chosen(machine, source, "near-linux") == (backends, masqueraded, False)


def test_a_node_port_for_all_backends_is_masqueraded():
    assert chosen(OTHER, OUTSIDE, "shop") == (["worker2-p1"], True, False)
    assert chosen(OTHER, OUTSIDE, "nobody") == ([], True, True)


def changed(machine: MachineIntent, **more: object) -> MachineIntent:
    assert isinstance(machine.translation, Translation)
    return replace(machine, translation=replace(machine.translation, **more))  # type: ignore[arg-type]


def test_where_nothing_is_short_circuited_a_nodes_own_pods_are_as_others():
    windows = changed(OTHER, short_circuits=False)
    assert chosen(windows, "10.244.2.4", "near-linux") == ([], False, False)


def test_where_nothing_is_refused_what_nobody_serves_is_lost():
    silent = changed(OTHER, refuses=False)
    assert chosen(silent, OUTSIDE, "nobody") == ([], True, False)
    for machine, refused in ((OTHER, True), (silent, False)):
        choice = proxying.choice(machine, "udp", "10.244.2.4", ADDRESS["shop"], 8443)
        assert choice
        assert (choice.port, choice.backends, choice.refused) == (None, (), refused)


def test_an_address_for_local_backends():
    for machine, source, pods in ((HOME, "10.244.1.5", 1), (OTHER, "10.244.2.4", 0)):
        choice = proxying.choice(machine, "tcp", source, ADDRESS["at-home"], 80)
        assert choice
        assert (len(choice.backends), choice.masqueraded, choice.refused) == (pods, False, False)


def test_ports_are_distinguished_by_number_and_protocol():
    wanted = {("tcp", 80): 8080, ("udp", 80): 8080, ("tcp", 8443): 8081, ("udp", 514): 8080}
    for protocol in ("tcp", "udp"):
        for number in (80, 8443, 514):
            choice = proxying.choice(HOME, protocol, "10.244.1.4", ADDRESS["shop"], number)
            assert choice
            target = choice.port.target_port if choice.port else None
            assert target == wanted.get((protocol, number))


def test_what_is_for_no_service_is_nobodys_choice():
    assert proxying.choice(HOME, "tcp", OUTSIDE, NODE["worker1"], 8080) is None
    assert proxying.choice(HOME, "tcp", OUTSIDE, "10.244.1.4", 8080) is None
    assert proxying.choice(INTENT.machine("router"), "tcp", OUTSIDE, "10.96.0.20", 80) is None
