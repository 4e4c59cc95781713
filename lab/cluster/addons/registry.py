"""Every network add-on: each module of this package that has an ``ADDON``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

import lab.cluster.addons
from lab.cluster.addons.addon import Addon


@cache
def addons() -> Mapping[str, Addon]:
    """The add-on of each topology that a cluster's pod network can be made for."""
    found: dict[str, Addon] = {}
    for module in iter_modules(lab.cluster.addons.__path__):
        one = getattr(import_module(f"lab.cluster.addons.{module.name}"), "ADDON", None)
        if isinstance(one, Addon):
            found |= dict.fromkeys(one.topologies, one)
    return found
