"""Where the input of an image comes from, and what it must be. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lab.imaging.recipe import Recipe
from lab.inventory.inventory import Inventory

_LENGTHS = {64: "sha256", 128: "sha512"}
"""Hex digits of a digest to the name of its algorithm."""
_GNU = re.compile(r"^\\?([0-9a-fA-F]{64,128})\s[ *](.+)$")
_BSD = re.compile(r"^SHA\d+ \((.+)\) = ([0-9a-fA-F]{64,128})$")


@dataclass(frozen=True, slots=True)
class ImageSourceFile:
    """The input of an image that has one; neither address nor path if nobody said one."""

    url: str | None
    """As written: mirrors are not applied yet."""
    path: Path | None
    digest: str | None
    """``sha256:`` or ``sha512:`` and hex; None where it has to be looked up."""
    checksums: str | None
    """Address of the vendor's list of digests."""


@dataclass(frozen=True, slots=True)
class ImageInput:
    """One file that an image is made from."""

    name: str
    """In the image's digest; one of the recipe's own."""
    image: str
    """Whose entry in the inventory says where it is: ``[images.<image>]``."""
    what: str
    """What to get, in words."""
    optional: bool = False


FILE = "file"
"""The one input of a ``cloud`` or ``iso`` image."""
ISO = "iso"
VIRTIO = "virtio-win"
OPENSSH = "openssh"
OPENSSH_IMAGE = "openssh-windows"


def needs(recipe: Recipe) -> tuple[ImageInput, ...]:
    """All that an image is made from."""
    if recipe.cloud:
        return (ImageInput(FILE, recipe.name, f"the disk at {recipe.cloud.url}"),)
    if recipe.iso:
        return (ImageInput(FILE, recipe.name, recipe.iso.medium),)
    if recipe.windows:
        medium = ImageInput(ISO, recipe.name, recipe.windows.medium)
        drivers = ImageInput(
            VIRTIO, VIRTIO, "the virtio-win ISO, with the drivers of disk and card"
        )
        shell = ImageInput(
            OPENSSH, OPENSSH_IMAGE, "Win32-OpenSSH's OpenSSH-Win64.zip", optional=True
        )
        return (medium, *((drivers,) if recipe.windows.virtio else ()), shell)
    return ()


def of(need: ImageInput, recipe: Recipe, inventory: Inventory) -> ImageSourceFile:
    """What recipe and inventory say; the inventory's word counts more."""
    own = inventory.images.get(need.image)
    said = own.url if own else None
    parts = recipe.cloud or recipe.iso
    sha256 = (own.sha256 if own else None) or (parts.sha256 if parts else None)
    digest = f"sha256:{sha256}" if sha256 else None
    if said is None:
        cloud = recipe.cloud
        url = cloud.url if cloud else None
        return ImageSourceFile(url, None, digest, cloud.checksums if cloud else None)
    split = urlsplit(said)
    if split.scheme in {"http", "https"}:
        return ImageSourceFile(said, None, digest, None)
    return ImageSourceFile(
        None, Path(unquote(split.path) if split.scheme == "file" else said), digest, None
    )


def rewritten(url: str, mirrors: Mapping[str, str]) -> str:
    """The address that is asked instead: of the mirrors that fit, the longest."""
    fitting = [start for start in mirrors if url.startswith(start)]
    if not fitting:
        return url
    start = max(fitting, key=len)
    return mirrors[start] + url.removeprefix(start)


def listed(checksums: str, name: str) -> str | None:
    """The digest of a file in a vendor's list, GNU's form or BSD's; None if it is not in it."""
    for line in checksums.splitlines():
        if found := _GNU.match(line.strip()):
            digest, file = found.groups()
        elif found := _BSD.match(line.strip()):
            file, digest = found.groups()
        else:
            continue
        if file.rpartition("/")[2] == name and len(digest) in _LENGTHS:
            return f"{_LENGTHS[len(digest)]}:{digest.lower()}"
    return None
