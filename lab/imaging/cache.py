"""Where images, bundles and downloads are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from lab.inventory.inventory import Inventory


def cache_directory(inventory: Inventory, environment: Mapping[str, str] = os.environ) -> Path:
    """The inventory's ``cache``, or ``hybridlab`` below ``$XDG_CACHE_HOME``."""
    if inventory.cache is not None:
        return inventory.cache
    shared = environment.get("XDG_CACHE_HOME", "")
    home = Path(shared) if shared.startswith("/") else Path.home() / ".cache"
    return home / "hybridlab"
