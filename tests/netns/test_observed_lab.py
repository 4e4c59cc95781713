"""A healthy lab shows no difference; a broken one shows where it is broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from netns_intents import NODES, cluster, mac
from netns_running import Running, scenario_intent
from observed_labs import differences, seen

from lab.facts.node import PACKETS, find_rises
from lab.providers.netns.provider import NetnsProvider
from lab.scenario.loader import shipped

pytestmark = pytest.mark.slow

CASES = Path(__file__).parents[1] / "cases" / "netns"
WORKER2 = str(NODES[2])
VTEP1, VTEP2 = (mac(end, 0x0E) for end in ("10.244.0.0", "10.244.1.0"))
VXLAN = "ip link add flannel.4096 address {mac} mtu 1450 type vxlan id {vni} dstport {port} local 10.9.176.1 dev eth0 nolearning && ip addr add 10.244.0.0/32 dev flannel.4096 && ip link set flannel.4096 up && for n in 1; do ip route add 10.244.$n.0/24 via 10.244.$n.0 dev flannel.4096 onlink; ip neigh add 10.244.$n.0 lladdr 0e:58:0a:f4:0$n:00 dev flannel.4096 nud permanent; bridge fdb add 0e:58:0a:f4:0$n:00 dev flannel.4096 dst 10.9.176.$((n+1)) self permanent; done"  # noqa: E501  one command line


SMALL = cluster("overlay", linux=2, windows=0)


@pytest.fixture
def small(new_lab):
    """A lab of its own for each way to break one."""
    running = Running(new_lab(), SMALL, NetnsProvider()).up()
    yield running
    running.provider.destroy(running.lab)


def _tunnel(vni: int = 4096, port: int = 4789) -> str:
    return "ip link del flannel.4096 && " + VXLAN.format(mac=VTEP1, vni=vni, port=port)


def _broken() -> list[tuple[str, str, str, str]]:
    """Machine, what is reported first, of which object, and the command that breaks it."""
    text = (CASES / "broken.txt").read_text(encoding="utf-8")
    for name, value in {"VTEP2": VTEP2, "WORKER2": WORKER2, "OTHER_VNI": _tunnel(4097)}.items():
        text = text.replace(f"@{name}@", value)
    lines = text.splitlines()[1:]
    heads = [line.split(" | ") for line in lines[::2]]
    return [(*head, line.strip()) for head, line in zip(heads, lines[1::2], strict=True)]  # type: ignore[misc]


BROKEN = _broken()


@pytest.mark.parametrize("name", shipped())
def test_a_healthy_lab_shows_no_difference(bring_up, name):
    running = bring_up(scenario_intent(name), name=f"seen-{name}")
    assert [str(difference) for difference in differences(running)] == []
    running.provider.destroy(running.lab)


@pytest.mark.parametrize(
    ("machine", "kind", "what", "break_"),
    BROKEN,
    ids=[f"{case[1]}-{number}" for number, case in enumerate(BROKEN)],
)
def test_the_injected_fault_is_the_first_finding(small, machine, kind, what, break_):
    bash(small, machine, break_)
    node = machine.partition("-")[0]
    found = differences(small, node)
    assert [(difference.kind, difference.node, difference.object) for difference in found][:1] == [
        (kind, node, what)
    ]


def bash(running: Running, machine: str, command: str) -> None:
    running.shell(machine, f"bash -euc {quoted(command)}")


def quoted(command: str) -> str:
    return "'" + command.replace("'", "'\"'\"'") + "'"


def test_packets_that_arrive_raise_the_counter_of_the_card(small):
    before = seen(small)["worker2"]
    small.ask("worker1-p1", "10.244.1.2", 8080)
    rises = find_rises(before, seen(small)["worker2"])
    assert ("eth0", "received", PACKETS) in {
        (rise.device, rise.direction, rise.event) for rise in rises
    }
    assert differences(small) == ()
