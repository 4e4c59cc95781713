"""The bundles of this user, as the inventory has it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from lab._errors import BrokenError, LabError, UsageError
from lab.cluster import rules
from lab.cluster.bundle import directory, medium, upstream
from lab.cluster.bundle.catalogue import SYSTEMS
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.bundle.store import BundleStore, CollectedBundles
from lab.imaging.golden import cache_directory
from lab.inventory import loader
from lab.inventory.inventory import STOCK, Inventory
from lab.providers.libvirt import placement
from lab.providers.provider import LabHandle
from lab.scenario.terms import Os
from lab.scenario.versions import SUPPORTED
from lab.state import store as journal
from lab.state.directory import state_directory


def store() -> BundleStore:
    """The store.

    Raises
    ------
    InventoryError
        When the inventory is wrong.

    """
    return BundleStore(cache_directory(_inventory()))


def create(
    kubernetes: str | None,
    source: Path | None,
    systems: Sequence[Os],
    say: Callable[[str], None],
    add_ons: Sequence[str] = (),
) -> Manifest:
    """Make a bundle, from a directory or from upstream's releases.

    Parameters
    ----------
    kubernetes
        A minor or a patch version; None for what the directory has, or the newest minor.
    source
        A directory; None for upstream.
    systems
        Operating systems of nodes; empty for all, or those that the directory has.
    add_ons
        Network add-ons to fetch beside flannel.

    Raises
    ------
    UsageError
        When there is no add-on of one of those names.

    """
    for name in add_ons:
        if name not in rules.add_ons():
            known = ", ".join(rules.add_ons())
            raise UsageError(
                "making a bundle",
                f"there is no network add-on '{name}' beside flannel",
                f"one of {known}",
            )
    inventory = _inventory()
    there = BundleStore(cache_directory(inventory))
    if source is not None:
        return directory.create(there, source, systems, kubernetes, say)
    reached = upstream.web(inventory)
    minor = kubernetes or SUPPORTED[-1]
    return upstream.create(there, reached, minor, systems or SYSTEMS, say, add_ons)


def chosen(digest: str | None) -> Manifest:
    """The bundle of that digest, or the only one.

    Raises
    ------
    UsageError
        When there is none, or none is named and there are several.

    """
    there = store()
    if digest is not None:
        return there.get(digest)
    found = there.all()
    if len(found) == 1:
        return found[0]
    names = ", ".join(one.short for one in found)
    raise UsageError(
        "looking for the bundle",
        f"there are several: {names}" if found else "there is none",
        "name one of them" if found else "lab bundle create",
    )


def verify(digest: str | None, say: Callable[[str], None]) -> int:
    """Read every byte of that bundle, or of each; how many there are.

    Raises
    ------
    UsageError
        When there is none of that digest.
    PreflightError, BrokenError
        When it is damaged. Of several the others are read all the same.

    """
    there = store()
    asked = [digest] if digest is not None else [one.digest for one in there.list()]
    damaged = []
    for one in asked:
        try:
            there.verify(there.get(one), say)
        except LabError as error:
            if len(asked) == 1:
                raise
            say(str(error))
            damaged.append(f"'{one}'")
    if damaged:
        what = "is damaged" if len(damaged) == 1 else "are damaged"
        raise BrokenError(
            f"verifying {len(asked)} bundles",
            f"{' and '.join(damaged)} {what}",
            "do for each what is said above",
        )
    return len(asked)


def collect(yes: bool) -> CollectedBundles:
    """Find, and with ``yes`` remove, bundles that nobody needs; those of this user's labs stay."""
    labs = journal.Store(state_directory(os.environ))
    decided = (
        placement.load_layout(LabHandle(row.name, labs.lab_directory(row.name), row.token))
        for row in labs.labs()
    )
    return store().gc({one.bundle for one in decided if one and one.bundle}, yes)


def media() -> tuple[str, ...]:
    """Identities of the media that the bundles there are make."""
    return tuple(medium.identity(one, system) for one in store().all() for system in SYSTEMS)


def _inventory() -> Inventory:
    return loader.current(os.environ, Path.cwd()) or STOCK
