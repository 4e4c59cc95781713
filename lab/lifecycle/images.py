"""The golden images of this user, as the inventory has it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from lab._errors import LabError
from lab.imaging.golden import GoldenImage, cache_directory
from lab.imaging.image_store import ImageStore
from lab.imaging.windows.credentials import secret_of
from lab.imaging.windows.settings import Firmware
from lab.inventory import loader
from lab.inventory.inventory import STOCK
from lab.lifecycle import bundles
from lab.lifecycle.interruption import terminable
from lab.providers.libvirt import connection, images, installer
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.images import Copies
from lab.providers.libvirt.installer import LeftSites, LibvirtInstaller


def image_store() -> ImageStore:
    """The image store; installers run on the first hypervisor, which is connected when one does.

    Raises
    ------
    InventoryError
        When the inventory is wrong.

    """
    inventory = loader.current(os.environ, Path.cwd()) or STOCK
    hypervisors = [*inventory.hypervisors.values()]
    installer = (
        LibvirtInstaller(Host(hypervisors[0]), inventory.management.cidr) if hypervisors else None
    )
    return ImageStore(cache_directory(inventory), inventory, installer)


def build(
    name: str,
    given: Mapping[str, Path],
    say: Callable[[str], None],
    firmware: Firmware | None = None,
) -> GoldenImage:
    """The image of that name, built if it is not there.

    Parameters
    ----------
    given
        Files of this machine by the names of the recipe's inputs; known from now on.
    firmware
        How its machines start, from now on; None for what was chosen last, or the recipe's.

    Raises
    ------
    LabError
        As :meth:`ImageStore.get` does; PreflightError when a file is not there, or asked by nobody.
    Terminated
        On SIGTERM, which is treated as Ctrl-C is.

    """
    there = image_store()
    if firmware is not None:
        there.choose(name, firmware)
    if given:
        there.remember(name, given)
    with terminable():
        return there.get(name, say)


def has_product_key(name: str) -> bool:
    """Whether the inventory says where the product key of an image of Windows is."""
    inventory = loader.current(os.environ, Path.cwd()) or STOCK
    return secret_of(name, inventory.secrets) is not None


def collect_sites(yes: bool, say: Callable[[str], None]) -> tuple[LeftSites, ...]:
    """Find, and with ``yes`` remove, installations that were interrupted and nobody goes on with.

    A hypervisor that cannot be reached is said and left.
    """
    inventory = loader.current(os.environ, Path.cwd()) or STOCK
    alive = image_store().is_building
    found: list[LeftSites] = []
    for hypervisor in inventory.hypervisors.values():
        if hypervisor.line == 0 and not connection.is_here(hypervisor):
            continue
        try:
            found.append(installer.collect_sites(Host(hypervisor), alive, yes=yes))
        except LabError as error:
            say(f"note: {error.doing}: {error.happened}")
    return tuple(found)


def collect_copies(yes: bool, say: Callable[[str], None]) -> tuple[Copies, ...]:
    """Find, and with ``yes`` remove, copies on hypervisors that nobody needs any more.

    A hypervisor that cannot be reached is said and left.
    """
    inventory = loader.current(os.environ, Path.cwd()) or STOCK
    there = image_store()
    current = [listed.digest for listed in there.list() if listed.digest]
    current += bundles.media()
    media = there.media()
    found: list[Copies] = []
    for hypervisor in inventory.hypervisors.values():
        if hypervisor.line == 0 and not connection.is_here(hypervisor):
            continue
        try:
            found.append(images.collect_copies(Host(hypervisor), current, media, yes=yes))
        except LabError as error:
            say(f"note: {error.doing}: {error.happened}")
    return tuple(found)
