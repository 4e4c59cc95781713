"""Whatever is done to a machine or pod by hand is found, and the command with it undoes it."""

from __future__ import annotations

import shutil

import pytest
from explain_drill import brought_up
from netns_intents import cluster
from netns_running import Running, scenario_intent

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError
from lab.explain.lab_queries import NoAnswer
from lab.facts.difference import Difference
from lab.lifecycle.explain import ExplainQuestion, explain_cell
from lab.providers.netns.machine import NetnsMachine
from lab.providers.netns.namespaces import namespace_names
from lab.providers.netns.provider import NetnsProvider
from lab.scenario.loader import shipped

pytestmark = pytest.mark.slow

INTENT = cluster("overlay", linux=2, windows=0)
POD = next(pod.name for machine in INTENT.machines for pod in machine.pods if pod.role != "dns")
NODE = next(
    machine.name for machine in INTENT.machines if any(pod.name == POD for pod in machine.pods)
)


@pytest.fixture(scope="module")
def running(new_lab):
    made = Running(new_lab(), INTENT, NetnsProvider()).up()
    yield made
    made.provider.destroy(made.lab)


def found(running: Running, *places: str) -> list[tuple[str, Difference]]:
    """The differences of each place. Raises the LabError of a place that did not answer."""
    pairs: list[tuple[str, Difference]] = []
    deviations = running.provider.deviations(running.lab, running.intent, places, Deadline(300))
    for place, differences in deviations.items():
        if isinstance(differences, LabError):
            raise differences
        pairs += ((place, difference) for difference in differences)
    return pairs


def test_a_place_that_does_not_answer_is_an_error_and_not_a_difference(running, monkeypatch):
    def refuse(*_: object) -> None:
        raise BrokenError("reading its state", "no room")

    monkeypatch.setattr(NetnsMachine, "run", refuse)
    with pytest.raises(BrokenError, match="no room"):
        found(running, NODE)


@pytest.mark.parametrize("name", shipped())
def test_nothing_of_a_healthy_lab_deviates(bring_up, name):
    healthy = bring_up(scenario_intent(name), name=f"made-{name}")
    assert found(healthy, *namespace_names(healthy.intent)) == []
    healthy.provider.destroy(healthy.lab)


STRAY = (
    "add table ip mine; add chain ip mine in { type filter hook input priority 0; policy drop; }"
)
MAP = """add table inet mine; add chain inet mine c { type filter hook forward priority -5; }
add rule inet mine c ip protocol vmap { tcp : drop }"""
PORT = "$(ls /sys/class/net/cni0/brif | head -1)"
BY_HAND = [
    (POD, "table ip mine", f"nft '{STRAY}'"),
    (NODE, "table inet mine", f"nft '{MAP}'"),
    (NODE, "rule 50 from all fwmark 0x7", "ip rule add priority 50 fwmark 7 lookup 77"),
    (NODE, "route to default in table 77", "ip route add blackhole default table 77"),
    (POD, "dir out", "ip xfrm policy add dir out src 0.0.0.0/0 dst 0.0.0.0/0 action block"),
    (POD, "setting net/ipv4/ip_default_ttl", "echo 1 > /proc/sys/net/ipv4/ip_default_ttl"),
    (NODE, "isolated", f"ip link set dev {PORT} type bridge_slave isolated on"),
    (POD, "queue root of eth0", "tc qdisc add dev eth0 root tbf rate 1kbit burst 100 limit 100"),
    (
        NODE,
        "class 1:1 of cni0",
        (
            "tc qdisc add dev cni0 root handle 1: htb && "
            "tc class add dev cni0 parent 1: classid 1:1 htb rate 8bit"
        ),
    ),
    (POD, "file /etc/resolv.conf", "echo nameserver 192.0.2.1 > /etc/resolv.conf"),
    (
        POD,
        "in table local",
        "ip route delete table local $(ip route show table local type local dev eth0 | head -1)",
    ),
    (NODE, "table ip kube-proxy", "nft delete table ip kube-proxy"),
    (NODE, "nat-output", "nft delete chain ip kube-proxy nat-output"),
    (NODE, "table ip kube-proxy", "nft add table ip kube-proxy '{ flags dormant; }'"),
    (NODE, "xfrm default policies", "ip xfrm policy setdefault fwd block"),
    (NODE, "tos 0x10", "ip route add 10.244.0.0/24 tos 0x10 dev lo"),
    (NODE, "10.9.9.8", "ip address add 10.9.9.8 peer 10.9.9.9 dev cni0"),
    (NODE, "veth", f"ip link set dev {PORT} name stray"),
    (POD, "neighbour 10.9.9.9", "ip neigh add 10.9.9.9 lladdr 02:00:00:00:00:01 dev eth0"),
]
"""Where, what is found, and the command that does it."""
if shutil.which("iptables-legacy"):
    BY_HAND += [
        (POD, "iptables filter INPUT policy", "iptables-legacy -P INPUT DROP"),
        (NODE, "iptables nat OUTPUT", "iptables-legacy -t nat -A OUTPUT -p udp -j REDIRECT"),
    ]


@pytest.mark.parametrize(("place", "thing", "command"), BY_HAND)
def test_what_was_done_by_hand_is_found_and_undone(running, place, thing, command):
    running.shell(place, command)
    there = found(running, NODE, POD)
    assert any(where == place and thing in difference.object for where, difference in there), there
    for where, one in there:
        if found(running, where):
            running.shell(where, one.mends)
    assert found(running, NODE, POD) == []


def test_what_differs_is_the_cause_where_packets_are_lost_and_nowhere_else(tmp_path, monkeypatch):
    ttl = "echo 1 > /proc/sys/net/ipv4/ip_default_ttl"
    with brought_up("overlay", tmp_path) as opened:
        for place, command in (
            ("worker1-p1", ttl),
            ("worker2-p1", "nft 'table ip idle { chain c { drop; }; }'"),
        ):
            machine = opened.provider.machine(opened.handle, opened.intent, place)
            assert machine.run(("sh", "-c", command), Deadline(30)).code == 0
        question = ExplainQuestion("worker1-p1", "worker2-p1", "udp", "small")
        named = explain_cell(opened, question, lambda _: None)
        assert named.finding is not None
        assert named.finding.object == "pod worker1-p1, setting net/ipv4/ip_default_ttl"
        assert named.bracket is not None
        assert "worker1" in named.bracket.sentence
        assert "worker2" not in named.bracket.sentence

        def refuse(*_: object) -> None:
            raise BrokenError("asking", "no room")

        monkeypatch.setattr(NetnsProvider, "deviations", refuse)
        placed = explain_cell(opened, question, lambda _: None)
        (silence,) = placed.unanswered
        assert (silence.witness, silence.reason) == ("difference", "asking: no room")
        assert {"worker1", "worker1-p1"} <= {*silence.places}
        assert placed.finding is None
        assert placed.bracket is not None
        monkeypatch.undo()
        monkeypatch.setattr(NetnsProvider, "capture", refuse)
        unplaced = explain_cell(opened, question, lambda _: None)
        assert unplaced.unanswered == (NoAnswer("where", (), "asking: no room"),)
        assert unplaced.finding is None
        assert "pod worker1-p1, setting net/ipv4/ip_default_ttl" in {
            difference.object for difference in unplaced.elsewhere
        }
