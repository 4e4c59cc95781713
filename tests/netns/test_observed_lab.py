"""A healthy lab shows no difference; a broken one shows where it is broken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from netns_intents import NODES, cluster, mac
from netns_running import BringUp, NewLab, Running
from observed_labs import differences, seen

from lab.facts.node import rises
from lab.plan.planner import make_plan
from lab.providers.netns import responder_config
from lab.providers.netns.provider import NetnsProvider
from lab.scenario.loader import find, load, shipped
from lab.topology import registry

pytestmark = pytest.mark.slow

WORKER2 = str(NODES[2])
VTEP1, VTEP2 = (mac(end, 0x0E) for end in ("10.244.0.0", "10.244.1.0"))
VXLAN = "ip link add flannel.4096 address {mac} mtu 1450 type vxlan id {vni} dstport {port} local 10.9.176.1 dev eth0 nolearning && ip addr add 10.244.0.0/32 dev flannel.4096 && ip link set flannel.4096 up && for n in 1; do ip route add 10.244.$n.0/24 via 10.244.$n.0 dev flannel.4096 onlink; ip neigh add 10.244.$n.0 lladdr 0e:58:0a:f4:0$n:00 dev flannel.4096 nud permanent; bridge fdb add 0e:58:0a:f4:0$n:00 dev flannel.4096 dst 10.9.176.$((n+1)) self permanent; done"  # noqa: E501  one command line


SMALL = cluster("overlay", linux=2, windows=0)


@pytest.fixture
def small(new_lab: NewLab) -> Iterator[Running]:
    """A lab of its own for each way to break one."""
    running = Running(new_lab(), SMALL, NetnsProvider())
    for step in running.provider.steps(running.lab, SMALL):
        step.run()
    yield running
    running.provider.destroy(running.lab)


def _tunnel(vni: int = 4096, port: int = 4789) -> str:
    return "ip link del flannel.4096 && " + VXLAN.format(mac=VTEP1, vni=vni, port=port)


BROKEN = [
    # machine, what breaks it, what is told first, and of which object
    (
        "worker1",
        "ip link set eth0 down",
        "link-down",
        "card eth0",
    ),
    (
        "worker1-p1",
        "ip link set eth0 down",
        "pod-link-down",
        "pod worker1-p1",
    ),
    (
        "worker1",
        "ip link set veth2 down",
        "pod-link-down",
        "port veth2 of pod worker1-p1",
    ),
    (
        "worker1",
        _tunnel(vni=4097),
        "wrong-vni",
        "tunnel flannel.4096",
    ),
    (
        "worker1",
        "ip link del flannel.4096",
        "tunnel-missing",
        "tunnel flannel.4096",
    ),
    (
        "worker1",
        (
            "nft -f - <<< 'table ip fault { chain in { type filter hook input priority -300; "
            "udp dport 4789 counter drop; }; }'"
        ),
        "tunnel-port-dropped",
        "table ip fault, chain in",
    ),
    (
        "worker1",
        "iptables -A INPUT -p udp --dport 4789 -j DROP",
        "tunnel-port-dropped",
        "iptables table filter, chain INPUT",
    ),
    (
        "worker1",
        (
            "nft -f - <<< 'table ip fault { chain out { type filter hook forward priority 0; "
            "numgen random mod 10 < 3 drop; }; }'"
        ),
        "packets-lost",
        "table ip fault, chain out",
    ),
    (
        "worker1",
        "sysctl -qw net.ipv4.ip_forward=0",
        "forwarding-off",
        "ip_forward",
    ),
    (
        "worker1",
        "ip route del 10.244.1.0/24",
        "route-missing",
        "route to 10.244.1.0/24",
    ),
    (
        "worker1",
        "ip route add blackhole 10.244.1.2/32",
        "stray-route",
        "route to 10.244.1.2",
    ),
    (
        "worker1",
        f"bridge fdb del {VTEP2} dev flannel.4096 dst {WORKER2}",
        "entry-missing",
        f"forwarding entry {VTEP2} on flannel.4096",
    ),
    (
        "worker1",
        f"bridge fdb replace {VTEP2} dev flannel.4096 dst 10.9.176.99 self permanent",
        "wrong-entry",
        f"forwarding entry {VTEP2} on flannel.4096",
    ),
    (
        "worker1",
        "ip neigh replace 10.244.1.0 lladdr 02:00:00:00:00:01 dev flannel.4096",
        "stale-neighbour",
        "neighbour 10.244.1.0 on flannel.4096",
    ),
    (
        "worker1",
        "ip link set flannel.4096 mtu 1200",
        "tunnel-mtu",
        "tunnel flannel.4096",
    ),
    (
        "worker1-p1",
        "ip link set eth0 mtu 1300",
        "pod-mtu",
        "pod worker1-p1",
    ),
    (
        "worker1-p1",
        "ip addr add 10.244.0.9/24 dev eth0 && ip addr del 10.244.0.2/24 dev eth0",
        "pod-address",
        "pod worker1-p1",
    ),
    (
        "worker1-p2",
        "ip addr add 10.244.0.2/24 dev eth0",
        "duplicate-address",
        "address 10.244.0.2 of pod worker1-p2",
    ),
    (
        "worker1",
        "ip link set cni0 down",
        "bridge-down",
        "bridge cni0",
    ),
    (
        "worker1",
        "bridge link set dev veth2 hairpin off",
        "hairpin-off",
        "port veth2 of pod worker1-p1",
    ),
    (
        "worker1",
        "tc qdisc add dev eth0 root tbf rate 1mbit burst 10k latency 50ms",
        "slowed",
        "device eth0",
    ),
    (
        "router",
        "sysctl -qw net.ipv4.ip_forward=0",
        "forwarding-off",
        "ip_forward",
    ),
]


@pytest.mark.parametrize("name", shipped())
def test_a_healthy_lab_shows_no_difference(
    bring_up: BringUp, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        responder_config, "PROGRAM", Path(responder_config.__file__).with_name("responder.py")
    )
    intent = registry.intent(make_plan(load(find(name))))
    running = bring_up(intent, name=f"seen-{name}")
    assert [str(one) for one in differences(running)] == []
    running.provider.destroy(running.lab)


@pytest.mark.parametrize(
    ("machine", "break_", "kind", "what"),
    BROKEN,
    ids=[f"{case[2]}-{number}" for number, case in enumerate(BROKEN)],
)
def test_what_is_broken_is_told_first(
    small: Running, machine: str, break_: str, kind: str, what: str
) -> None:
    bash(small, machine, break_)
    node = machine.partition("-")[0]
    found = differences(small, node)
    assert [(one.kind, one.node, one.object) for one in found][:1] == [(kind, node, what)]


def bash(running: Running, machine: str, command: str) -> None:
    running.shell(machine, f"bash -euc {quoted(command)}")


def quoted(command: str) -> str:
    return "'" + command.replace("'", "'\"'\"'") + "'"


def test_what_it_says_mends_it(small: Running) -> None:
    bash(small, "worker1", f"bridge fdb del {VTEP2} dev flannel.4096 dst {WORKER2}")
    (found,) = differences(small)
    bash(small, found.node, found.shows)
    bash(small, found.node, found.mends)
    assert differences(small) == ()


def test_a_stale_backend_and_service_rules_that_are_gone_are_told(small: Running) -> None:
    saved = small.shell("worker2", "nft list ruleset")
    rules = saved.replace("dnat to 10.244.0.2:8080", "dnat to 10.244.0.77:8080")
    small.shell("worker2", f"nft flush ruleset; printf %s {quoted(rules)} | nft -f -")
    stale = differences(small)
    small.shell("worker2", "nft flush ruleset")
    gone = differences(small)
    small.shell("worker2", f"printf %s {quoted(saved)} | nft -f -")
    assert {one.kind for one in stale} == {"stale-backend"}
    assert {one.node for one in stale} == {"worker2"}
    assert [one.kind for one in gone] == ["service-rules-missing", "masquerade-missing"]
    assert differences(small) == ()


def test_masquerade_that_is_missing_is_told_and_mended(small: Running) -> None:
    saved = small.shell("worker1", "nft list ruleset")
    small.shell("worker1", "nft flush chain ip kube-proxy nat-postrouting")
    found = differences(small)
    small.shell("worker1", f"nft flush ruleset; printf %s {quoted(saved)} | nft -f -")
    assert [one.kind for one in found] == ["masquerade-missing", "masquerade-missing"]
    assert differences(small) == ()


def test_counters_that_rise_name_the_hop(small: Running) -> None:
    before = seen(small)["worker2"]
    bash(small, "worker1", _tunnel(port=4790))
    small.ask("worker1-p1", "10.244.1.2", 8080)
    after = seen(small)["worker2"]
    bash(small, "worker1", _tunnel())
    assert "Udp NoPorts" in {one.name for one in rises(before, after)}
    assert differences(small) == ()


def test_two_nodes_with_one_mac_are_told(bring_up: BringUp) -> None:
    running = bring_up(cluster("host-gateway", pods=1, windows=0), name="twins")
    bash(running, "worker2", f"ip link set eth0 address {mac(str(NODES[1]))}")
    kinds = {one.kind for one in differences(running)}
    assert {"link-mac", "duplicate-mac"} <= kinds
