"""A fake provider whose machines are computers with a console, a screen and a way in by SSH."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lab.providers.fake.provider import Call, FakeProvider
from lab.providers.provider import MACHINES, Ability, LabHandle
from lab.shells.shell import Jump, Reach
from lab.topology.intent import Intent

BLANK = b"\x89PNG\r\n\x1a\n"


@dataclass
class FakeComputers(FakeProvider):
    """``said``: each machine's console output, by name."""

    abilities: frozenset[Ability] = frozenset({MACHINES})
    keyfile: Path = Path("/nowhere/key")
    host_key: str = "ssh-ed25519 AAAA"
    port: int = 22
    user: str = "root"
    jump: Jump | None = None
    said: dict[str, str] = field(default_factory=dict)

    def reaches(self, lab: LabHandle, intent: Intent) -> tuple[Reach, ...]:
        self._require(lab)
        way = (self.user, self.keyfile, self.host_key, self.port, self.jump)
        return tuple(Reach(machine.name, "127.0.0.1", *way) for machine in intent.machines)

    def console(self, lab: LabHandle, _intent: Intent, name: str) -> int:
        self.calls.append(Call("console", lab.name, name))
        return 0

    def console_log(self, lab: LabHandle, _intent: Intent, name: str) -> str:
        self.calls.append(Call("console_log", lab.name, name))
        return self.said.get(name, "")

    def screenshot(self, lab: LabHandle, _intent: Intent, name: str) -> bytes:
        self.calls.append(Call("screenshot", lab.name, name))
        return BLANK

    def suspend(self, lab: LabHandle, intent: Intent) -> tuple[str, ...]:
        self.calls.append(Call("suspend", lab.name))
        return tuple(machine.name for machine in intent.machines)
