"""The golden images of this user, as the inventory has it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from lab._errors import LabError
from lab.imaging.library import Library
from lab.inventory import loader
from lab.inventory.inventory import STOCK
from lab.providers.libvirt import connection, image_copies
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.image_copies import Copies
from lab.providers.libvirt.installing import LibvirtInstaller
from lab.providers.libvirt.provider import cache_directory


def library() -> Library:
    """The library; installers run on the first hypervisor, which is connected when one does.

    Raises
    ------
    InventoryError
        When the inventory is wrong.

    """
    inventory = loader.current(os.environ, Path.cwd()) or STOCK
    hypervisors = inventory.hypervisors
    installer = (
        LibvirtInstaller(Host(hypervisors[0]), inventory.management) if hypervisors else None
    )
    return Library(cache_directory(inventory), inventory, installer)


def collect_copies(yes: bool, say: Callable[[str], None]) -> tuple[Copies, ...]:
    """Find, and with ``yes`` remove, copies on hypervisors that nobody needs any more.

    A hypervisor that cannot be reached is said and left.
    """
    inventory = loader.current(os.environ, Path.cwd()) or STOCK
    current = [listed.digest for listed in library().list() if listed.digest]
    found: list[Copies] = []
    for hypervisor in inventory.hypervisors:
        if hypervisor.line == 0 and not connection.is_here(hypervisor):
            continue
        try:
            found.append(image_copies.collect(Host(hypervisor), current, yes=yes))
        except LabError as error:
            say(f"note: {error.doing}: {error.happened}")
    return tuple(found)
