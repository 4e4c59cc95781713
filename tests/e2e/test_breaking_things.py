"""Something is broken on purpose, and exactly the right cells turn."""

from __future__ import annotations

import json

import pytest
from lab_command import Lab

from lab.scenario.loader import find

pytestmark = pytest.mark.slow


def red(lab: Lab, *selection: str, code: int = 1) -> list[dict[str, object]]:
    result = json.loads(lab.run("test", "overlay", *selection, "--json", code=code).stdout)
    return [c for c in result["cells"] if c["verdict"] not in {"pass", "known-limit"}]


def ends(cell: dict[str, object]) -> str:
    return str(cell["id"])


def test_dead_uplink_of_one_node_turns_its_row_and_column_and_nothing_else(lab):
    lab.run("up", "overlay")
    lab.run("exec", "overlay", "worker2", "--", "ip", "link", "set", "eth0", "down")
    cells = red(lab, "-m", "pod-pod")
    assert cells
    for cell in cells:
        names = [part.rsplit("-", 1)[0] for part in ends(cell).split("/")[1:3]]
        assert names.count("worker2") == 1, cell["id"]
        assert cell["verdict"] == "fail"
    assert len(cells) == 2 * 2 * 8 * 4


def test_mtu_hole_fails_large_and_passes_small(lab):
    lab.run("up", "overlay")
    limit = (
        "table netdev t { chain c { type filter hook ingress device eth0 priority 0;"
        " meta length gt 1400 drop; }; }"
    )
    lab.run("exec", "overlay", "worker1", "--", "nft", limit)
    cells = red(lab, "-m", "pod-pod")
    assert cells
    for cell in cells:
        assert ends(cell).endswith("-large"), cell["id"]
        assert "worker1-" in ends(cell)


def test_service_rules_gone_on_one_node_fail_its_pods_and_its_node_ports(lab):
    lab.run("up", "overlay")
    tables = lab.run("exec", "overlay", "worker1", "--", "nft", "list", "tables").stdout
    name = tables.split()[2]
    lab.run("exec", "overlay", "worker1", "--", "nft", "delete", "table", "ip", name)
    assert all("/worker1-" in ends(cell) for cell in red(lab, "-m", "pod-service"))
    for cell in red(lab, "-m", "nodeport"):
        assert "/worker1:" in ends(cell), cell["id"]


def test_wrong_pod_behind_a_service_is_a_failure_though_it_answers(lab):
    lab.run("up", "overlay")
    rule = (
        "table ip t { chain c { type nat hook prerouting priority -150;"
        " ip daddr 10.96.0.20 meta l4proto { tcp, udp } dnat to 10.244.1.4:8080; }; }"
    )
    lab.run("exec", "overlay", "worker2", "--", "nft", rule)
    cells = red(lab, "-m", "pod-service")
    assert cells
    for cell in cells:
        assert "/worker2-" in ends(cell)
        assert "/to-master-p1/" in ends(cell)
        assert "worker1-p1" in str(cell["detail"])


def test_windows_rule_switched_off_makes_its_cells_unexpected_passes(lab):
    for rule, family in (
        ("WIN-NODEPORT-SELF", "nodeport"),
        ("WIN-HOST-SERVICE", "node-service"),
        ("WIN-OVERLAY-NODE-POD", "node-pod"),
        ("WIN-DNS-PARTIAL", "dns"),
    ):
        lab.run("up", "overlay", "--windows-rule-off", rule)
        cells = red(lab, "-m", family)
        assert cells, rule
        assert {cell["verdict"] for cell in cells} == {"unexpected-pass"}
        lab.run("down", "overlay")


def test_an_exception_whose_cells_work_is_one_group_and_no_packet_is_followed(lab, tmp_path):
    file = tmp_path / "firewalled.yaml"
    text = find("overlay").read_text().replace("name: overlay", "name: firewalled", 1)
    when = "exceptions:\n  - when: {families: [nodeport], entry_node: worker1, source: win1*}\n"
    file.write_text(f"{text}{when}    fails: timeout\n    reason: it is so\n")
    lab.run("up", str(file))
    lab.run("exec", "firewalled", "worker2", "--", "ip", "link", "set", "eth0", "down")
    done = lab.run("test", "firewalled", "-k", "nodeport and (win1 or worker2)", code=1)
    line = len(text.splitlines()) + 2
    rule = f"exception 1 (firewalled.yaml:{line}) no longer holds: "
    assert done.stdout.count(rule) == 1
    assert "(node-link-down)" in done.stdout
    assert "none found" not in done.stdout
    explained = lab.run("explain", "firewalled", "win1-p1", "worker1:to-win1-p2", code=1).stdout
    assert f"from:   firewalled.yaml:{line}\n" in explained
    assert explained.endswith("no longer holds: remove it or narrow its 'when'\n")
    assert "lab gather" not in explained
