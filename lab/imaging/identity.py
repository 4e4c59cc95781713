"""What an image is: the digest of its recipe, templates, inputs and tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from lab.imaging import inputs, tools
from lab.imaging.job import Say
from lab.imaging.recipe import Kind, Recipe
from lab.inventory.inventory import Inventory
from lab.plan.canonical import plain

FORMAT = 1
"""Raised when this code makes another image of the same inputs."""
_TOOLS: Mapping[Kind, tuple[str, ...]] = {
    "bootstrap": ("mmdebstrap", "mke2fs", "qemu-img"),
    "cloud": ("qemu-img",),
    "iso": ("qemu-img",),
    "windows": ("qemu-img",),
}
"""Programs whose version may show in the image."""


def digest(recipe: Recipe, inventory: Inventory, downloads: Path, say: Say) -> str:
    """Hex SHA-256 of all that goes into the image; looks its inputs up where it must.

    Raises
    ------
    PreflightError
        When an input or a program is missing: what, and how to get it.

    """
    tools.need(f"making image '{recipe.name}'", *_TOOLS[recipe.kind])
    return _digest(recipe, inputs.found(recipe, inventory, downloads, say), _versions(recipe))


def known(recipe: Recipe, inventory: Inventory, downloads: Path) -> str | None:
    """The same, or None where that would ask another host, or a program or input is missing."""
    there, versions = inputs.known(recipe, inventory, downloads), _versions(recipe)
    return (
        _digest(recipe, there, versions) if there is not None and all(versions.values()) else None
    )


def _versions(recipe: Recipe) -> Mapping[str, str]:
    """Of every program: ``"7.2"`` of ``"7.2.22"``, a security update makes no other image."""
    named = {name: tools.version(name) for name in _TOOLS[recipe.kind]}
    return {name: ".".join(version.split(".")[:2]) for name, version in named.items()}


def _digest(recipe: Recipe, there: Mapping[str, str], versions: Mapping[str, str]) -> str:
    hashed = {name: sha256(content).hexdigest() for name, content in recipe.templates.items()}
    parts = {
        "format": FORMAT,
        "recipe": plain(replace(recipe, templates={}, path="", summary="")),
        "templates": hashed,
        "inputs": dict(there),
        "tools": dict(versions),
    }
    text = json.dumps(parts, separators=(",", ":"), sort_keys=True)
    return sha256(text.encode()).hexdigest()
