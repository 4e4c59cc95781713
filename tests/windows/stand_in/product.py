"""The product's own commands, with a cache, state and recipes of a test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from real_lab import RealLab, objects

from lab.inventory.inventory import STOCK
from lab.machines.images.golden import cache_directory
from lab.machines.images.image_store import ImageStore
from lab.machines.libvirt import installer, ownership, storage
from lab.machines.libvirt.host import Host

NAME = "windows-server-2022"
INVENTORY = """
cache = "{cache}"
[hypervisors.local]
uri = "qemu:///system"
acceleration = "tcg"
"""


@dataclass(frozen=True)
class Product(RealLab):
    """The ``lab`` command, with a cache of its own."""

    folder: Path = field(default_factory=Path)
    connected: Any = None
    places: set[Path] = field(default_factory=set)
    """Directories of builds that were seen."""

    @property
    def images(self) -> Path:
        return self.folder / "cache" / "images"

    def borrow(self, image: str) -> None:
        """Use a golden image of the user's own cache; build it there if needed."""
        golden_image = ImageStore(cache_directory(STOCK), STOCK).get(image, print)
        target = self.images / golden_image.disk.parent.name
        shutil.copytree(golden_image.disk.parent, target, copy_function=_linked)

    def objects(self) -> set[str]:
        """Objects of this cache's builds, and of labs called like :data:`LAB`."""
        self.places.update(self.images.glob(".*.partial"))
        built = tuple(map(installer.site_token, self.places))
        found = {one.partition(" ")[2] for one in objects(self.connected, "")}
        return {one for one in found if one.startswith(LAB) or one.endswith(built)}

    def collected(self, *, yes: bool) -> tuple[str, ...]:
        """Sites that 'lab image gc' finds, without its look at copies that others may need."""
        store = ImageStore(self.folder / "cache", STOCK)
        store.gc((), yes)
        host = Host(STOCK.hypervisors["local"])
        return installer.collect_sites(host, store.is_building, yes=yes).names


LAB = "standin"
"""Prefix of the names of labs."""


@contextmanager
def product(folder: Path, connected: Any) -> Iterator[Product]:
    """The product in a directory that QEMU can read; removed afterwards."""
    folder.mkdir()
    for parent in (folder, *folder.parents[:3]):
        parent.chmod(parent.stat().st_mode | 0o055)
    (folder / "lab.toml").write_text(INVENTORY.format(cache=folder / "cache"))
    made = Product(folder / "state", folder / "lab.toml", folder=folder, connected=connected)
    before = made.objects()
    try:
        yield made
        assert made.objects() == before
    finally:
        for place in made.images.glob(".*.partial"):
            installer.remove_site(connected, place)
        _remove_images(made)


def _remove_images(made: Product) -> None:
    """Remove copies of this cache's Windows images from the hypervisor."""
    digests = [path.name.rpartition("-")[2] for path in made.images.glob(f"{NAME}-*")]
    pool = Host(STOCK.hypervisors["local"])
    with pool.explain_errors("removing the test's images"):
        storage_pool = (
            pool.connected.storagePoolLookupByName(ownership.IMAGES_POOL) if digests else None
        )
        if storage_pool is None:
            return
        storage.refresh(storage_pool)
        for volume in storage_pool.listAllVolumes():
            if any(digest in volume.name() for digest in digests):
                volume.delete()


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
