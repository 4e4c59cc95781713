"""The product's own commands, with a cache, state and recipes of a test."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.imaging import recipes
from lab.imaging.golden import cache_directory
from lab.imaging.image_store import ImageStore
from lab.inventory.inventory import STOCK
from lab.providers.libvirt import installer, ownership, storage
from lab.providers.libvirt.host import Host

NAME = "windows-server-2022"
PACKAGE = Path(__file__).parents[3] / "lab"
SECONDS = 1500
"""For one command, on an emulated and busy processor."""
INVENTORY = """
cache = "{cache}"
[hypervisors.local]
uri = "qemu:///system"
acceleration = "tcg"
"""


@dataclass
class Product:
    """The unchanged ``lab`` command; ``home``: the directory that it is imported from."""

    folder: Path
    home: Path
    connected: Any

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "HYBRIDLAB_INVENTORY": str(self.folder / "lab.toml"),
            "HYBRIDLAB_STATE": str(self.folder / "state"),
            "PYTHONPATH": str(self.home),
            "COLUMNS": "100",
        }
        return {**os.environ, **own}

    @property
    def images(self) -> Path:
        return self.folder / "cache" / "images"

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "lab", *words],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        said = f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == code, said
        assert "Traceback" not in done.stderr, said
        return done

    def borrow(self, image: str) -> None:
        """Use a golden image of the user's own cache; build it there if needed."""
        found = ImageStore(cache_directory(STOCK), STOCK).get(image, print)
        target = self.images / found.disk.parent.name
        shutil.copytree(found.disk.parent, target, copy_function=_linked)

    def objects(self) -> set[str]:
        """All objects of this libvirtd, except images."""
        kinds = (
            self.connected.listAllDomains,
            self.connected.listAllNetworks,
            self.connected.listAllStoragePools,
        )
        found = {one.name() for kind in kinds for one in kind()}
        return {name for name in found if name != ownership.IMAGES_POOL and self._mine(name)}

    def _mine(self, name: str) -> bool:
        built = tuple(installer.site_token(place) for place in self.images.glob(".*.partial"))
        return name.startswith(LAB) or name.endswith(built or ("\0",))


LAB = "standin"
"""Prefix of the names of labs."""


@contextmanager
def product(
    folder: Path, connected: Any, change: Callable[[str], str] | None = None
) -> Iterator[Product]:
    """The product in a directory that QEMU can read; removed afterwards.

    ``change``: changes the recipe's text; the product is then a copy with that recipe,
    like that of a user with their own recipe.
    """
    folder.mkdir()
    for one in (folder, *folder.parents[:3]):
        one.chmod(one.stat().st_mode | 0o055)
    (folder / "lab.toml").write_text(INVENTORY.format(cache=folder / "cache"))
    home = PACKAGE.parent
    if change is not None:
        home = folder / "product"
        shutil.copytree(PACKAGE, home / "lab", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(recipes.directory(), home / "images")
        recipe = home / "images" / NAME / recipes.FILE
        recipe.write_text(change(recipe.read_text()))
    made = Product(folder, home, connected)
    before = made.objects()
    try:
        yield made
        assert made.objects() == before
    finally:
        remove_sites(connected, made.images)
        _remove_images(made)


def remove_sites(connected: Any, images: Path) -> None:
    """Remove leftovers of builds in this directory after a failed test."""
    for place in images.glob(".*.partial"):
        installer.remove_site(connected, place)


def _remove_images(made: Product) -> None:
    """Remove copies of this cache's Windows images from the hypervisor."""
    pool = Host(STOCK.hypervisors["local"])
    with pool.explain_errors("removing the test's images"):
        found = pool.connected.storagePoolLookupByName(ownership.IMAGES_POOL)
        storage.refresh(found)
        digests = [one.name.rpartition("-")[2] for one in made.images.glob(f"{NAME}-*")]
        for volume in found.listAllVolumes():
            if any(digest in volume.name() for digest in digests):
                volume.delete()


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def firmware(kind: str) -> Callable[[str], str]:
    """A change of the recipe's firmware."""
    return lambda text: re.sub(r"(?m)^firmware: .*$", f"firmware: {kind}", text)
