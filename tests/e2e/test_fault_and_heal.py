"""``lab fault`` and ``lab heal``: written down first, and mended whatever came between."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
from lab_command import Lab

pytestmark = pytest.mark.slow


def faults_of(lab: Lab) -> list[tuple[str, str, bool]]:
    document = json.loads(lab.run("status", "overlay", "--json").stdout)
    return [(one["name"], one["node"], one["whole"]) for one in document["faults"]]


def test_a_fault_breaks_the_lab_and_heal_mends_it(lab: Lab) -> None:
    lab.run("up", "overlay")
    assert "every machine is as intended" in lab.run("status", "overlay", "--deep").stdout
    said = lab.run("fault", "overlay", "wrong-vni", "--node", "worker1").stdout
    assert "'lab heal overlay' takes it out" in said
    (different,) = json.loads(lab.run("status", "overlay", "--deep", "--json", code=1).stdout)[
        "differences"
    ]
    assert (different["fault"], different["node"]) == ("wrong-vni", "worker1")
    assert faults_of(lab) == [("wrong-vni", "worker1", True)]
    assert "wrong-vni on worker1" in lab.run("status", "overlay").stdout
    cell = "pod-pod/master-p1/worker1-p1/tcp-small"
    lab.run("test", "overlay", "-k", cell, code=1)
    again = lab.run("fault", "overlay", "wrong-vni", "--node", "worker1", code=2)
    assert "is already in" in again.stderr
    lab.run("fault", "overlay", "route-missing", "--node", "worker1", "--peer", "worker2")
    healed = json.loads(lab.run("heal", "overlay", "--json").stdout)
    assert [one["fault"] for one in healed["mended"]] == ["route-missing", "wrong-vni"]
    lab.run("test", "overlay", "-k", cell)
    assert faults_of(lab) == []
    assert "has no fault" in lab.run("heal", "overlay").stdout


@pytest.mark.parametrize("moment", [0.25, 0.45])
def test_a_fault_killed_at_any_moment_is_fixed_by_heal(lab: Lab, moment: float) -> None:
    lab.run("up", "overlay")
    process = lab.start("fault", "overlay", "wrong-vni", "--node", "worker1")
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    there = faults_of(lab)
    healed = json.loads(lab.run("heal", "overlay", "--json").stdout)
    assert [one["fault"] for one in healed["mended"]] == [name for name, _, _ in there]
    lab.run("test", "overlay", "-k", "pod-pod/master-p1/worker1-p1")


def test_a_lab_that_was_rebuilt_since_has_nothing_to_heal(lab: Lab) -> None:
    lab.run("up", "overlay")
    lab.run("fault", "overlay", "wrong-vni", "--node", "worker1")
    lab.run("down", "overlay")
    lab.run("up", "overlay")
    assert faults_of(lab) == []
    said = lab.run("heal", "overlay").stdout
    assert "was rebuilt since 'wrong-vni' on 'worker1'" in said
    assert "has no fault" in lab.run("heal", "overlay").stdout


def test_what_cannot_be_done_is_told_and_changes_nothing(lab: Lab) -> None:
    lab.run("up", "overlay")
    wrong = lab.run("fault", "overlay", "wrong-vnni", code=2)
    assert "did you mean 'wrong-vni'" in wrong.stderr
    no_tunnel = lab.run("fault", "overlay", "wrong-vni", "--node", "router", code=2)
    assert "it needs a VXLAN tunnel, which 'router' has not" in no_tunnel.stderr
    assert "--node master, worker1" in no_tunnel.stderr
    assert "there is no lab named 'other'" in lab.run("heal", "other", code=2).stderr
    assert "name a lab and a fault" in lab.run("fault", "overlay", code=2).stderr
    assert faults_of(lab) == []


def test_faults_are_listed_with_the_machines_they_can_be_done_on(lab: Lab) -> None:
    everywhere = {one["name"] for one in json.loads(lab.run("fault", "--list", "--json").stdout)}
    assert {"wrong-vni", "packet-loss", "two-nodes-one-mac"} <= everywhere
    lab.run("up", "overlay")
    there = json.loads(lab.run("fault", "--list", "overlay", "--json").stdout)
    sites = {one["name"]: [site["node"] for site in one["sites"]] for one in there}
    assert sites["outboundnat-exception-missing"] == ["win1", "win2"]
    assert "--node win1, win2" in lab.run("fault", "--list", "overlay").stdout
