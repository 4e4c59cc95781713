"""What an agent leaves alone, what it replaces, and what SIGKILL does to it."""

import json

import pytest
from node_lab import NodeLab

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError
from lab.lifecycle.compilation import compile_scenario
from lab.machines.agents.control import NodeControl
from lab.providers.provider import Probe, ProbeSettings
from lab.scenario.loader import find
from lab.scenario.reserved import OUTSIDE_CIDR

pytestmark = pytest.mark.slow

PHASES = ("clearing", "cards", "holder", "network", "rules", "responder", "ready")
STRANGER = """
ip link add docker0 type bridge
ip addr add 172.17.0.1/16 dev docker0
ip link set docker0 up
ip link add stranger1 type veth peer name stranger2
ip route add 203.0.113.0/24 via 172.17.0.9
nft 'add table ip stranger; add chain ip stranger c { type filter hook input priority 0; }'
"""
WHAT_IS_THERE = """
ip -o link | sed 's/^[0-9]*: //; s/ qdisc .*//; s/@if[0-9]*//' | sort
ip -o -4 addr | sed 's/^[0-9]*: //' | sort
ip route | sort
nft list ruleset
"""


def asks(lab: NodeLab, source: str, target: str) -> str:
    address = next(
        pod.address.partition("/")[0]
        for machine in lab.intent.machines
        for pod in machine.pods
        if pod.name == target
    )
    probe = Probe(0, source, "tcp", "small", address, 8080, 1500)
    settings = ProbeSettings(1.0, 4)
    outcomes = lab.fleet.probe_all(lab.intent, [probe], settings, lambda _: None)
    return outcomes[0].status


def test_what_is_not_the_labs_stays_as_it_is_and_another_intent_replaces_what_is(lone, tmp_path):
    guest = lone.guest("worker1")
    guest.shell(STRANGER)
    there = ["docker0", "172.17.0.1/16", "stranger1", "203.0.113.0/24", "table ip stranger"]
    there += ["default via 10.9.176.1 dev eth0", "default via 198.18.0.1 dev mgmt0 metric 1024"]
    for vni in (4096, 5000, 4096):
        scenario = tmp_path / "overlay.yaml"
        scenario.write_text(find("overlay").read_text().replace("vni: 4096", f"vni: {vni}"))
        intent = compile_scenario(scenario, only="linux", real=True).intent
        machine = intent.machine("worker1")
        lone.controls["worker1"].up(machine, intent, Deadline(60))
        during = guest.shell(WHAT_IS_THERE)
        for line in (*there, f"flannel.{vni}"):
            assert line in during
        assert during.count("flannel.") == during.count(f"flannel.{vni}")
        assert during.count("default via") == 2


def test_management_stays_reachable_and_carries_nothing_of_the_lab(lab):
    lab.up()
    connect = "timeout 1 bash -c 'exec 3<>/dev/tcp/{}/8080' && echo yes || echo no"
    assert lab.world.run(connect.format("198.18.0.11")) == "yes\n"
    lab.world.run("ip route add 10.244.0.0/16 via 198.18.0.11")
    assert lab.world.run(connect.format("10.244.1.2")) == "no\n"
    # The router has no route for what is outside of the lab, but its management card has.
    settings = ProbeSettings(0.5, 4)
    probe = Probe(0, "worker1-p1", "tcp", "small", "203.0.113.7", 80, 1500)
    outcomes = lab.fleet.probe_all(lab.intent, [probe], settings, lambda _: None)
    assert outcomes[0].status == "no-route"
    # Without the default route of the Intent nothing of the lab leaves by that card either.
    lab.guest("worker1").shell("ip route delete default dev eth0")
    client = str(OUTSIDE_CIDR[10])
    probe = Probe(0, "worker1", "tcp", "small", client, 80, 1500)
    assert (
        lab.fleet.probe_all(lab.intent, [probe], settings, lambda _: None)[0].status == "no-route"
    )


def test_cards_by_other_names_are_found_by_their_mac_and_renamed(new_lab):
    swapped = {"eth0": "eth1", "eth1": "eth0"}
    lab = new_lab("upstream-tor", lambda one: swapped[one.name])
    lab.up()
    for machine in lab.intent.machines:
        for interface in machine.interfaces:
            link = json.loads(lab.guest(machine.name).shell(f"ip -j link show {interface.name}"))
            assert link[0]["address"] == interface.mac
    one, *_, other = (pod.name for machine in lab.intent.machines for pod in machine.pods)
    assert asks(lab, one, other) == "ok"


def test_a_restarted_machine_is_noticed_and_brought_up_again(lab):
    lab.up()
    guest = lab.guest("worker1")
    guest.shell("rm -rf /run/hybridlab; kill -9 $(pgrep -f hybridlab-nod[e])")
    assert "restarted" in lab.ailments()["worker1"]
    assert list(lab.ailments()) == ["worker1"]
    assert asks(lab, "worker1-p1", "worker2-p1") == "error"
    lab.up_one("worker1")
    assert lab.ailments() == {}
    assert asks(lab, "worker1-p1", "worker2-p1") == "ok"


@pytest.mark.parametrize(
    ("killed", "says"),
    [("hybridlab-nod[e]", "the holder of its pods"), ("responder.p[y]", "its responder")],
)
def test_what_has_ended_is_missed(lone, killed, says):
    lone.up_one("worker1")
    lone.guest("worker1").shell(f"kill -9 $(pgrep -f {killed})")
    control, machine = lone.controls["worker1"], lone.intent.machine("worker1")
    Deadline(10).wait(
        f"hearing that {says} is missed",  # a process that was killed takes a moment to go
        lambda: control.ailment(machine, lone.intent, Deadline(10)),
        until=lambda said: says in said,
    )


def test_a_changed_intent_is_recognised(lone, new_lab):
    lone.up_one("worker1")
    other = new_lab("host-gateway")
    control, machine = lone.controls["worker1"], other.intent.machine("worker1")
    assert "another intent" in control.ailment(machine, other.intent, Deadline(10))


def killed_in(lab: NodeLab, phase: str) -> bool:
    """Whether SIGKILL ended the agent of worker1 in that phase; in the last it may come late."""

    def heard(said: str) -> None:
        if said == phase:
            lab.guest("worker1").kill_agent()

    try:
        lab.up_one("worker1", heard)
    except BrokenError as error:
        return "ended without an answer" in str(error)
    assert phase == PHASES[-1]
    return False


def test_killed_in_any_phase_it_is_brought_up_again(lab):
    lab.up()
    guest = lab.guest("worker1")
    for phase in PHASES:
        if killed_in(lab, phase):
            assert "its network is incomplete" in lab.ailments()["worker1"], phase
        lab.up_one("worker1")
        assert lab.ailments() == {}, phase
        assert asks(lab, "worker1-p1", "worker2-p1") == "ok", phase
        assert guest.shell("pgrep -cf hybridlab-nod[e] || true") == "1\n", phase


def test_two_at_once_do_not_meet(lone):
    guest = lone.guest("worker1")
    lone.up_one("worker1")
    guest.shell("flock /run/hybridlab/lock sleep 60 > /dev/null 2>&1 & echo $! > /run/sleeper")
    control = lone.controls["worker1"]
    with pytest.raises(DeadlineError, match="waiting for an earlier command to finish"):
        control.up(lone.intent.machine("worker1"), lone.intent, Deadline(2))
    guest.shell("kill $(pgrep -P $(cat /run/sleeper)) || true; kill $(cat /run/sleeper) || true")
    lone.up_one("worker1")


def test_a_missing_card_is_named_with_those_there_are(lone):
    lone.guest("worker1").shell("ip link set eth0 address 02:00:00:00:00:07")
    with pytest.raises(LabError) as caught:
        lone.up_one("worker1")
    assert "'worker1'" in str(caught.value)
    assert "the machine has no such card; it has " in str(caught.value)
    assert "'eth0' 02:00:00:00:00:07" in str(caught.value)


def test_the_card_of_ones_own_connection_is_not_touched(lone, monkeypatch):
    guest = lone.guest("worker1")
    guest.shell("ip addr add 10.9.176.11/24 dev eth0")
    monkeypatch.setenv("SSH_CONNECTION", "10.9.176.1 4711 10.9.176.11 22")
    with pytest.raises(LabError, match="it carries this connection"):
        lone.up_one("worker1")
    assert "10.9.176.11" in guest.shell("ip addr show eth0")


def test_a_management_range_that_is_the_labs_too_is_refused(lone):
    lone.guest("worker1").shell("ip addr add 10.9.176.200/24 dev mgmt0")
    with pytest.raises(LabError, match=r"'mgmt0' has the address 10\.9\.176\.200/24"):
        lone.up_one("worker1")


def test_a_machine_out_of_reach_costs_its_own_probes_alone(lab):
    lab.up()
    lab.guest("worker2").reachable = False
    probes = [
        Probe(number, source, "tcp", "small", "10.9.176.10", 8080, 1500)
        for number, source in enumerate(("worker1", "worker2", "worker2-p1", "nobody", "client"))
    ]
    told: list[int] = []
    outcomes = lab.fleet.probe_all(lab.intent, probes, ProbeSettings(1.0, 8), told.append)
    assert [outcomes[number].status for number in range(5)] == [
        "ok",
        "error",
        "error",
        "error",
        "ok",
    ]
    assert "connection refused" in outcomes[1].detail
    assert "'nobody'" in outcomes[3].detail
    assert told == sorted(told)
    assert told[-1] == 5
    assert list(lab.ailments()) == ["worker2"]


def test_commands_run_in_machines_and_in_pods(overlay):
    lab = overlay
    control = lab.controls["worker1"]
    node, pod = lab.fleet.machine(lab.intent, "worker1"), control.machine("worker1-p1")
    assert "flannel.4096" in node.run(["ip", "-br", "link"], Deadline(20)).stdout
    completed = pod.run(["sh", "-c", "hostname; cat /etc/resolv.conf; exit 3"], Deadline(20))
    assert (completed.code, completed.stdout.split()[:3]) == (
        3,
        ["worker1-p1", "nameserver", "10.96.0.10"],
    )
    assert pod.attach(["sh", "-c", "exit 4"]) == 4
    with pytest.raises(DeadlineError):
        pod.run(["sleep", "60"], Deadline(1.5))
    assert "sleep 60" not in lab.guest("worker1").shell("ps ax | grep -v grep")
    by_hand = NodeControl("worker1", lab.guest("worker1"), ("lab", "ssh", "x", "worker1", "--"))
    assert by_hand.machine("worker1").command_line(["ip", "route"]) == (
        "lab ssh x worker1 -- ip route"
    )
    assert by_hand.machine("worker1-p1").command_line(["ping", "a b"]) == (
        "lab ssh x worker1 -- /run/hybridlab/enter worker1-p1 ping 'a b'"
    )
    assert pod.command_line([]) == "/run/hybridlab/enter worker1-p1"


def test_evidence_speaks_of_the_machine_and_of_each_pod(overlay):
    pieces = {one.path: one.content for one in overlay.fleet.evidence(Deadline(30))}
    assert b"flannel.4096" in pieces["worker1/network/machine/addresses.txt"]
    assert b"10.244.1." in pieces["worker1/network/worker1-p1/addresses.txt"]
    assert b"kube-proxy" in pieces["worker1/network/machine/nftables.txt"]
    assert b"8080" in pieces["worker1/network/worker1-p1/sockets.txt"]
    overlay.guest("worker2").reachable = False
    pieces = {one.path: one.content for one in overlay.fleet.evidence(Deadline(30))}
    overlay.guest("worker2").reachable = True
    assert b"connection refused" in pieces["worker2/network/missing.txt"]
