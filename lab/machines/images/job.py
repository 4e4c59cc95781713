"""One image build: a builder's input and result.

Installers run unattended in a virtual machine on some hypervisor, behind :class:`Installer`.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.machines.images.golden import Built
from lab.machines.system import System
from lab.shells.programs import MORE_ROOM

if TYPE_CHECKING:
    from lab.machines.images.inputs import ImageInputs
    from lab.machines.images.installation import InstallationSite
    from lab.machines.images.recipe import Iso, Recipe

Say = Callable[[str], None]
UNFINISHED = "unfinished.json"
"""A file in the scratch directory that lets an interrupted build continue there."""
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Installation:
    """One unattended installation."""

    recipe: Recipe
    parts: Iso
    """The recipe's section."""
    media: tuple[Path, ...]
    """ISO images, attached as CD drives in this order."""
    kernel: Path
    initrd: Path
    arguments: str
    """The kernel's command line, rendered."""
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
        """Run an installation to its end and save the finished disk as a qcow2 file.

        ``disk``: path for the finished disk; the file must not exist. ``tell``: called with each
        phase when it begins. ``console``: called with output of the serial console.

        Raises DeadlineError with the current phase and the end of the console. Raises BrokenError
        when the machine powered off without success, with the same. Raises PreflightError when the
        hypervisor has another processor, or too little room.
        """


@dataclass(frozen=True, slots=True)
class BuildJob:
    """A build."""

    inputs: ImageInputs
    scratch: Path
    """Empty; becomes the image when the builder returns."""
    installer: Installer | None

    @property
    def recipe(self) -> Recipe:
        """The image's recipe."""
        return self.inputs.recipe

    @property
    def logs(self) -> Path:
        """Directory for the console logs of builds."""
        return self.inputs.downloads.parent / "logs"

    def tell(self, phase: str) -> None:
        """Report the current phase."""
        self.inputs.tell(phase)

    @property
    def action(self) -> str:
        """The activity, for messages."""
        return f"building image '{self.recipe.name}'"

    def room(self, bytes_needed: int, why: str) -> None:
        """Check that the cache has enough disk space.

        Raises PreflightError with the free and the needed space.
        """
        status = os.statvfs(self.scratch)
        free = status.f_bavail * status.f_frsize
        if free < bytes_needed:
            raise PreflightError(
                self.action,
                f"'{self.scratch.parent}' has {free / _GIB:.1f} GiB free, and {why} takes "
                f"{bytes_needed / _GIB:.1f} GiB",
                MORE_ROOM,
            )


class BuildSystem(System):
    """A system that builds its images itself."""

    @abstractmethod
    def build_image(self, job: BuildJob) -> Built:
        """Fill the job's scratch directory; raises like the builders."""
