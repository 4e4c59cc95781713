"""``lab test --failover``: measured, told in every report, and refused where there is nothing."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
from lab_command import Lab

from lab._deadline import Deadline

pytestmark = pytest.mark.slow


def test_every_report_has_the_failover(lab):
    lab.run("up", "upstream-vrrp")
    done = lab.run("test", "upstream-vrrp", "--failover", "-k", "pod-pod and tcp-small")
    assert "gateway of node009: held by master1, then by master" in done.stdout
    assert "disconnecting master1 from its networks" in done.stderr
    run = next((lab.state / "labs/upstream-vrrp/runs").iterdir())
    failover = json.loads((run / "result.json").read_text())["failover"]
    assert failover["well"]
    assert failover["lost"] == "master1"
    assert failover["longest_seconds"]["away"] > 1.0
    assert len(failover["away"]["silences"]) == 12
    suite = ET.parse(run / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    properties = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert properties["failover"] == "well"
    assert float(properties["failover_seconds"] or 0) > 1.0
    assert 'id="failover"' in (run / "report.html").read_text()
    again = lab.run("test", "upstream-vrrp", "-k", "nodeport and tcp-small")
    assert "Not as expected" not in again.stdout, "the matrix knows who holds the gateways now"


def test_a_failover_that_is_killed_is_fixed_by_the_next_command(lab):
    cell = "pod-pod/node009-p1/node001-p1/tcp-small"
    lab.run("up", "upstream-vrrp")
    process = lab.start("test", "upstream-vrrp", "--failover", "-k", cell)
    try:
        Deadline(60).wait("a machine being cut off", lambda: cut_off(lab), until=bool, every=0.1)
    finally:
        process.kill()
        process.communicate(timeout=30)
    status = lab.run("status", "upstream-vrrp")
    assert "cut-off was put into master1" in status.stdout
    assert "'lab heal upstream-vrrp' removes it" in status.stdout
    again = lab.run("test", "upstream-vrrp", "-k", cell)
    assert "master1 was left off its networks by a killed failover test" in again.stderr
    assert cut_off(lab) == []
    linux = "pod-pod/node001-p1/master1-p1/tcp-small"
    assert "1 pass" in lab.run("test", "upstream-vrrp", "-k", linux).stdout


def cut_off(lab: Lab) -> list[str]:
    """Machines that are written down as off their networks, wholly; others may hold the lab."""
    said, _ = lab.start("status", "upstream-vrrp", "--json").communicate(timeout=30)
    faults = json.loads(said)["faults"]
    return [fault["node"] for fault in faults if fault["name"] == "cut-off" and fault["whole"]]


def test_a_lab_without_a_gateway_is_refused_before_anything_is_probed(lab):
    lab.run("up", "overlay")
    done = lab.run("test", "overlay", "--failover", code=2)
    assert "topology 'overlay' has no gateway that could fail over" in done.stderr
    assert "a lab of scenario upstream-vrrp" in done.stderr
    assert not list((lab.state / "labs/overlay").glob("runs/*"))
