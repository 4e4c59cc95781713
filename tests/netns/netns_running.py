"""A running lab, for the tests."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab._deadline import Deadline
from lab.explain.faults.registry import FaultCommand
from lab.lifecycle.faults import batch_commands, script
from lab.plan.planner import make_plan
from lab.providers.netns import namespaces, protocol
from lab.providers.netns.holders import HolderEntry, enter_holder
from lab.providers.netns.provider import NetnsProvider
from lab.providers.provider import LabHandle
from lab.scenario.loader import find, load
from lab.topology import registry
from lab.topology.intent import Intent

LOST_SECONDS = 0.3
"""Timeout if no answer is expected: between namespaces, answers take less than 1 ms."""
PROGRAMS = Path(__file__).with_name("programs")


class Running:
    """A running lab, and probes in it."""

    def __init__(self, lab: LabHandle, intent: Intent, provider: NetnsProvider) -> None:
        self.lab, self.intent, self.provider = lab, intent, provider

    def up(self) -> Running:
        """Run every step."""
        for step in self.provider.steps(self.lab, self.intent):
            step.run()
        return self

    @property
    def entry(self) -> HolderEntry:
        return enter_holder(self.lab)

    def ask(  # noqa: PLR0913, PLR0917  an exchange
        self,
        source: str,
        address: str,
        port: int,
        kind: str = "tcp",
        source_port: int = 0,
        seconds: float = 10.0,
    ) -> str:
        """``"NAME CLIENT"`` from the responder, or ``"timeout"``, ``"refused"``, ...

        The timeout suits a busy machine; use :data:`LOST_SECONDS` if no answer is expected.
        """

        def inside(_: object) -> str:
            with namespaces.inside(source):
                return _asked(address, port, kind, source_port, seconds)

        deadline = Deadline(seconds + 20)
        return self.entry.call(f"asking from {source}", inside, deadline, answer=str)

    def shell(self, machine: str, command: str) -> str:
        done = self.provider.machine(self.lab, self.intent, machine).run(
            ["sh", "-c", command], Deadline(30)
        )
        assert done.code == 0, done
        return done.stdout

    def run(self, commands: tuple[FaultCommand, ...]) -> None:
        """Run the commands of a fault."""
        for place, lines in batch_commands(commands):
            self.shell(place, script(lines))


def _asked(address: str, port: int, kind: str, source_port: int, seconds: float) -> str:
    family = socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, family) as client:
        client.settimeout(seconds)
        try:
            if source_port:
                client.bind(("0.0.0.0", source_port))
            client.connect((address, port))
            if kind == "tcp":
                client.send(protocol.get_request(address, port))
                reply = protocol.read_reply(client.recv(2000))
                assert reply
                return f"{reply.endpoint} {reply.client.partition(':')[0]}"
            with suppress(PermissionError):  # dropped or rejected by the sender's own rules
                client.send(b"?")
            name, seen = client.recv(200).decode().split()[2:4]
            return f"{name} {seen.partition(':')[0]}"
        except TimeoutError:
            return "timeout"
        except ConnectionRefusedError:
            return "refused"


NewLab = Callable[..., LabHandle]
BringUp = Callable[..., Running]


def scenario_intent(name: str, **changes: Any) -> Intent:
    """The Intent of a shipped scenario, with changed keys and topology parameters."""
    scenario = load(find(name))
    topology = scenario.topology.replace(**changes.pop("topology", {}))
    return registry.intent(make_plan(scenario.replace(topology=topology, **changes)))
