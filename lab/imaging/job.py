"""One image being built: what a builder is given, and what it gives back.

What runs an installer unattended is a virtual machine on some hypervisor, behind a seam.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.remote.programs import MORE_ROOM

if TYPE_CHECKING:
    from lab.imaging.recipe import Architecture, Phase, Recipe
    from lab.imaging.windows.machine import InstallationSite
    from lab.inventory.inventory import Inventory

Say = Callable[[str], None]
UNFINISHED = "unfinished.json"
"""While it is in the scratch directory, a build that was interrupted goes on there."""
_GIB = 1 << 30


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
    def windows(self) -> InstallationSite:
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
            Called with every phase as it is entered.
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


@dataclass(frozen=True, slots=True)
class BuildJob:
    """A build."""

    recipe: Recipe
    scratch: Path
    """Empty; becomes the image when the builder returns."""
    downloads: Path
    """What is kept between builds."""
    inventory: Inventory
    installer: Installer | None
    say: Say

    def tell(self, phase: str) -> None:
        """Say what is being done now."""
        self.say(f"image '{self.recipe.name}': {phase}")

    @property
    def doing(self) -> str:
        """For messages."""
        return f"building image '{self.recipe.name}'"

    def room(self, bytes_needed: int, why: str) -> None:
        """Check that the cache has room.

        Raises
        ------
        PreflightError
            With what is free and what is needed.

        """
        status = os.statvfs(self.scratch)
        free = status.f_bavail * status.f_frsize
        if free < bytes_needed:
            raise PreflightError(
                self.doing,
                f"'{self.scratch.parent}' has {free / _GIB:.1f} GiB free, and {why} takes "
                f"{bytes_needed / _GIB:.1f} GiB",
                MORE_ROOM,
            )


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a builder, beside the files in the scratch directory."""

    arguments: str = ""
    """Kernel command line, where kernel and initramfs are there."""
    virtual_gib: int | None = None
    """Size that a guest sees; None for the recipe's."""
    packages: tuple[str, ...] = ()
    """``name version`` of what is installed, where it is known."""
