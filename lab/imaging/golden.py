"""A golden image: a built, generalised disk, named by the hash of all that went into it.

In the cache it is a directory, whose file ``image.json`` says what it is.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lab.inventory.inventory import Inventory
from lab.scenario.terms import Os
from lab.state.files import read_regular

if TYPE_CHECKING:
    from lab.imaging.job import Built
    from lab.imaging.recipe import Recipe

Firmware = Literal["kernel", "bios", "uefi"]
"""How it boots. ``kernel``: the hypervisor loads kernel and initrd itself (fastest)."""
FirstBoot = Literal["light", "cloud-init", "windows"]
"""Who reads the seed: the light script of our own images, cloud-init, or Windows' answer file."""

Storage = Literal["virtio", "sata"]
FILE = "image.json"
FORMAT = 1
DISK = "disk.qcow2"
KERNEL = "kernel"
INITRD = "initrd"


@dataclass(frozen=True, slots=True)
class GoldenImage:
    """One image in the cache, complete and never changed again."""

    name: str
    """The recipe's: ``debian-12``."""
    digest: str
    """Hex SHA-256 of recipe, templates and inputs."""
    os: Os
    disk: Path
    """A qcow2 file without a backing file."""
    virtual_gib: int
    """Size that the guest sees; a clone may be larger, never smaller."""
    firmware: Firmware
    kernel: Path | None
    initrd: Path | None
    arguments: str
    """Kernel command line; empty unless ``firmware`` is ``kernel``."""
    first_boot: FirstBoot
    user: str
    """Who logs in with the lab's key, and may become root without a password."""
    storage: Storage = "virtio"
    """What disk and network cards its drivers are for; ``sata`` stands for e1000e, too."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What ``image.json`` says."""

    format: int
    name: str
    digest: str
    summary: str
    os: Os
    architecture: str
    virtual_gib: int
    firmware: Firmware
    arguments: str
    first_boot: FirstBoot
    user: str
    built: float
    """Seconds since 1970."""
    packages: tuple[str, ...]
    """``name version``, where it is known."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of each file beside ``image.json``, by its name."""
    storage: Storage = "virtio"


def write_facts(directory: Path, recipe: Recipe, digest: str, built: Built) -> None:
    """Write ``image.json`` beside what a builder has made."""
    facts = ImageFacts(
        FORMAT,
        recipe.name,
        digest,
        recipe.summary,
        recipe.os,
        recipe.architecture,
        built.virtual_gib or recipe.disk_gib,
        recipe.firmware,
        built.arguments,
        recipe.first_boot,
        recipe.user,
        time.time(),
        built.packages,
        {path.name: path.stat().st_size for path in sorted(directory.iterdir())},
        "sata" if recipe.windows and not recipe.windows.virtio else "virtio",
    )
    (directory / FILE).write_text(json.dumps(asdict(facts), indent=1) + "\n", encoding="utf-8")


def read_facts(directory: Path) -> ImageFacts:
    """What an image's ``image.json`` says.

    Raises
    ------
    OSError, ValueError
        When there is none, or when it is damaged.

    """
    from pydantic import TypeAdapter  # noqa: PLC0415  most that import this module read no image

    found: ImageFacts = TypeAdapter(ImageFacts).validate_json(read_regular(directory / FILE))
    if not math.isfinite(found.built):
        raise ValueError("its date is none")
    return found


def damage(directory: Path) -> str | None:
    """What is wrong with an image in the cache, in words; None if every file is whole."""
    try:
        sizes = read_facts(directory).sizes
    except (OSError, ValueError):
        return f"'{directory / FILE}' cannot be read"
    for name, size in sizes.items():
        try:
            there = (directory / name).stat().st_size
        except (OSError, ValueError):
            return f"'{directory / name}' is gone"
        if there != size:
            return f"'{directory / name}' has {there} bytes of {size}"
    return None


def load(directory: Path) -> GoldenImage:
    """The image in a directory of the cache."""
    known = read_facts(directory)
    own_kernel = known.firmware == "kernel"
    return GoldenImage(
        name=known.name,
        digest=known.digest,
        os=known.os,
        disk=directory / DISK,
        virtual_gib=known.virtual_gib,
        firmware=known.firmware,
        kernel=directory / KERNEL if own_kernel else None,
        initrd=directory / INITRD if own_kernel else None,
        arguments=known.arguments,
        first_boot=known.first_boot,
        user=known.user,
        storage=known.storage,
    )


def cache_directory(inventory: Inventory, environment: Mapping[str, str] = os.environ) -> Path:
    """The inventory's ``cache``, or ``hybridlab`` below ``$XDG_CACHE_HOME``."""
    if inventory.cache is not None:
        return inventory.cache
    shared = environment.get("XDG_CACHE_HOME", "")
    home = Path(shared) if shared.startswith("/") else Path.home() / ".cache"
    return home / "hybridlab"
