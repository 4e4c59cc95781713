"""Intent to operations: order, indexes, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from netns_intents import cluster

from lab._errors import UsageError
from lab.providers.netns.compile import compile_intent
from lab.providers.netns.operations import (
    NeighbourSet,
    RouteSet,
    SysctlSet,
    VethAdd,
)
from lab.topology.intent import Intent, MachineIntent, Route


def _operations(intent: Intent, name: str) -> list[object]:
    return list(next(one for one in compile_intent(intent) if one.namespace == name).operations)


def _with_machine(intent: Intent, machine: MachineIntent) -> Intent:
    return replace(intent, machines=(machine, *intent.machines[1:]))


def test_the_same_intent_gives_the_same_operations():
    assert compile_intent(cluster()) == compile_intent(cluster())


def test_interface_indexes_are_unique_in_the_whole_lab_but_for_loopback():
    indexes = [
        index for one in compile_intent(cluster()) for name, index in one.indexes if name != "lo"
    ]
    assert sorted(indexes) == list(range(2, len(indexes) + 2))


def test_a_link_is_made_before_the_namespace_of_its_far_end_uses_it():
    made = {("fabric", "lo")}
    for one in compile_intent(cluster("overlay")):
        for operation in one.operations:
            if isinstance(operation, VethAdd):
                made.add((operation.peer_namespace, operation.peer_name))
            if isinstance(operation, RouteSet) and operation.device == "eth0":
                assert (one.namespace, "eth0") in made


def test_forwarding_is_set_before_the_redirects_it_resets():
    keys = [op.key for op in _operations(cluster(), "worker1") if isinstance(op, SysctlSet)]
    assert keys.index("net/ipv4/ip_forward") < keys.index("net/ipv4/conf/all/accept_redirects")


def test_bridged_packets_are_filtered_on_nodes_and_not_in_the_fabric():
    key = "net/bridge/bridge-nf-call-iptables"
    assert SysctlSet(key, "1") in _operations(cluster(), "worker1")
    assert SysctlSet(key, "0", optional=True) in _operations(cluster(), "fabric")


def test_routes_on_the_link_come_before_those_through_a_gateway():
    intent = cluster("host-gateway")
    machine = intent.machines[0]
    onto = Route("10.77.0.0/24", "eth0")
    operations = _operations(
        _with_machine(intent, replace(machine, routes=(*machine.routes, onto))), "worker1"
    )
    routes = [op for op in operations if isinstance(op, RouteSet)]
    assert routes[0] == RouteSet("10.77.0.0/24", "eth0", None, onlink=False)


def test_no_neighbour_is_made_up():
    intent = cluster("overlay")
    bare = replace(
        intent,
        machines=tuple(
            replace(
                machine,
                neighbours=(),
                pods=tuple(replace(pod, neighbours=()) for pod in machine.pods),
            )
            for machine in intent.machines
        ),
    )
    made = [op for one in compile_intent(bare) for op in one.operations]
    assert not [op for op in made if isinstance(op, NeighbourSet)]


def test_a_gateway_outside_the_pods_prefix_is_on_the_link():
    intent = cluster(pods=1)
    machine = intent.machines[0]
    pod = replace(machine.pods[0], address="10.244.0.2/32")
    operations = _operations(_with_machine(intent, replace(machine, pods=(pod,))), "worker1-p1")
    assert RouteSet("default", "eth0", "10.244.0.1", onlink=True) in operations
    assert RouteSet("default", "eth0", "10.244.0.1", onlink=False) in _operations(
        intent, "worker1-p1"
    )


@pytest.mark.parametrize("name", ["fabric", "worker2"])
def test_a_name_for_two_namespaces_is_refused(name):
    intent = cluster()
    with pytest.raises(UsageError, match=f"the name '{name}' is used for two namespaces"):
        compile_intent(_with_machine(intent, replace(intent.machines[0], name=name)))


@pytest.mark.parametrize("port", ["a-name-of-16-char", "eth0", "cni0"])
def test_a_device_name_that_is_too_long_or_taken_is_refused(port):
    intent = cluster(pods=1)
    machine = intent.machines[0]
    pod = replace(machine.pods[0], port=port)
    with pytest.raises(UsageError, match=f"device name '{port}'"):
        compile_intent(_with_machine(intent, replace(machine, pods=(pod,))))
