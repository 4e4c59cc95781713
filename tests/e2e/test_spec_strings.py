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


def test_a_broken_spec_string_is_usage_and_makes_nothing(lab):
    for command in ("up", "plan", "show", "validate"):
        done = lab.run(command, "k8s-libvirt-1-x-2", code=2)
        assert '"x" is not a number of computes' in done.stdout + done.stderr
    assert not (lab.state / "labs").exists()


DOWN = "for link in {}; do ip link set ${{link##*/}} down; done"
LOST = {
    "everything between hypervisors": (("hypervisor-02",), "/sys/class/net/eth0"),
    "everything to and from the machines on hypervisor-02": (
        ("hypervisor-02",),
        "/sys/class/net/vnet*",
    ),
    # Its machines are dead with it: nothing works within them either.
    "everything on hypervisor-02": (("compute-01", "compute-03"), "/sys/class/net/*"),
}


@pytest.mark.parametrize("sentence", LOST)
def test_what_a_hypervisor_loses_is_one_sentence(lab, sentence):
    lab.run("up", SPEC)
    machines, links = LOST[sentence]
    for machine in machines:
        lab.run("exec", "k8s-libvirt-1-3-2", machine, "--", "sh", "-c", DOWN.format(links))
    done = lab.run("test", "k8s-libvirt-1-3-2", "-m", "pod-pod or pod-node", code=1)
    assert sentence in done.stdout
