"""The seam to the machine in which Windows is installed: one that outlives the command.

An installation takes from half an hour to many hours, so a command that is killed must not end
it: whoever builds the same image again finds the machine, and goes on with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lab.remote.shell import WINRM_TLS_PORT, Jump

if TYPE_CHECKING:
    from lab.imaging.recipe import Architecture
    from lab.imaging.windows.settings import Firmware, Storage


@dataclass(frozen=True, slots=True)
class VendorMedium:
    """A vendor's medium: a file of this machine, used in place where possible."""

    path: Path
    sha256: str
    """By which a hypervisor that is another machine keeps it, so that it goes there once."""


@dataclass(frozen=True, slots=True)
class InstallationMachine:
    """The machine that a build asks for."""

    image: str
    """Of the recipe, for messages."""
    site: Path
    """The directory of the build: who comes with the same one means the same machine."""
    architecture: Architecture
    disk_gib: int
    memory_mib: int
    vcpus: int
    firmware: Firmware
    storage: Storage
    setup: VendorMedium
    overlay: Path | None
    """A small qcow2 file on top of ``setup``, read instead of it; None to read that itself."""
    virtio: VendorMedium | None
    answers: bytes
    """The answer medium: an ISO image. Secret."""


@dataclass(frozen=True, slots=True)
class InstallationState:
    """The machine at one moment."""

    said: bytes
    """What has come on COM1 from the asked byte on."""
    disk_bytes: int
    """That its disk takes."""
    resets: int
    """How often it was reset since this command looks at it."""
    runs: bool


@dataclass(frozen=True, slots=True)
class Address:
    """Where it is reached, once it listens."""

    address: str
    jump: Jump | None
    """The host to go through; None where this machine reaches it."""
    ssh_port: int = 22
    winrm_port: int = WINRM_TLS_PORT


class Building(Protocol):
    """A machine with all that belongs to it. All methods raise BrokenError as libvirt refuses."""

    @property
    def accelerated(self) -> bool:
        """Whether it runs on a real processor, and not an emulated one."""

    @property
    def where(self) -> str:
        """It and its hypervisor in words: ``domain 'x' on 'rack1'``."""

    def look(self, heard: int) -> InstallationState:
        """Look at it; ``heard`` is how many bytes of its console are known already."""

    def picture(self) -> bytes:
        """What its screen shows, as PNG."""

    def address(self) -> Address:
        """Where it will answer."""

    def take_answers(self) -> None:
        """Take the answer medium out of its drive, and delete it. Safe to repeat."""

    def power_off(self) -> None:
        """Pull its plug. Safe to repeat."""

    def bring_home(self, disk: Path) -> None:
        """Copy the disk of the machine, which is off, into a new file: qcow2, with no other."""

    def remove(self) -> None:
        """Take it away with all that belongs to it. Safe to repeat."""


class InstallationSite(Protocol):
    """Where such machines can be."""

    def find(self, site: Path) -> Building | None:
        """The machine that an earlier command has left for that directory; None without one."""

    def remove(self, site: Path) -> None:
        """Take away what an earlier command has left for that directory, half made or whole."""

    def begin(self, machine: InstallationMachine) -> Building:
        """Make it and start it; what an earlier command has left half made goes first.

        Raises PreflightError when the hypervisor has another processor, no room or no range, or
        cannot read a medium: what, and how to fix it. Raises BrokenError: as libvirt refuses.
        """
