"""``lab fault`` and ``lab heal``: written down first, and mended whatever came between."""

from __future__ import annotations

import json
import re

import pytest
from lab_command import Lab

pytestmark = pytest.mark.slow


def faults_of(lab: Lab) -> list[tuple[str, str, bool]]:
    document = json.loads(lab.run("status", "overlay", "--json").stdout)
    return [(fault["name"], fault["node"], fault["whole"]) for fault in document["faults"]]


def test_a_fault_breaks_the_lab_and_heal_repairs_it(lab):
    lab.run("up", "overlay")
    assert "every machine is as intended" in lab.run("status", "overlay", "--deep").stdout
    stdout = lab.run("fault", "overlay", "wrong-vni", "--node", "worker1").stdout
    assert "'lab heal overlay' removes it" in stdout
    (different,) = json.loads(lab.run("status", "overlay", "--deep", "--json", code=1).stdout)[
        "differences"
    ]
    assert (different["fault"], different["node"]) == ("wrong-vni", "worker1")
    assert faults_of(lab) == [("wrong-vni", "worker1", True)]
    assert "wrong-vni was put into worker1" in lab.run("status", "overlay").stdout
    cell = "pod-pod/master-p1/worker1-p1/tcp-small"
    lab.run("test", "overlay", "-k", cell, code=1)
    again = lab.run("fault", "overlay", "wrong-vni", "--node", "worker1", code=2)
    assert "the lab already has" in again.stderr
    lab.run("fault", "overlay", "route-missing", "--node", "worker1", "--peer", "worker2")
    healed = json.loads(lab.run("heal", "overlay", "--json").stdout)
    assert [one["fault"] for one in healed["mended"]] == ["route-missing", "wrong-vni"]
    lab.run("test", "overlay", "-k", cell)
    assert faults_of(lab) == []
    assert "has no fault" in lab.run("heal", "overlay").stdout


@pytest.mark.parametrize("moment", [0.25, 0.45])
def test_a_fault_killed_at_any_moment_is_fixed_by_heal(lab, moment):
    lab.run("up", "overlay")
    lab.kill_after(moment, "fault", "overlay", "wrong-vni", "--node", "worker1")
    faults = faults_of(lab)
    healed = json.loads(lab.run("heal", "overlay", "--json").stdout)
    assert [one["fault"] for one in healed["mended"]] == [name for name, _, _ in faults]
    lab.run("test", "overlay", "-k", "pod-pod/master-p1/worker1-p1")


def test_a_lab_that_was_rebuilt_since_has_nothing_to_heal(lab):
    lab.run("up", "overlay")
    lab.run("fault", "overlay", "wrong-vni", "--node", "worker1")
    lab.kill_holder()
    lab.run("up", "overlay")
    assert faults_of(lab) == []
    stdout = lab.run("heal", "overlay").stdout
    assert "was rebuilt since 'wrong-vni' on 'worker1'" in stdout
    assert "has no fault" in lab.run("heal", "overlay").stdout


def test_faults_of_a_lab_that_was_taken_down_are_forgotten(lab):
    lab.run("up", "overlay")
    lab.run("fault", "overlay", "wrong-vni", "--node", "worker1")
    lab.run("down", "overlay")
    lab.run("up", "overlay")
    assert lab.run("heal", "overlay").stdout == "lab 'overlay' has no faults\n"


def test_faults_are_listed_with_the_machines_they_can_be_done_on(lab):
    everywhere = {one["name"] for one in json.loads(lab.run("fault", "--list", "--json").stdout)}
    assert {"wrong-vni", "packet-loss", "two-nodes-one-mac"} <= everywhere
    lab.run("up", "overlay")
    document = json.loads(lab.run("fault", "--list", "overlay", "--json").stdout)
    sites = {one["name"]: [site["node"] for site in one["sites"]] for one in document}
    assert sites["outboundnat-exception-missing"] == ["win1", "win2"]
    assert "--node win1, win2" in lab.run("fault", "--list", "overlay").stdout


def test_one_fault_is_healed_and_others_of_its_machine_stay_as_they_were(lab):
    lab.run("up", "overlay")
    for words in (("wrong-vni",), ("packet-loss", "5%"), ("wrong-udp-port",), ("ip-forward-off",)):
        lab.run("fault", "overlay", *words, "--node", "worker1")
    lab.run("fault", "overlay", "ip-forward-off", "--node", "worker2")
    assert ("packet-loss 5%", "worker1", True) in faults_of(lab)
    again = lab.run("fault", "overlay", "packet-loss", "7%", "--node", "worker1", code=2)
    assert "the lab already has 'packet-loss 5%' on 'worker1'" in again.stderr

    def shown():
        links = lab.run("exec", "overlay", "worker1", "--", "ip", "-d", "link", "show").stdout
        rules = lab.run("exec", "overlay", "worker1", "--", "nft", "list", "ruleset").stdout
        forward = lab.run(
            *("exec", "overlay", "worker1", "--", "cat", "/proc/sys/net/ipv4/ip_forward")
        )
        return f"{links}{rules}forward {forward.stdout}"

    before = shown()
    assert "mod 100 < 5" in before
    assert "forward 0" in before
    healed = lab.run("heal", "overlay", "wrong-udp-port").stdout
    assert healed == "removed 'wrong-udp-port' on 'worker1'\n"
    after = shown()
    assert "mod 100 < 5" in after
    assert "forward 0" in after
    assert "dstport 4789" in after
    assert "dstport 4789" not in before
    lab.run("heal", "overlay", "ip-forward-off", "--node", "worker2")
    assert "forward 0" in shown()
    missing = lab.run("heal", "overlay", "wrong-udp-port", code=2)
    assert "the lab does not have it" in missing.stderr
    assert "'packet-loss 5%' on 'worker1'" in missing.stderr
    assert faults_of(lab) == [
        ("wrong-vni", "worker1", True),
        ("packet-loss 5%", "worker1", True),
        ("ip-forward-off", "worker1", True),
    ]
    lab.run("heal", "overlay")
    assert "every machine is as intended" in lab.run("status", "overlay", "--deep").stdout


def test_slow_link_has_a_rate_and_a_delay_only_where_the_kernel_has_netem(lab):
    lab.run("up", "overlay")
    lab.run("fault", "overlay", "slow-link", "100mbit", "--node", "worker1")
    shown = lab.run("exec", "overlay", "worker1", "--", "tc", "qdisc", "show", "dev", "eth0").stdout
    assert "rate 100Mbit" in shown
    has_netem = "tc qdisc add dev lo root netem delay 1ms && tc qdisc del dev lo root"
    able = lab.run("exec", "overlay", "worker2", "--", "sh", "-c", has_netem, code=None)
    code = 0 if able.returncode == 0 else 4
    late = lab.run("fault", "overlay", "slow-link", "20ms", "--node", "worker2", code=code)
    if code:
        assert "netem delay 20ms" in late.stderr
        assert "Specified qdisc kind is unknown" in late.stderr
    lab.run("heal", "overlay")
    assert "every machine is as intended" in lab.run("status", "overlay", "--deep").stdout


def test_fault_by_chance_is_the_same_for_the_same_number_and_another_for_another(lab):
    lab.run("up", "overlay")
    found = []
    for seed in ("1", "1", "2", "3"):
        stdout = lab.run("fault", "overlay", "--random", seed).stdout
        ((name, node, _),) = faults_of(lab)
        assert name not in stdout
        found.append((name, node))
        lab.run("heal", "overlay")
    assert found[0] == found[1]
    assert len(set(found)) > 1
    assert (
        "leave '--node'"
        in lab.run(*("fault", "overlay", "--random", "1", "--node", "worker1"), code=2).stderr
    )


def test_a_slow_link_is_below_the_floor_with_its_figure_until_it_is_healed(lab, tmp_path):
    """The floor is one that a busy machine reaches and a link of two megabits a second does not."""
    drafted = tmp_path / "floor.yaml"
    lab.run("new", "floor", "--windows", "0", "-o", str(drafted))
    text = drafted.read_text(encoding="utf-8")
    floor = "# matrix:\n#   min_throughput: 100mbit"
    assert floor in text, "the draft shows the key"
    drafted.write_text(text.replace(floor, "matrix:\n  min_throughput: 20mbit"), encoding="utf-8")
    lab.run("up", str(drafted))
    green = lab.run("test", "floor", "-m", "throughput").stdout
    assert re.search(r"Throughput: (?:from )?[\d.,]+ [GM]bit/s.*, of 2 streams", green)
    assert "TCP stream" in green
    lab.run("fault", "floor", "slow-link", "2mbit", "--node", "worker")
    red = json.loads(lab.run("test", "floor", "-m", "throughput", "--json", code=1).stdout)
    (slow,) = [cell for cell in red["cells"] if cell["verdict"] != "pass"]
    assert slow["id"] == "throughput/worker-p1/control-p1/tcp-stream"
    assert re.fullmatch(
        r"the stream carried [12]\.\d Mbit/s, not 20 Mbit/s or more", slow["detail"]
    )
    assert 1e6 < slow["attempts"][-1]["throughput"] < 3e6
    assert red["findings"][slow["finding"]]["fault"] == "slow-link"
    lab.run("heal", "floor")
    lab.run("test", "floor", "-m", "throughput")
