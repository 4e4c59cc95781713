"""Daemons of an Intent as units of real machines: what they become, and how they are started."""

import re
from dataclasses import replace

import pytest
from linux_clusters import Case, case
from linux_world import World

from lab._errors import BrokenError
from lab.machines.cluster.cluster import underlay
from lab.machines.cluster.linux.daemons import (
    daemon_ailments,
    daemon_operations,
    start_daemons,
    wanted_daemons,
)
from lab.machines.cluster.linux.operations import SystemdUnit, WriteFile
from lab.topology.intent import Intent

UP = {"birdc show status": "BIRD 2.0.12\nDaemon is up and running\n"}


def vrrp() -> Case:
    return case("upstream-vrrp")


def world_of(intent: Intent) -> World:
    """Every candidate says what its own pattern wants: the double holds no elections."""
    world = World(tuple(machine.name for machine in intent.machines if machine.os == "linux"))
    world.shows |= UP
    for machine in world.machines.values():
        first = machine.name == intent.gateways[0].holder
        state = "MASTER" if first else "BACKUP"
        lines = "".join(f"({gateway.node}) Entering {state} STATE\n" for gateway in intent.gateways)
        machine.logs = {"/run/keepalived/log": lines}
    return world


@pytest.fixture
def intent():
    return case("upstream-vrrp").intent


@pytest.fixture
def world(intent):
    return world_of(intent)


def test_in_a_cluster_bird_is_ready_without_pods_and_on_namespaces_with_all_routes():
    cluster, bare = vrrp().intent, replace(vrrp().intent, kubernetes=None)
    (_, ours), (_, whole) = (wanted_daemons(intent)["master1"] for intent in (cluster, bare))
    assert ours.command == whole.command
    assert ours.files == whole.files
    assert ours.ready.pattern == "^Daemon is up and running"
    assert "10\\.160\\.1\\.0/24 via" in whole.ready.pattern


def test_windows_nodes_and_those_without_daemons_are_left_out():
    assert wanted_daemons(vrrp().intent).keys() == {"master1", "master2", "master3", "node001"}


def test_a_unit_starts_with_the_machine_from_what_is_kept_on_its_disk():
    (keepalived, _) = wanted_daemons(vrrp().intent)["master1"]
    made = daemon_operations(keepalived)
    files = {one.path: one.content for one in made if isinstance(one, WriteFile)}
    assert files["/etc/hybridlab/daemons/keepalived/keepalived.conf"] == keepalived.files[0].text
    unit = files["/etc/systemd/system/hybridlab-keepalived.service"]
    assert "ExecStartPre=cp -a /etc/hybridlab/daemons/keepalived/. /run/keepalived/" in unit
    assert "StandardOutput=append:/run/keepalived/log" in unit
    assert "WantedBy=multi-user.target" in unit
    (service,) = (one for one in made if isinstance(one, SystemdUnit))
    changed = replace(keepalived, files=(replace(keepalived.files[0], text="other\n"),))
    (other,) = (
        operation for operation in daemon_operations(changed) if isinstance(operation, SystemdUnit)
    )
    assert service.inputs != other.inputs, "a change starts it anew"


def test_daemons_start_in_the_order_of_their_stages(intent, world, tmp_path):
    start_daemons(intent, world.site(tmp_path))
    starts = [
        (name, unit)
        for name, line in world.log
        if (unit := re.search(r"systemctl restart hybridlab-(\w+)", line))
    ]
    order = [(name, unit[1]) for name, unit in starts]
    assert order[0] == ("master1", "keepalived")
    assert {unit for _, unit in order[:3]} == {"keepalived"}
    assert {name for name, unit in order[3:] if unit == "bird"} == {
        *("master1", "master2", "master3", "node001")
    }
    again = len(world.log)
    start_daemons(intent, world.site(tmp_path))
    written = [line for _, line in world.log[again:] if "tar -x" in line]
    assert not written, "what is as it should be is left alone"


@pytest.mark.parametrize(
    ("log", "facts", "said"),
    [
        (
            "Cannot open config file\n",
            {"ended": {"hybridlab-keepalived.service"}},
            r"keepalived on 'master1'.*Cannot open config file",
        ),
        ("Starting VRRP child process\n", {}, "last seen: Starting VRRP child process"),
        (
            "",
            {"broken": {"command -v keepalived": "keepalived is not installed"}},
            "package 'keepalived' in its recipe",
        ),
    ],
    ids=["ended", "never ready", "not installed"],
)
def test_a_daemon_that_does_not_start_is_reported(log, facts, said, world, tmp_path):
    world.machines["master1"].logs["/run/keepalived/log"] = log
    for name, value in facts.items():
        getattr(world, name).update(value)
    with pytest.raises(BrokenError, match=said):
        start_daemons(vrrp().intent, replace(world.site(tmp_path), patience=0))


def test_one_that_has_ended_since_is_an_ailment_of_its_machine(intent, world, tmp_path):
    assert daemon_ailments(intent, world.site(tmp_path)) == {}
    world.ended.add("hybridlab-bird.service")
    world.machines["master2"].logs["/run/bird/log"] = "Started\nNo space left on device\n"
    found = daemon_ailments(intent, world.site(tmp_path))
    assert list(found) == ["master1", "master2", "master3", "node001"]
    assert found["master2"] == "bird is activating: Started / No space left on device"
    assert found["master1"] == "bird is activating: its log is empty"
    world.broken["systemctl is-active"] = "Failed to connect to bus"
    found = daemon_ailments(intent, world.site(tmp_path))
    assert found["node001"] == "bird is unknown: its log is empty"
    world.broken["cat /run/bird/log"] = "cat: /run/bird/log: Input/output error"
    found = daemon_ailments(intent, world.site(tmp_path))
    assert found["node001"].startswith("bird is unknown: its log cannot be read: cat: ")


def test_the_tunnel_that_no_add_on_makes_is_the_machines_own(intent):
    own = underlay(intent)
    for name in ("master1", "node001"):
        whole, left = intent.machine(name), own.machine(name)
        assert left.tunnel == whole.tunnel
        assert left.forwarding == whole.forwarding
        assert {neighbour.device for neighbour in left.neighbours} == {"vxlan0"}
        assert [route.destination for route in left.routes] == ["default"]
        assert left.bridge is None
    flannels = underlay(case("overlay").intent).machine("worker1")
    assert flannels.tunnel is None
    assert flannels.forwarding == ()


def test_nodes_are_known_by_their_address_on_the_nodes_network():
    case = vrrp()
    assert case.node("master1").address == "100.100.126.202"
    assert case.cluster.endpoint == "172.16.126.1", "the router is on the office's network alone"
