"""The provider in memory whose machines are computers: consoles, screens and addresses made up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lab.providers.fake.provider import Call, FakeProvider
from lab.providers.provider import MACHINES, Ability, LabHandle
from lab.remote.shell import Jump, Reach
from lab.topology.intent import Intent

BLANK = b"\x89PNG\r\n\x1a\n"
"""How every PNG begins; enough of a picture for who does not look at it."""


@dataclass
class FakeComputers(FakeProvider):
    """A :class:`~lab.providers.provider.RealMachines` too.

    ``keyfile``, ``host_key``, ``port``, ``user``, ``jump``: of every machine's reach. ``said``:
    what a machine's console has said, by its name.
    """

    abilities: frozenset[Ability] = frozenset({MACHINES})
    keyfile: Path = Path("/nowhere/key")
    host_key: str = "ssh-ed25519 AAAA"
    port: int = 22
    user: str = "root"
    jump: Jump | None = None
    said: dict[str, str] = field(default_factory=dict)

    def reaches(self, lab: LabHandle, intent: Intent) -> tuple[Reach, ...]:
        """Every machine at 127.0.0.1. BrokenError if the lab is not there."""
        self._require(lab)
        return tuple(
            Reach(
                machine.name,
                "127.0.0.1",
                self.user,
                self.keyfile,
                self.host_key,
                self.port,
                self.jump,
            )
            for machine in intent.machines
        )

    def console(self, lab: LabHandle, intent: Intent, name: str) -> int:  # noqa: ARG002  one world is as good as another
        """Noted, and left at once."""
        self.calls.append(Call("console", lab.name, name))
        return 0

    def console_log(self, lab: LabHandle, intent: Intent, name: str) -> str:  # noqa: ARG002  the same
        """What it was told to have said."""
        self.calls.append(Call("console_log", lab.name, name))
        return self.said.get(name, "")

    def screenshot(self, lab: LabHandle, intent: Intent, name: str) -> bytes:  # noqa: ARG002  the same
        """The beginning of a picture."""
        self.calls.append(Call("screenshot", lab.name, name))
        return BLANK

    def suspend(self, lab: LabHandle, intent: Intent) -> tuple[str, ...]:
        """Noted."""
        self.calls.append(Call("suspend", lab.name))
        return tuple(machine.name for machine in intent.machines)
