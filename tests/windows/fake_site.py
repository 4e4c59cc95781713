"""A site for installations without a hypervisor: the machine is scripted by the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import ntfs_maker

from lab._errors import BrokenError
from lab.machines.images.installation import (
    Address,
    Building,
    InstallationMachine,
    InstallationState,
)


@dataclass
class FakeMachine:
    """A machine with scripted output."""

    asked: InstallationMachine
    site: FakeSite
    console: bytearray = field(default_factory=bytearray)
    resets: int = 0
    runs: bool = True
    disk_bytes: int = 1 << 20
    has_answers: bool = True
    removed: bool = False
    on_disk: dict[str, bytes] = field(default_factory=dict)
    refuses: str = ""
    """Why it cannot be removed."""
    accelerated: bool = True
    where: str = "machine 'fake' on 'nowhere'"

    def say(self, *lines: str) -> None:
        self.console += "".join(f"{line}\r\n" for line in lines).encode()

    def look(self, heard: int) -> InstallationState:
        self.site.story(self)
        said = bytes(self.console[heard:])
        return InstallationState(said, self.disk_bytes, self.resets, self.runs)

    def picture(self) -> bytes:
        return b"\x89PNG\r\n\x1a\nnothing"

    def address(self) -> Address:
        return self.site.at

    def take_answers(self) -> None:
        self.has_answers = False

    def power_off(self) -> None:
        self.runs = False

    def bring_home(self, disk: Path) -> None:
        """A real NTFS disk, with the files that sysprep would keep from an inserted medium."""
        assert not self.runs, "a disk in use was copied"
        kept = {"Windows/Panther/unattend.xml": b"<unattend/>"} if self.has_answers else {}
        ntfs_maker.disk(disk, {"Windows/System32/x.dll": b"MZ", **kept, **self.on_disk})

    def remove(self) -> None:
        if self.refuses:
            raise BrokenError("removing the machine", self.refuses)
        self.removed = True


@dataclass
class FakeSite:
    """A site with one such machine, which stays if a command is killed."""

    at: Address
    story: Callable[[FakeMachine], None]
    """What happens to a machine between two looks at it."""
    begun: list[FakeMachine] = field(default_factory=list)
    refuses: BaseException | None = None

    @property
    def windows(self) -> FakeSite:
        """The site itself: it also represents the installer."""
        return self

    def find(self, site: Path) -> Building | None:
        return next(
            (
                machine
                for machine in self.begun
                if machine.asked.site == site and not machine.removed
            ),
            None,
        )

    def remove(self, site: Path) -> None:
        for machine in self.begun:
            machine.removed |= machine.asked.site == site

    def begin(self, machine: InstallationMachine) -> Building:
        if self.refuses is not None:
            raise self.refuses
        self.begun.append(FakeMachine(machine, self))
        return self.begun[-1]
