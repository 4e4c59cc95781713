"""A site for installations without a hypervisor: the machine is scripted by the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import ntfs_maker

from lab._errors import BrokenError
from lab.imaging.windows.machine import Address, Building, InstallationMachine, InstallationState

PICTURE = b"\x89PNG\r\n\x1a\nnothing"


@dataclass
class FakeMachine:
    """A machine with scripted output."""

    asked: InstallationMachine
    at: Address
    console: bytearray = field(default_factory=bytearray)
    resets: int = 0
    runs: bool = True
    disk_bytes: int = 1 << 20
    has_answers: bool = True
    removed: bool = False
    on_disk: dict[str, bytes] = field(default_factory=dict)
    refuses: str = ""
    """Why it cannot be removed."""
    every_look: Callable[[FakeMachine], None] = lambda _: None
    accelerated: bool = True
    where: str = "machine 'fake' on 'nowhere'"

    def say(self, *lines: str) -> None:
        self.console += "".join(f"{line}\r\n" for line in lines).encode()

    def look(self, heard: int) -> InstallationState:
        self.every_look(self)
        return InstallationState(
            bytes(self.console[heard:]), self.disk_bytes, self.resets, self.runs
        )

    def picture(self) -> bytes:
        return PICTURE

    def address(self) -> Address:
        return self.at

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
    prepare: Callable[[FakeMachine], None] = lambda _: None
    begun: list[FakeMachine] = field(default_factory=list)
    refuses: BaseException | None = None

    @property
    def windows(self) -> FakeSite:
        """The site itself: it also represents the installer."""
        return self

    def find(self, site: Path) -> Building | None:
        return next((one for one in self.begun if one.asked.site == site and not one.removed), None)

    def remove(self, site: Path) -> None:
        for one in self.begun:
            if one.asked.site == site:
                one.removed = True

    def begin(self, machine: InstallationMachine) -> Building:
        if self.refuses is not None:
            raise self.refuses
        made = FakeMachine(machine, self.at)
        self.begun.append(made)
        self.prepare(made)
        return made
