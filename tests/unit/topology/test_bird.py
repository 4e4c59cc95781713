"""BIRD's configuration, against files; and that it waits for the routes it must learn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from shipped import intent_of

from lab.topology import bird
from lab.topology.intent import MachineIntent, Route, Speaker

CASES = Path(__file__).parents[2] / "cases" / "daemons"
GOLDEN = {
    "bird-mesh": ("calico-bgp", "worker1"),
    "bird-node-of-tor": ("calico-bgp-tor", "win1"),
    "bird-tor": ("calico-bgp-tor", "router"),
    "bird-overlay": ("upstream-vrrp", "node001"),
}


def speaker_of(machine: MachineIntent) -> Speaker:
    assert machine.speaker is not None
    return machine.speaker


@pytest.mark.parametrize("case", GOLDEN)
def test_configuration(case):
    scenario, name = GOLDEN[case]
    machine = intent_of(scenario).machine(name)
    (daemon,) = (one for one in machine.daemons if one.name == "bird")
    assert daemon.files[0].text == (CASES / f"{case}.conf").read_text(encoding="utf-8")


def test_it_is_ready_once_every_route_is_there_and_not_before():
    routes = (
        Route("10.244.0.0/26", "eth0", "10.30.0.10"),
        Route("10.244.0.64/26", "eth0", "10.30.0.1"),
    )
    speaker = Speaker("10.30.0.11", 64512, (), (), 9)
    pattern = bird.daemon(speaker, "10.244.0.0/16", routes).ready.pattern
    there = (
        "10.244.0.64/26 via 10.30.0.1 dev eth0 metric 32 \n"
        "10.244.0.0/26 via 10.30.0.10 dev eth0 metric 32 \n"
    )
    assert re.search(pattern, there, re.MULTILINE)
    one, other = there.splitlines()
    wrong = "unreachable 10.244.0.0/26 metric 32"
    for text in ("", one, other, f"{one}\n{wrong}", f"{one}1\n", there.replace(".10 ", ".11 ")):
        assert not re.search(pattern, text, re.MULTILINE), text


def test_without_a_route_to_learn_it_is_ready_when_it_is_up():
    ready = bird.daemon(Speaker("10.30.0.11", 64512, (), (), 9), "10.244.0.0/16", ()).ready
    assert re.search(ready.pattern, "BIRD 2\nDaemon is up and running\n", re.MULTILINE)


@pytest.mark.parametrize("name", ["calico-bgp", "calico-bgp-tor", "upstream-vrrp"])
def test_every_session_has_its_other_end(name):
    machines = intent_of(name).machines
    ends = {
        (machine.name, session.machine): (session.address, session.asn)
        for machine in machines
        if machine.speaker
        for session in machine.speaker.sessions
    }
    for near, far in ends:
        speaker = speaker_of(intent_of(name).machine(near))
        assert ends[far, near] == (speaker.address, speaker.asn)
    assert len(ends) == {"calico-bgp": 20, "calico-bgp-tor": 10, "upstream-vrrp": 12}[name]


def test_what_a_tor_is_told_it_passes_on_and_a_node_does_not():
    intent = intent_of("calico-bgp-tor")
    nodes = [machine for machine in intent.machines if machine.kind == "node"]
    assert speaker_of(intent.machine("router")).passes_on
    assert not any(speaker_of(node).passes_on for node in nodes)
    assert len({speaker_of(node).asn for node in nodes}) == len(nodes)
    assert {route.via for node in nodes for route in node.routes if route.by} == {"10.30.0.1"}
