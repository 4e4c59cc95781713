"""``links`` of a scenario: made by ``lab up``, kept by ``lab repair``, and refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab_command import Lab

pytestmark = pytest.mark.slow

SLOW = "  - {node: worker, rate: 10mbit}\n"


def draft(lab: Lab, path: Path, links: str, more: str = "") -> str:
    lab.run("new", path.stem, "--windows", "0", "-o", str(path))
    text = path.read_text(encoding="utf-8")
    path.write_text(f"{text}\nlinks:\n{links}{more}", encoding="utf-8")
    return str(path)


def queues(lab: Lab, name: str, node: str) -> str:
    return lab.run("exec", name, node, "--", "tc", "qdisc", "show").stdout


def rate_of(lab: Lab, name: str, sender: str) -> float:
    document = json.loads(lab.run("test", name, "-m", "throughput", "--json").stdout)
    (cell,) = [
        cell for cell in document["cells"] if cell["id"].startswith(f"throughput/{sender}-p1/")
    ]
    return float(cell["attempts"][-1]["throughput"])


def test_a_slow_link_is_as_intended_in_both_directions_until_it_is_changed(lab, tmp_path):
    scenario = draft(lab, tmp_path / "slow.yaml", SLOW, "matrix:\n  min_throughput: 100mbit\n")
    planned = lab.run("plan", scenario)
    assert "link of worker: sends and receives at 10mbit" in planned.stderr
    assert "links" in planned.stdout, "the step"
    lab.run("up", scenario)
    status = lab.run("status", "slow", "--deep").stdout
    assert "is up; link of worker: sends and receives at 10mbit" in status
    assert "every machine is as intended" in status
    assert 7e6 < rate_of(lab, "slow", "worker") < 11e6
    assert 7e6 < rate_of(lab, "slow", "control") < 11e6
    green = lab.run("test", "slow", "-k", "pod-pod")
    assert "sends and receives at 10mbit" in green.stdout

    lab.run("fault", "slow", "slow-link", "2mbit", "--node", "worker")
    assert "rate 2Mbit" in lab.run("status", "slow", "--deep", code=1).stdout
    lab.run("heal", "slow")
    assert "every machine is as intended" in lab.run("status", "slow", "--deep").stdout
    lab.run("exec", "slow", "worker", "--", "tc", "qdisc", "del", "dev", "eth0", "root")
    lab.run("status", "slow", "--deep", code=1)
    lab.run("repair", "slow", "worker")
    assert queues(lab, "slow", "worker").count("tbf") == 2
    assert "every machine is as intended" in lab.run("status", "slow", "--deep").stdout


def test_a_link_that_the_scenario_moves_to_another_node_is_as_new_on_both(lab, tmp_path):
    scenario = draft(lab, tmp_path / "moved.yaml", SLOW)
    lab.run("up", scenario)
    text = Path(scenario).read_text(encoding="utf-8")
    other = "  - {node: control, loss: 50%, direction: receives}\n"
    Path(scenario).write_text(text.replace(SLOW, other), encoding="utf-8")
    lab.run("up", scenario)
    assert "tbf" not in queues(lab, "moved", "worker")
    rules = lab.run(
        "exec", "moved", "control", "--", "nft", "list", "table", "netdev", "slow-links"
    )
    assert "numgen random mod 1000 < 500" in rules.stdout
    lost = json.loads(lab.run("test", "moved", "-k", "udp and pod-pod", "--json", code=1).stdout)
    red = [cell for cell in lost["cells"] if cell["verdict"] in {"fail", "flaky"}]
    assert red
    assert all("the link of 'control' loses packets" in cell["detail"] for cell in red)
    assert "every machine is as intended" in lab.run("status", "moved", "--deep").stdout


def test_a_delay_is_refused_by_name_where_the_kernel_has_no_netem(lab, tmp_path):
    scenario = draft(lab, tmp_path / "late.yaml", SLOW)
    lab.run("up", scenario)
    netem = "tc qdisc add dev lo root netem delay 1ms && tc qdisc del dev lo root"
    able = lab.run("exec", "late", "worker", "--", "sh", "-c", netem, code=None).returncode == 0
    text = Path(scenario).read_text(encoding="utf-8")
    Path(scenario).write_text(text.replace("rate: 10mbit", "delay: 20ms"), encoding="utf-8")
    late = lab.run("up", scenario, code=0 if able else 4)
    if able:
        assert queues(lab, "late", "worker").count("delay 20ms") == 2
    else:
        assert "no netem, needed for the delay of a link" in late.stderr
        assert "sch_netem" in late.stderr
        assert queues(lab, "late", "worker").count("rate 10Mbit") == 2, "nothing was changed"
