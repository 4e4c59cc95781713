"""Operations that an Intent becomes, by rules and by golden files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from golden_files import check_golden
from netns_intents import cluster

from lab._errors import UsageError
from lab.providers.netns.compile import compile_intent
from lab.providers.netns.operations import (
    NeighbourSet,
    RouteSet,
    SysctlSet,
    VethAdd,
)
from lab.providers.netns.script import script
from lab.providers.netns.services import ruleset
from lab.providers.netns.windows import realise
from lab.scenario.terms import PROTOCOLS, ServicePort
from lab.topology.intent import (
    Backend,
    Drop,
    Intent,
    MachineIntent,
    ProxiedService,
    Route,
    Translation,
)


def _operations(intent: Intent, name: str) -> list[object]:
    return list(
        next(
            operations for operations in compile_intent(intent) if operations.namespace == name
        ).operations
    )


def _with_machine(intent: Intent, machine: MachineIntent) -> Intent:
    return replace(intent, machines=(machine, *intent.machines[1:]))


def test_interface_indexes_are_unique_in_the_whole_lab_but_for_loopback():
    indexes = [
        index
        for operations in compile_intent(cluster())
        for name, index in operations.indexes
        if name != "lo"
    ]
    assert sorted(indexes) == list(range(2, len(indexes) + 2))


def test_a_link_is_made_before_the_namespace_of_its_far_end_uses_it():
    made = {("fabric", "lo")}
    for operations in compile_intent(cluster("overlay")):
        for operation in operations.operations:
            if isinstance(operation, VethAdd):
                made.add((operation.peer_namespace, operation.peer_name))
            if isinstance(operation, RouteSet) and operation.device == "eth0":
                assert (operations.namespace, "eth0") in made


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
    made = [op for operations in compile_intent(bare) for op in operations.operations]
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


CASES = Path(__file__).parents[2] / "cases" / "netns"
NODE = replace(cluster("overlay", linux=1, windows=0, pods=0).machines[0], translation=None)
ONE, TWO = Backend("pod-1", "10.1.0.2", NODE.name), Backend("pod-2", "10.1.1.2", "another")


def _web(node_port: int | None, *backends: Backend) -> ProxiedService:
    port = ServicePort("", PROTOCOLS, 80, 8080, node_port)
    return ProxiedService("web", "10.96.0.7", (port,), backends)


def _node(*services: ProxiedService, local: str | None = "10.1.0.0/24") -> MachineIntent:
    return replace(NODE, translation=Translation(local, ("10.1.0.0/16",), services))


def _sticky(**more: object) -> ProxiedService:
    return replace(_web(30007, ONE, TWO), affinity=10800, **more)  # type: ignore[arg-type]


def _shop() -> ProxiedService:
    ports = (
        ServicePort("web", PROTOCOLS, 80, 8080, 30080),
        ServicePort("admin", ("tcp",), 8443, 8081, None),
        ServicePort("log", ("udp",), 514, 8080, None),
    )
    return ProxiedService("shop", "10.96.0.8", ports, (ONE,))


def _like_windows(*services: ProxiedService) -> MachineIntent:
    """With what kube-proxy on Windows does not do."""
    machine = _node(*services)
    assert machine.translation
    other = replace(machine.translation, refuses=False, short_circuits=False)
    return replace(machine, translation=other)


def _drops(*drops: Drop) -> MachineIntent:
    return replace(NODE, drops=drops)


RULES: dict[str, Callable[[], MachineIntent]] = {
    "one-backend": lambda: _node(_web(30007, ONE)),
    "several-backends": lambda: _node(_web(None, ONE, TWO)),
    "no-backends": lambda: _node(_web(30007)),
    "node-without-pods": lambda: _node(_web(30007, ONE), local=None),
    "no-services": _node,
    "affinity": lambda: _node(_sticky()),
    "affinity-with-local-backends": lambda: _node(_sticky(inside="local", outside="local")),
    "local-backend": lambda: _node(replace(_web(30007, ONE, TWO), inside="local", outside="local")),
    "no-local-backend": lambda: _node(replace(_web(30007, TWO), inside="local", outside="local")),
    "several-ports": lambda: _node(_shop()),
    "nothing-refused": lambda: _like_windows(
        _web(30007), replace(_web(30008, TWO), name="far", address="10.96.0.9", outside="local")
    ),
    "drops": lambda: _drops(
        Drop("WIN-NODEPORT-SELF", ("10.9.0.5/32", "10.1.0.1/32"), (30000, 32767)),
        Drop("WIN-OVERLAY-NODE-POD", ("10.1.0.0/17", "10.1.128.0/17"), None, ("10.1.3.0/24",)),
    ),
    "windows-node": lambda: realise(cluster("overlay", linux=1, windows=1, pods=1)).machines[1],
    "nothing": lambda: NODE,
}
SCRIPTS: dict[str, Callable[[], Intent]] = {
    "overlay": lambda: cluster("overlay", linux=1, windows=1, pods=1, services=False),
    "host-gateway": lambda: cluster("host-gateway", linux=1, windows=1, pods=1, services=False),
}


LIKE = {
    **dict.fromkeys(
        (
            *("no-backends", "several-backends", "one-backend", "node-without-pods"),
            *("local-backend", "no-local-backend", "nothing-refused", "several-ports"),
            *("windows-node", "affinity"),
        ),
        "no-services",
    ),
    "affinity-with-local-backends": "affinity",
}
"""Cases that are kept as their difference from another."""


@pytest.mark.parametrize("case", RULES)
def test_rules_of_a_machine(case):
    like = ruleset(RULES[LIKE[case]]()) if case in LIKE else None
    check_golden(CASES / "rules" / f"{case}.nft", ruleset(RULES[case]()), like)


def test_operations_of_a_lab():
    host_gateway = script(SCRIPTS["host-gateway"]())
    check_golden(CASES / "scripts" / "host-gateway.sh", host_gateway)
    check_golden(CASES / "scripts" / "overlay.sh", script(SCRIPTS["overlay"]()), host_gateway)


def test_every_file_is_a_case():
    names = {f"{case}.nft.diff" if case in LIKE else f"{case}.nft" for case in RULES}
    assert {path.name for path in (CASES / "rules").iterdir()} == names
