"""A lab by one of Kubeinit's spec strings, as a user types it."""

from __future__ import annotations

import json
import shlex

import pytest

pytestmark = pytest.mark.slow

SPEC = "k8s-libvirt-1-3-2,cluster_nodes_spec=[[when_group=compute_nodes,os=windows]]"


def test_a_spec_string_goes_wherever_a_scenario_does(lab):
    lab.run("validate", SPEC)
    planned = lab.run("plan", SPEC).stdout
    assert "hypervisor-02" in planned
    assert "windows" in planned
    assert '"scenario": "k8s-libvirt-1-3-2"' in lab.run("show", SPEC).stdout
    lab.run("up", SPEC)
    lab.run("test", "k8s-libvirt-1-3-2", "-m", "api")
    status = json.loads(lab.run("status", "k8s-libvirt-1-3-2", "--json").stdout)
    assert status["state"] == "up"
    assert (
        status["again"] == f"lab up {shlex.quote(SPEC)} --name k8s-libvirt-1-3-2 --provider netns"
    )
    lab.run("down", "k8s-libvirt-1-3-2")
