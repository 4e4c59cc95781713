"""A lab by one of Kubeinit's spec strings, as a user types it."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow

SPEC = "k8s-libvirt-1-3-2,compute.os=linux"


def test_a_spec_string_goes_wherever_a_scenario_does(lab):
    lab.run("validate", SPEC)
    assert "hypervisor-02" in lab.run("plan", SPEC).stdout
    assert '"scenario": "k8s-libvirt-1-3-2"' in lab.run("show", SPEC).stdout
    lab.run("up", SPEC)
    lab.run("test", "k8s-libvirt-1-3-2", "-m", "api")
    status = json.loads(lab.run("status", "k8s-libvirt-1-3-2", "--json").stdout)
    assert status["state"] == "up"
    assert status["again"] == f"lab up {SPEC} --name k8s-libvirt-1-3-2 --provider netns"
    lab.run("down", "k8s-libvirt-1-3-2")
