"""What can be told of a lab of namespaces, whole, half up, or gone."""

from __future__ import annotations

import os
import subprocess

import pytest
from netns_intents import cluster
from netns_running import Running

from lab._deadline import Deadline
from lab.providers.netns import machine as netns_machine
from lab.providers.netns import namespaces
from lab.providers.netns.provider import NetnsProvider
from lab.providers.netns.windows import realise
from lab.shells.shell import Completed


def pieces(running: Running) -> dict[str, str]:
    pieces = running.provider.evidence(running.lab, running.intent)
    return {piece.path: piece.content.decode() for piece in pieces}


def test_every_namespace_shows_its_own_network(overlay):
    found = pieces(overlay)
    for path, text in found.items():
        if path != "holder.txt":
            assert text.startswith("$ "), "the command that shows it"
            assert "no such program" not in text, path
    for machine in overlay.intent.machines:
        for interface in machine.interfaces:
            assert interface.mac in found[f"{machine.name}/addresses.txt"]
        for route in machine.routes:
            assert route.destination in found[f"{machine.name}/routes.txt"]
        for entry in machine.forwarding:
            assert f"{entry.mac} dev {entry.device}" in found[f"{machine.name}/forwarding.txt"]
        for service in machine.translation.services if machine.translation else ():
            assert service.address in found[f"{machine.name}/nftables.txt"]
        for pod in machine.pods:
            assert pod.address in found[f"{pod.name}/addresses.txt"]
            own = realise(overlay.intent).machine(machine.name)
            resolver = next(one.resolver for one in own.pods if one.name == pod.name)
            assert namespaces.resolver_text(resolver) in found[f"{pod.name}/resolv.conf"]
            assert ":8080" in found[f"{pod.name}/sockets.txt"]
    assert "ipv4/ip_forward:1" in found["worker1/sysctls.txt"]
    assert "responder: running" in found["holder.txt"]


def test_a_missing_lab_is_recorded_as_missing(new_lab):
    pieces = list(NetnsProvider().evidence(new_lab(), cluster("overlay")))
    assert [piece.path for piece in pieces] == ["holder.txt"]
    assert b"no holder process" in pieces[0].content


def test_a_lab_with_only_a_holder_lists_its_missing_namespaces(new_lab):
    lab, intent, provider = new_lab(), cluster("overlay"), NetnsProvider()
    provider.steps(lab, intent)[0].run()
    try:
        found = {piece.path: piece.content.decode() for piece in provider.evidence(lab, intent)}
    finally:
        provider.destroy(lab)
    assert "responder: not running" in found["holder.txt"]
    assert found["worker1/missing.txt"] == "there is no such namespace\n"
    named = [path.partition("/")[0] for path in found if "/" in path]
    pods = [name for name in named if "-p" in name]
    assert pods
    assert named[-len(pods) :] == pods, "machines come before pods, for which there may be no time"


def test_a_hanging_query_is_recorded_and_the_others_are_collected(bring_up, monkeypatch):
    running = bring_up(cluster("overlay"))
    seconds = f"{os.getpid()}4711"
    monkeypatch.setattr(netns_machine, "EVIDENCE_SECONDS", 2.0)
    hang = ("sh", "-c", f'[ "$(hostname)" != worker1 ] || exec sleep {seconds}')
    monkeypatch.setattr(
        netns_machine, "LOOKS", (("first.txt", ("echo", "first")), ("slow.txt", hang))
    )
    found = pieces(running)
    assert found["worker1/first.txt"] == "$ echo first\nfirst\n"
    assert "not done within 2 s" in found["worker1/slow.txt"]
    assert "not done" not in found["worker2/slow.txt"]
    Deadline(20).wait(
        "waiting for the look to end",
        lambda: (
            subprocess.run(
                ["pgrep", "-fx", f"sleep {seconds}"], capture_output=True, check=False
            ).returncode
        ),
        until=lambda code: code == 1,
    )


@pytest.mark.parametrize(
    ("done", "text"),
    [
        (Completed(0, "out\n", ""), "$ ip 'a b'\nout\n"),
        (Completed(1, "", "no\n"), "$ ip 'a b'\nno\n# exit code 1\n"),
        (Completed(0, "out\n", "odd\n"), "$ ip 'a b'\nout\nodd\n# exit code 0\n"),
    ],
)
def test_a_transcript_reads_as_a_terminal_does(done, text):
    assert netns_machine.transcript(["ip", "a b"], done) == text
