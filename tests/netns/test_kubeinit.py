"""Kubeinit's cluster on namespaces: what its services node does, and what its hypervisors carry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from netns_running import Running
from observed_labs import differences

from lab._deadline import Deadline
from lab.plan.planner import make_plan
from lab.providers.provider import Outcome, Probe, ProbeSettings
from lab.scenario.loader import load, meant
from lab.scenario.terms import Protocol
from lab.topology import registry

SPEC = "k8s-libvirt-3-2-2,compute-02.os=linux"
VXLAN = (
    "ip link del vxlan-nodes; ip link add vxlan-nodes address 0e:58:cb:00:71:02 mtu 1450 "
    "type vxlan id {vni} dstport {port} local 203.0.113.2 dev eth0 nolearning && "
    "ip link set vxlan-nodes master br-nodes up && {entries}"
)
BARRED = (
    "nft -f - <<< 'table ip fault {{ chain in {{ type filter hook input priority -300; "
    "{what} counter drop; }}; }}'"
)


@pytest.fixture(scope="module")
def running(bring_up):
    return bring_up(registry.intent(make_plan(load(meant(SPEC)))))


@contextmanager
def barred(running: Running, machine: str, what: str) -> Iterator[None]:
    """Lose what comes to a machine, for a while."""
    running.shell(machine, f"bash -c {json.dumps(BARRED.format(what=what))}")
    try:
        yield
    finally:
        running.shell(machine, "nft delete table ip fault")


@pytest.mark.parametrize("source", ["compute-01-p1", "compute-02", "controller-01", "client"])
def test_every_api_server_answers_behind_the_api_address(running, source):
    asked = " ".join(["http://10.0.0.253:6443/"] * 64)
    lines = running.shell(source, f"curl --silent --fail --max-time 5 {asked}").splitlines()
    answers = [json.loads(line) for line in lines]
    assert {answer["endpoint"] for answer in answers} == {f"controller-0{n}" for n in (1, 2, 3)}
    assert {answer["client"].partition(":")[0] for answer in answers} == {"10.0.0.253"}


def test_an_api_server_that_is_down_is_left_out_and_taken_in_again(running):
    def answering() -> set[str]:
        asked = " ".join(["http://10.0.0.253:6443/"] * 48)
        output = running.shell("compute-01", f"curl --silent --fail --max-time 5 {asked}")
        return {json.loads(line)["endpoint"] for line in output.splitlines()}

    with barred(running, "controller-02", "tcp dport 6443"):
        Deadline(60).wait(
            "waiting for HAProxy to leave controller-02 out",
            answering,
            until=lambda found: found == {"controller-01", "controller-03"},
        )
    Deadline(60).wait(
        "waiting for HAProxy to take controller-02 in again",
        answering,
        until=lambda found: found == {f"controller-0{n}" for n in (1, 2, 3)},
    )


def asked(running: Running, source: str, name: str, protocol: Protocol = "udp") -> Outcome:
    probe = Probe(0, source, protocol, "small", "10.96.0.10", 53, 1400, name)
    settings = ProbeSettings(timeout=3.0, in_flight=1)
    return running.provider.probe(running.lab, running.intent, [probe], settings, lambda _: None)[0]


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
@pytest.mark.parametrize(
    "source", ["compute-01-p1", "controller-02-p1", "compute-01", "controller-02"]
)
def test_pods_and_nodes_find_nodes_by_their_names(running, source, protocol):
    outcome = asked(running, source, "compute-02.k8scluster.kubeinit.local.", protocol)
    assert (outcome.status, outcome.answer) == ("ok", "10.0.0.5")
    strange = asked(running, source, "nobody.k8scluster.kubeinit.local.", protocol)
    assert strange.status == "no-such-name"


def test_one_that_holds_a_connection_to_the_dns_keeps_nobody_else_from_it(running):
    """CoreDNS holds those that it has asked by for ten seconds."""
    holding = "import os, socket; c = socket.create_connection(('10.0.0.253', 53))"
    asking = "os.system('timeout 5 getent hosts controller-03')"
    output = running.shell("compute-01", f'python3 -c "{holding}; {asking}"')
    assert output.split() == ["10.0.0.3", "controller-03.k8scluster.kubeinit.local"]


def test_without_the_services_nodes_dns_services_are_found_and_nodes_are_not(running):
    service = "to-controller-01-p1.default.svc.cluster.local."
    with barred(running, "services", "udp dport 53"):
        assert asked(running, "compute-01-p1", service).status == "ok"
        names = asked(running, "compute-01-p1", "compute-02.k8scluster.kubeinit.local.")
        assert names.status == "timeout"


def entries(running: Running) -> str:
    made = running.intent.machine("hypervisor-02").forwarding
    return " && ".join(
        f"bridge fdb append {entry.mac} dev {entry.device} dst {entry.remote} self permanent"
        for entry in made
    )


FAULTS = [
    # what breaks hypervisor-02, what mends it, what is told first, and of which object
    ("ip link set eth0 down", "ip link set eth0 up", "link-down", "card eth0"),
    ("ip link set br-nodes down", "ip link set br-nodes up", "bridge-down", "switch br-nodes"),
    ("ip link set vnet0 down", "ip link set vnet0 up", "link-down", "port vnet0 of compute-01"),
    (
        "ip link set vnet0 nomaster",
        "ip link set vnet0 master br-nodes",
        "unplugged",
        "port vnet0 of compute-01",
    ),
    (
        "ip link set vxlan-nodes down",
        "ip link set vxlan-nodes up",
        "tunnel-down",
        "tunnel vxlan-nodes",
    ),
    (
        "ip link set vxlan-nodes nomaster",
        "ip link set vxlan-nodes master br-nodes",
        "unplugged",
        "port vxlan-nodes of the tunnel",
    ),
    (
        "bridge fdb del 0a:58:0a:00:00:01 dev vxlan-nodes dst 203.0.113.1",
        "bridge fdb add 0a:58:0a:00:00:01 dev vxlan-nodes dst 203.0.113.1 self permanent",
        "entry-missing",
        "forwarding entry 0a:58:0a:00:00:01 on vxlan-nodes",
    ),
    (
        "bash -c \"nft -f - <<< 'table ip fault { chain in { type filter hook input priority -300; udp dport 4789 counter drop; }; }'\"",  # noqa: E501  one command line
        "nft delete table ip fault",
        "tunnel-port-dropped",
        "table ip fault, chain in",
    ),
    (
        "ip link set vxlan-nodes mtu 1300",
        "ip link set vxlan-nodes mtu 1450",
        "tunnel-mtu",
        "tunnel vxlan-nodes",
    ),
    ("{vni}", "{again}", "wrong-vni", "tunnel vxlan-nodes"),
    ("{port}", "{again}", "wrong-port", "tunnel vxlan-nodes"),
]


@pytest.mark.parametrize(
    ("broken", "mended", "kind", "what"),
    FAULTS,
    ids=[fault[2] + "-" + fault[3] for fault in FAULTS],
)
def test_a_difference_on_a_hypervisor_is_reported(running, broken, mended, kind, what):
    lines = {
        "{vni}": VXLAN.format(vni=2, port=4789, entries=entries(running)),
        "{port}": VXLAN.format(vni=1, port=4790, entries=entries(running)),
        "{again}": VXLAN.format(vni=1, port=4789, entries=entries(running)),
    }
    running.shell("hypervisor-02", lines.get(broken, broken))
    try:
        first = differences(running, "hypervisor-02")[0]
    finally:
        running.shell("hypervisor-02", lines.get(mended, mended))
    assert (first.kind, first.node, first.object) == (kind, "hypervisor-02", what)
    assert differences(running, "hypervisor-02") == ()
