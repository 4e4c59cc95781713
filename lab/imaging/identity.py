"""What an image is: the digest of its recipe, templates and inputs.

Programs that it is built with are not in it: an image that is there needs none of them, and an
update of this machine makes no other image.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from lab.imaging import inputs
from lab.imaging.job import Say
from lab.imaging.recipe import Recipe
from lab.inventory.inventory import Inventory
from lab.plan.canonical import plain

FORMAT = 1
"""Raised when this code makes another image of the same inputs."""


def digest(recipe: Recipe, inventory: Inventory, downloads: Path, say: Say) -> str:
    """Hex SHA-256 of all that goes into the image; looks its inputs up where it must.

    Raises
    ------
    PreflightError
        When an input is missing: what, and how to get it.

    """
    return _digest(recipe, inputs.found(recipe, inventory, downloads, say))


def known(recipe: Recipe, inventory: Inventory, downloads: Path) -> str | None:
    """The same, or None where that would ask another host, or an input is missing."""
    there = inputs.known(recipe, inventory, downloads)
    return None if there is None else _digest(recipe, there)


def _digest(recipe: Recipe, there: Mapping[str, str]) -> str:
    hashed = {name: sha256(content).hexdigest() for name, content in recipe.templates.items()}
    parts = {
        "format": FORMAT,
        "recipe": plain(replace(recipe, templates={}, path="", summary="")),
        "templates": hashed,
        "inputs": dict(there),
    }
    text = json.dumps(parts, separators=(",", ":"), sort_keys=True)
    return sha256(text.encode()).hexdigest()
