"""The seam to whatever runs an installer unattended: a virtual machine on some hypervisor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from lab._deadline import Deadline
from lab.imaging.recipe import Architecture, Phase
from lab.imaging.windows.machine import Site


@dataclass(frozen=True, slots=True)
class Installation:
    """One unattended installation."""

    name: str
    """Of the image, for messages and the names of objects."""
    architecture: Architecture
    disk_gib: int
    media: tuple[Path, ...]
    """ISO images, attached as CD drives in this order."""
    kernel: Path
    initrd: Path
    arguments: str
    memory_mib: int
    vcpus: int
    firmware: Literal["bios", "uefi"]
    network: bool
    """Whether the installer needs to reach a package mirror."""
    done: str
    """The console says so before the machine goes down, or the installation has failed."""
    phases: tuple[Phase, ...]
    deadline: Deadline


class Installer(Protocol):
    """Runs installations."""

    @property
    def windows(self) -> Site:
        """Where Windows is installed, in a machine that outlives the command."""

    def install(
        self,
        installation: Installation,
        disk: Path,
        tell: Callable[[str], None],
        console: Callable[[bytes], None],
    ) -> None:
        """Run it to its end and bring the finished disk home as a qcow2 file.

        Parameters
        ----------
        disk
            Where the finished disk goes; there is no such file yet.
        tell
            Is told every phase as it is entered.
        console
            Is told what comes on the serial console.

        Raises
        ------
        DeadlineError
            With the phase it was in and the end of the console.
        BrokenError
            When the machine went down without saying that it is done; the same.
        PreflightError
            When the hypervisor has another processor, or no room.

        """
