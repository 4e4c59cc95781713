"""The interface to the machine in which Windows is installed; it outlives the command.

An installation takes from half an hour to many hours, so killing the command must not end it:
another build of the same image finds the machine and continues.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lab.shells.shell import WINRM_TLS_PORT, Jump

if TYPE_CHECKING:
    from lab.machines.images.recipe import Recipe, Windows


@dataclass(frozen=True, slots=True)
class VendorMedium:
    """A vendor's medium: a file on this machine, used in place if possible."""

    path: Path
    sha256: str
    """Name under which a remote hypervisor stores it, so that it is copied only once."""


@dataclass(frozen=True, slots=True)
class InstallationMachine:
    """Specification of a build's machine."""

    recipe: Recipe
    parts: Windows
    """The recipe's section."""
    site: Path
    """The build's directory, which identifies the machine."""
    setup: VendorMedium
    overlay: Path | None
    """A small qcow2 overlay on ``setup``; None to use ``setup`` itself."""
    answers: bytes
    """The answer medium: an ISO image. Secret."""


@dataclass(frozen=True, slots=True)
class InstallationState:
    """The machine at one moment."""

    output: bytes
    """Output on COM1 from the requested byte on."""
    disk_bytes: int
    """Bytes that its disk takes."""
    resets: int
    """Number of resets since this command began to look."""
    runs: bool


@dataclass(frozen=True, slots=True)
class Address:
    """Where the machine can be reached once it listens."""

    address: str
    jump: Jump | None
    """The host to go through; None if it can be reached directly."""
    ssh_port: int = 22
    winrm_port: int = WINRM_TLS_PORT


class Building(Protocol):
    """A machine with all that belongs to it. All methods raise BrokenError on libvirt errors."""

    @property
    def accelerated(self) -> bool:
        """Whether it runs with hardware virtualisation."""

    @property
    def where(self) -> str:
        """Machine and hypervisor for messages: ``domain 'x' on 'rack1'``."""

    def look(self, heard: int) -> InstallationState:
        """The current state; ``heard`` is the number of console bytes already read."""

    def picture(self) -> bytes:
        """The screen as PNG."""

    def address(self) -> Address:
        """Its address."""

    def take_answers(self) -> None:
        """Eject the answer medium and delete it. Safe to repeat."""

    def power_off(self) -> None:
        """Power it off hard. Safe to repeat."""

    def bring_home(self, disk: Path) -> None:
        """Copy the disk of the powered-off machine to a new qcow2 file without a backing file."""

    def remove(self) -> None:
        """Remove it with everything that belongs to it. Safe to repeat."""


class InstallationSite(Protocol):
    """A place for such machines."""

    def find(self, site: Path) -> Building | None:
        """The machine that an earlier command left for this directory, or None."""

    def remove(self, site: Path) -> None:
        """Remove what an earlier command left for this directory, complete or not."""

    def begin(self, machine: InstallationMachine) -> Building:
        """Create a machine and start it; removes incomplete remains of an earlier command first.

        Raises PreflightError when the hypervisor has another processor, no room or no address
        range, or cannot read a medium, with the fix. Raises BrokenError on libvirt errors.
        """
