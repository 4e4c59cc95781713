"""What a virtual machine on libvirt asks of a system other than Linux."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lab.machines.system import System
from lab.shells.shell import Shell, WindowsReach

if TYPE_CHECKING:
    import libvirt

    from lab.machines.libvirt.documents import VirtualMachine
    from lab.machines.libvirt.host import Host
    from lab.machines.libvirt.machines import MachineRecipe


class GuestSystem(System):
    """A system of guests that are cloned from a golden image."""

    first_boot_seconds: Mapping[bool, float]
    """From a clone's first boot to its shell; the key is True with KVM."""

    @abstractmethod
    def open_shell(self, reach: WindowsReach) -> Shell:
        """A shell on the machine, connected on first use."""

    @abstractmethod
    def clone_machine(
        self, host: Host, recipe: MachineRecipe, pool: libvirt.virStoragePool, disk: str
    ) -> VirtualMachine:
        """Write a clone's seed; returns the machine to define."""

    @abstractmethod
    def wait_for_boot(
        self,
        host: Host,
        recipe: MachineRecipe,
        console: Callable[[], str],
        shell: Callable[[], Shell],
    ) -> None:
        """Wait until a clone has announced its keys on its console and runs a command.

        Raises LabError with the end of the console when it does not.
        """

    @abstractmethod
    def set_clock(self, shell: Shell) -> None:
        """Set the clock of a resumed guest. Raises BrokenError when that fails."""
