"""``lab test --failover``: measured, told in every report, and refused where there is nothing."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

from lab_command import Lab


def test_every_report_has_the_failover(lab: Lab) -> None:
    lab.run("up", "upstream-vrrp")
    done = lab.run("test", "upstream-vrrp", "--failover", "-k", "pod-pod and tcp-small")
    assert "gateway of node009: held by master1, then by master" in done.stdout
    assert "master1 is taken off its networks" in done.stderr
    run = next((lab.state / "labs/upstream-vrrp/runs").iterdir())
    found = json.loads((run / "result.json").read_text())["failover"]
    assert found["well"]
    assert found["lost"] == "master1"
    assert found["longest_seconds"]["away"] > 1.0
    assert len(found["away"]["silences"]) == 12
    suite = ET.parse(run / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    properties = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert properties["failover"] == "well"
    assert float(properties["failover_seconds"] or 0) > 1.0
    assert 'id="failover"' in (run / "report.html").read_text()
    again = lab.run("test", "upstream-vrrp", "-k", "nodeport and tcp-small")
    assert "Not as expected" not in again.stdout, "the matrix knows who holds the gateways now"


def test_a_lab_without_a_gateway_is_refused_before_anything_is_probed(lab: Lab) -> None:
    lab.run("up", "overlay")
    done = lab.run("test", "overlay", "--failover", code=2)
    assert "topology 'overlay' has no gateway that could fail over" in done.stderr
    assert "a lab of scenario upstream-vrrp" in done.stderr
    assert not list((lab.state / "labs/overlay").glob("runs/*"))
