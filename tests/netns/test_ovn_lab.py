"""A lab of OVN: real databases, switches and controllers, and packets through them."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from netns_running import LOST_SECONDS

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.plan.planner import make_plan
from lab.providers.netns import daemons
from lab.providers.netns.namespaces import run_directory
from lab.providers.netns.provider import NetnsProvider
from lab.scenario.loader import find, load
from lab.scenario.scenario import Services
from lab.topology import registry

_WHOLE = load(find("ovn"))
SCENARIO = _WHOLE.replace(
    nodes=(_WHOLE.nodes[0], _WHOLE.nodes[1], _WHOLE.nodes[3]),
    pods_per_node=1,
    services=Services(),
)
INTENT = registry.intent(make_plan(SCENARIO))


@pytest.fixture(scope="module")
def lab(bring_up):
    return bring_up(INTENT, name="ovn")


@pytest.mark.parametrize(
    ("source", "address", "port", "says"),
    [
        ("worker1-p1", "10.0.1.4", 8080, "master-p1 10.0.2.4"),
        ("worker1-p1", "10.0.4.4", 8080, "win1-p1 10.0.2.4"),
        ("worker1", "10.0.1.4", 8080, "master-p1 10.0.2.2"),
        ("worker1-p1", "10.96.0.20", 80, "master-p1 10.0.2.4"),
        ("master-p1", "10.96.0.20", 80, "master-p1 169.254.169.5"),
        ("client", "10.20.0.11", 30000, "master-p1 10.0.2.2"),
        ("win1-p1", "198.51.100.10", 8080, "client 10.20.0.10"),
    ],
)
def test_packets_go_where_they_should_with_the_right_source(lab, source, address, port, says):
    assert lab.ask(source, address, port) == says


def test_a_windows_node_loses_what_asks_for_its_node_ports(lab):
    assert lab.ask("client", "10.20.0.12", 30000, seconds=LOST_SECONDS) == "timeout"


def test_commands_find_their_daemons_without_options(lab):
    assert "port worker1-p1" in lab.shell("master", "ovn-nbctl --timeout=5 show")
    assert "Chassis win1" in lab.shell("master", "ovn-sbctl --timeout=5 show")
    assert "type: geneve" in lab.shell("worker1", "ovs-vsctl --timeout=5 show")


def test_evidence_has_the_logical_network_the_flows_and_the_logs(lab):
    found = {one.path: one.content for one in lab.provider.evidence(lab.lab, lab.intent)}
    assert b"switch" in found["master/ovn-northbound/ovn-nbctl-show.txt"]
    assert b"table=" in found["worker1/ovs-vswitchd/ovs-ofctl-dump-flows-br-int.txt"]
    assert b"tcp:10.20.0.10:6642: connected" in found["win1/ovn-controller/log"]


def test_a_chassis_that_never_comes_is_named(lab):
    network = lab.intent.logical
    assert network
    ghost = replace(
        network, switches=(*network.switches, replace(network.switches[0], name="gone"))
    )

    def wait(_: object) -> None:
        daemons.wait_for_logical_network(ghost, Deadline(1), lambda: None)

    with pytest.raises(DeadlineError, match="chassis gone is not registered"):
        lab.entry.call("waiting", wait, Deadline(20))


def test_no_flow_commits_a_connection_with_nothing_to_translate_to(lab):
    flows = lab.shell("worker1", "ovs-ofctl --timeout=5 dump-flows br-int")
    assert "ct(commit" in flows
    assert "nat(src)" not in flows


def test_a_dead_daemon_is_reported_with_the_end_of_its_log(bring_up):
    running = bring_up(INTENT, NetnsProvider(), name="dying")

    def kill(_: object) -> None:
        file = Path(run_directory("worker1"), "openvswitch/ovs-vswitchd.pid")
        os.kill(int(file.read_text(encoding="ascii")), signal.SIGKILL)

    def wait(_: object) -> None:
        network = running.intent.logical
        assert network
        ghost = replace(
            network, switches=(*network.switches, replace(network.switches[0], name="gone"))
        )
        daemons.wait_for_logical_network(
            ghost, Deadline(600), lambda: daemons.require_daemons(running.intent, "bringing it up")
        )

    running.entry.call("killing a switch", kill, Deadline(10))
    found = Deadline(10).wait(
        "waiting for the switch to be missed",
        lambda: running.provider.liveness(running.lab, running.intent),
        until=lambda seen: seen.state == "broken",
    )
    assert "'ovs-vswitchd' on 'worker1'" in found.detail
    with pytest.raises(BrokenError, match="'ovs-vswitchd' on 'worker1' has ended; the end of"):
        running.entry.call("waiting for what never comes", wait, Deadline(60))
    running.provider.destroy(running.lab)
