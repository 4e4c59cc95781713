"""An image in the cache: the directory it is, and the file ``image.json`` in it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from lab.imaging.golden import Firmware, FirstBoot, GoldenImage, Storage
from lab.imaging.job import DISK, INITRD, KERNEL, Built
from lab.imaging.recipe import Recipe
from lab.scenario.scenario import Os
from lab.state.files import read_regular

FILE = "image.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Facts:
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


_READER = TypeAdapter(Facts)


def write(directory: Path, recipe: Recipe, digest: str, built: Built) -> None:
    """Write ``image.json`` beside what a builder has made."""
    facts = Facts(
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


def facts(directory: Path) -> Facts:
    """What an image's ``image.json`` says.

    Raises
    ------
    OSError, ValueError
        When there is none, or when it is damaged.

    """
    return _READER.validate_json(read_regular(directory / FILE))


def damage(directory: Path) -> str | None:
    """What is wrong with an image in the cache, in words; None if every file is whole."""
    try:
        sizes = facts(directory).sizes
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


def image(directory: Path) -> GoldenImage:
    """The image in a directory of the cache."""
    known = facts(directory)
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
