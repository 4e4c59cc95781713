"""One image being built: what a builder is given, and what it gives back."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab._errors import PreflightError
from lab.imaging.installer import Installer
from lab.imaging.recipe import Recipe
from lab.inventory.inventory import Inventory

Say = Callable[[str], None]
DISK = "disk.qcow2"
UNFINISHED = "unfinished.json"
"""While it is in the scratch directory, a build that was interrupted goes on there."""
KERNEL = "kernel"
INITRD = "initrd"
MORE_ROOM = "free some space ('lab image gc'), or put 'cache' of the inventory on a larger disk"
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Job:
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
        """See that the cache has room.

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
    """What a builder has put into the scratch directory, beside the disk."""

    arguments: str = ""
    """Kernel command line, where kernel and initramfs are there."""
    virtual_gib: int | None = None
    """Size that a guest sees; None for the recipe's."""
    packages: tuple[str, ...] = ()
    """``name version`` of what is installed, where it is known."""
