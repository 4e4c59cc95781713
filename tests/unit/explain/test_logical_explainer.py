"""A logical network, broken one thing at a time: of which packets it is told, and of which not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from seen_machines import Seen, broken, cell, down, findings, lab, whole

from lab.explain.explainer import Explainer
from lab.explain.paths import flow_of, select_machines
from lab.facts.ovn import Databases, SeenSwitch, Switching
from lab.facts.translations import Barrier, End
from lab.topology.subject import FlowsSubject, LogicalSubject
from lab.topology.walk import walk

PODS = "pod-pod/worker1-p1/win1-p1/tcp-small"
ON_NODE = "pod-pod/worker1-p1/worker1-p2/tcp-small"
SERVICE = "pod-service/worker1-p1/to-win1-p1/tcp-small"
OTHER_SERVICE = "pod-service/worker1-p1/to-win1-p2/tcp-small"
NODE_PORT = "nodeport/client/worker1:to-win1-p1/tcp-small"
OUTSIDE = "pod-external/worker1-p1/client/tcp-small"
FROM_MASTER = "pod-service/master-p1/to-win1-p1/tcp-small"
DNS = "dns/worker1-p1/to-master-p1/udp-small"


def switching(facts: Seen, node: str, change: Callable[[Switching], Switching]) -> Seen:
    switching = facts[node].switching
    assert switching is not None
    return broken(facts, node, switching=change(switching))


def databases(facts: Seen, change: Callable[[Databases], Databases]) -> Seen:
    databases = facts["master"].databases
    assert databases is not None
    return broken(facts, "master", databases=change(databases))


def switch(facts: Seen, name: str, change: Callable[[SeenSwitch], SeenSwitch]) -> Seen:
    return databases(
        facts,
        lambda databases: replace(
            databases,
            switches=tuple(
                change(switch) if switch.name == name else switch for switch in databases.switches
            ),
        ),
    )


def balanced(facts: Seen, name: str, *backends: End) -> Seen:
    """With other backends of the Service to win1-p1 on a switch; with none, unknown to it."""

    def changed(switch: SeenSwitch) -> SeenSwitch:
        services = [
            replace(service, backends=backends) if service.address == "10.96.0.26" else service
            for service in switch.balanced
            if backends or service.address != "10.96.0.26"
        ]
        return replace(switch, balanced=tuple(services))

    return switch(facts, name, changed)


def stale(facts: Seen, *only: str) -> Seen:
    """With another backend of the Service to win1-p1, on some switches or on all."""
    for one in only or ("master", "worker1", "worker2", "win1", "win2"):
        facts = balanced(facts, one, End("10.0.4.254", 8080))
    return facts


def flow_that_drops(facts: Seen, node: str) -> Seen:
    rule = Barrier(FlowsSubject("br-ex"), "udp,tp_dst=6081 actions=drop", "udp", (6081, 6081))
    return switching(facts, node, lambda switching: replace(switching, flows=(rule,)))


def unplugged(facts: Seen, device: str) -> Seen:
    return switching(
        facts,
        "win1",
        lambda switching: replace(
            switching,
            ports=tuple(
                replace(port, logical="") if port.name == device else port
                for port in switching.ports
            ),
        ),
    )


def list_that_drops(facts: Seen, node: str) -> Seen:
    rule = Barrier(
        LogicalSubject("access control list", "worker1"),
        "drop",
        "udp",
        (53, 53),
        ("10.96.0.10/32",),
    )
    return switch(facts, node, lambda switch: replace(switch, barriers=(rule,)))


def elsewhere(facts: Seen, node: str) -> Seen:
    """The node has told another address for its end of tunnels."""
    lost = databases(
        facts,
        lambda databases: replace(databases, chassis={**databases.chassis, node: "10.20.0.99"}),
    )
    return no_tunnel_to_win1(lost)


def no_tunnel_to_win1(facts: Seen) -> Seen:
    return switching(
        facts,
        "worker1",
        lambda switching: replace(
            switching, ports=tuple(port for port in switching.ports if port.remote != "10.20.0.13")
        ),
    )


def without_chassis(facts: Seen, node: str) -> Seen:
    return databases(
        facts,
        lambda databases: replace(
            databases, chassis={key: one for key, one in databases.chassis.items() if key != node}
        ),
    )


CASES = [
    # what is wrong, kind, fault, node, cells that it is told of, cells that it is not
    (stale, "balancer-stale", "service-backend-stale", "master", (SERVICE, NODE_PORT, FROM_MASTER),
     (OTHER_SERVICE, PODS)),
    (lambda seen: stale(seen, "worker1"), "balancer-stale", "service-backend-stale", "worker1",
     (SERVICE, NODE_PORT), (FROM_MASTER,)),
    (lambda seen: switch(seen, "worker1", lambda switch: replace(switch, balanced=())),
     "balancers-missing", "service-rules-missing", "worker1", (SERVICE, NODE_PORT), (PODS,)),
    (lambda seen: balanced(seen, "worker1"), "balancer-missing", "", "worker1", (SERVICE,),
     (FROM_MASTER, OTHER_SERVICE, PODS)),
    (no_tunnel_to_win1, "tunnel-end-missing", "", "worker1", (PODS, SERVICE), (ON_NODE,)),
    (lambda seen: flow_that_drops(seen, "win1"), "tunnel-port-dropped", "tunnel-udp-dropped",
     "win1", (PODS, SERVICE), (ON_NODE, OUTSIDE)),
    (lambda seen: unplugged(seen, "veth1"), "port-unbound", "", "win1", (PODS, SERVICE),
     (ON_NODE, OTHER_SERVICE)),
    (lambda seen: down(seen, "win1", "eth0"), "link-down", "node-link-down", "win1",
     (PODS, SERVICE), (ON_NODE,)),
    (lambda seen: list_that_drops(seen, "worker1"), "name-server-barred", "dns-unreachable",
     "worker1", (DNS,), (PODS, SERVICE)),
    (lambda seen: elsewhere(seen, "win1"), "tunnel-local", "", "win1", (PODS,), (ON_NODE,)),
    (lambda seen: without_chassis(seen, "win1"), "tunnel-local", "", "win1", (PODS,), (ON_NODE,)),
    (lambda seen: switch(seen, "win1", lambda switch: replace(switch, ports={})), "logical-port",
     "", "win1", (PODS,), (ON_NODE,)),
    (lambda seen: databases(seen, lambda databases: replace(databases, routes={})),
     "logical-route", "", "worker1", (OUTSIDE,), (PODS,)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("harm", "kind", "fault", "node", "those", "others"),
    CASES,
    ids=[f"{case[1]}-{number}" for number, case in enumerate(CASES)],
)
def test_a_difference_is_reported_for_the_packets_that_meet_it(  # noqa: PLR0913, PLR0917  a case has as many columns
    harm: Callable[[Seen], Seen],
    kind: str,
    fault: str,
    node: str,
    those: tuple[str, ...],
    others: tuple[str, ...],
) -> None:
    _, intent, _ = lab("ovn")
    facts = harm(whole(intent))
    for name in those:
        differences = findings("ovn", facts, name)
        assert [(difference.kind, difference.fault, difference.node) for difference in differences][
            :1
        ] == [(kind, fault, node)], name
        assert differences[0].hop >= 0
    for name in others:
        assert findings("ovn", facts, name) == (), name


def test_a_difference_in_the_databases_is_shown_and_fixed_on_their_machine() -> None:
    _, intent, _ = lab("ovn")
    (difference, *_) = findings("ovn", stale(whole(intent), "worker1"), SERVICE)
    assert difference.place == "master"
    assert difference.shown_by("ovn") == (
        "lab exec ovn master -- ovn-nbctl --no-leader-only --columns=name,vips find Load_Balancer "
        "name=to-win1-p1/tcp"
    )
    assert difference.fixed_by("ovn").startswith("lab exec ovn master -- sh -c ")


def test_the_machine_with_the_databases_is_looked_at_whoever_asks() -> None:
    _, intent, _ = lab("ovn")
    asked_for = flow_of(cell("ovn", ON_NODE))
    assert list(select_machines(intent, walk(intent, asked_for))) == ["master", "worker1"]


def test_unobserved_machines_have_no_findings() -> None:
    _, intent, _ = lab("ovn")
    assert Explainer(intent, {}).list_elsewhere() == ()
