"""The golden images and bundles of this user, configured by the inventory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from lab._errors import BrokenError, LabError, PreflightError, UsageError
from lab.inventory import loader
from lab.inventory.inventory import STOCK, Inventory
from lab.lifecycle.interruption import terminable
from lab.lifecycle.open_lab import OpenLab
from lab.machines.bundle import directory, medium, upstream
from lab.machines.bundle.images import read_archive
from lab.machines.bundle.manifest import SYSTEMS, Manifest, add_on_versions
from lab.machines.bundle.store import BundleStore, Scratch
from lab.machines.images.golden import CollectedEntries, GoldenImage, cache_directory, remove, size
from lab.machines.images.image_store import ImageStore
from lab.machines.images.terms import Firmware, secret_name
from lab.machines.libvirt import connection, images, installer, placement
from lab.machines.libvirt.host import Host
from lab.machines.libvirt.images import Leftovers
from lab.machines.libvirt.installer import LibvirtInstaller
from lab.machines.nspawn import layout as containers_layout
from lab.machines.nspawn import prepared
from lab.machines.nspawn.system import container_systems
from lab.providers.provider import LabHandle, find_cluster
from lab.providers.workloads import nodes
from lab.scenario.terms import Os
from lab.scenario.versions import SUPPORTED
from lab.state import store as journal
from lab.state.directory import state_directory

Say = Callable[[str], None]
T = TypeVar("T")


def store() -> BundleStore:
    """The bundle store.

    Raises InventoryError when the inventory is invalid.
    """
    return BundleStore(cache_directory(_inventory()))


def create(
    kubernetes: str | None,
    source: Path | None,
    systems: Sequence[Os],
    say: Say,
    add_ons: Sequence[str] = (),
) -> Manifest:
    """Create a bundle, from a directory or from upstream's releases.

    ``kubernetes``: a minor or a patch version; None for what the directory has, or the newest
    minor. ``source``: a directory; None for upstream. ``systems``: operating systems of nodes;
    empty for all, or those that the directory has. ``add_ons``: to fetch in addition to flannel.

    Raises UsageError when an add-on is unknown.
    """
    for name in add_ons:
        if name not in add_on_versions():
            known = ", ".join(add_on_versions())
            raise UsageError(
                "making a bundle",
                f"there is no network add-on '{name}' beside flannel",
                f"one of {known}",
            )
    inventory = _inventory()
    bundles = BundleStore(cache_directory(inventory))
    if source is not None:
        return directory.create(bundles, source, systems, kubernetes, say)
    reached = upstream.web(inventory)
    minor = kubernetes or SUPPORTED[-1]
    return upstream.create(bundles, reached, minor, systems or SYSTEMS, say, add_ons)


def chosen(digest: str | None) -> Manifest:
    """The bundle with this digest; for None, the only one.

    Raises UsageError when there is none, or ``digest`` is None and there are several.
    """
    bundles = store()
    if digest is not None:
        return bundles.get(digest)
    manifests = bundles.all()
    if len(manifests) == 1:
        return manifests[0]
    names = ", ".join(manifest.short for manifest in manifests)
    raise UsageError(
        "looking for the bundle",
        f"there are several: {names}" if manifests else "there is none",
        "give one of them" if manifests else "lab bundle create",
    )


def verify(digest: str | None, say: Say) -> int:
    """Verify the bundle with this digest, or for None all bundles; return their number.

    All are verified even if one is damaged.

    Raises UsageError when there is no bundle with this digest. Raises PreflightError, BrokenError
    when one is damaged.
    """
    bundles = store()
    digests = [digest] if digest is not None else [listed.digest for listed in bundles.list()]
    damaged = []
    for name in digests:
        try:
            bundles.verify(bundles.get(name), say)
        except LabError as error:
            if len(digests) == 1:
                raise
            say(str(error))
            damaged.append(f"'{name}'")
    if damaged:
        verb = "is damaged" if len(damaged) == 1 else "are damaged"
        raise BrokenError(
            f"verifying {len(digests)} bundles",
            f"{' and '.join(damaged)} {verb}",
            "follow the hint of each",
        )
    return len(digests)


def collect(yes: bool) -> CollectedEntries:
    """Find, and with ``yes`` remove, unneeded bundles; those of this user's labs are kept.

    What was prepared of them for system containers goes with them, and so do files of other systems
    than Linux that neither a lab nor a new one would use.
    """
    in_use, held = set[str](), set[Path]()
    with journal.Store(state_directory(os.environ)) as labs:
        for row in labs.labs():
            lab = LabHandle(row.name, labs.lab_directory(row.name), row.token)
            decided = placement.load_layout(lab) or containers_layout.load(lab)
            in_use |= {decided.bundle} if decided and decided.bundle else set()
            if isinstance(decided, containers_layout.NspawnLayout):
                held |= {*decided.prepared_for.values()}
                held |= {layer.parent for layer in decided.layers.values()}
    cache = cache_directory(_inventory())
    bundles = BundleStore(cache)
    collected = bundles.gc(in_use, yes)
    gone = {Path(name).name for name in collected.paths}
    kept = [manifest for manifest in bundles.all() if manifest.short not in gone]
    more = [*prepared.find_unused(cache, kept)]
    for system in container_systems():
        more += system.unused(cache, kept, held)
    took = sum(map(size, more))
    for path in more if yes else ():
        remove(path)
    names = (str(unused.relative_to(cache)) for unused in more)
    return CollectedEntries((*collected.paths, *names), collected.bytes + took, yes)


def _inventory() -> Inventory:
    return loader.current(os.environ, Path.cwd()) or STOCK


def image_store() -> ImageStore:
    """The image store. Installers run on the first hypervisor, which is connected on first use.

    Raises InventoryError when the inventory is invalid.
    """
    inventory = _inventory()
    hypervisors = [*inventory.hypervisors.values()]
    installer = (
        LibvirtInstaller(Host(hypervisors[0]), inventory.management.cidr) if hypervisors else None
    )
    return ImageStore(cache_directory(inventory), inventory, installer)


def build(
    name: str,
    given: Mapping[str, Path],
    say: Say,
    firmware: Firmware | None = None,
) -> GoldenImage:
    """The image of this name, built if it does not exist.

    ``given``: local files by the name of the recipe's input; remembered. ``firmware``: firmware of
    its machines; remembered. None for the last choice, or the recipe's.

    Raises LabError as :meth:`ImageStore.get` does; PreflightError when a file does not exist, or is
    no input of the recipe. Raises Terminated on SIGTERM.
    """
    golden_images = image_store()
    if firmware is not None:
        golden_images.choose(name, firmware)
    if given:
        golden_images.remember(name, given)
    with terminable():
        return golden_images.get(name, say)


def has_product_key(name: str) -> bool:
    """Whether the inventory has a product key for this Windows image."""
    inventory = _inventory()
    return secret_name(name, inventory.secrets) is not None


def collect_sites(yes: bool, say: Say) -> tuple[Leftovers, ...]:
    """Find, and with ``yes`` remove, interrupted installations that no build continues."""
    alive = image_store().is_building
    return _on_hypervisors(lambda host: installer.collect_sites(host, alive, yes=yes), say)


def collect_copies(yes: bool, say: Say) -> tuple[Leftovers, ...]:
    """Find, and with ``yes`` remove, copies on hypervisors that are no longer needed."""
    golden_images = image_store()
    current = [listed.digest for listed in golden_images.list() if listed.digest]
    current += (medium.identity(manifest, os) for manifest in store().all() for os in SYSTEMS)
    media = golden_images.media()
    return _on_hypervisors(lambda host: images.collect_copies(host, current, media, yes=yes), say)


def import_images(opened: OpenLab, archives: Sequence[Path], say: Say) -> tuple[str, ...]:
    """Import archives of images on the nodes of a lab's cluster; returns the images' names.

    Raises UsageError when the lab has no cluster; PreflightError when an archive is damaged, not
    one of images, or has none for the lab's nodes; nothing is imported then. Raises BrokenError
    when a node does not take one.
    """
    cluster = find_cluster(opened.provider, opened.handle, opened.intent)
    if cluster is None:
        raise UsageError(
            f"importing images into lab '{opened.name}'",
            "its pods are network namespaces, and it has no cluster",
            f"'lab down {opened.name}', then 'lab up' with '--provider nspawn --only linux', or "
            "with '--provider libvirt'",
        )
    names: dict[str, None] = {}
    systems: dict[Path, frozenset[Os]] = {}
    of_nodes = {machine.os for machine in nodes(opened.intent)}
    for archive in archives:
        with tempfile.TemporaryDirectory(prefix="hybridlab-import-") as directory:
            images = tuple(read_archive(archive, str(archive), Scratch(Path(directory))))
        systems[archive] = frozenset(image.os for image in images)
        if not systems[archive] & of_nodes:
            raise _no_taker(archive, systems[archive])
        names |= dict.fromkeys(image.name for image in images if image.os in of_nodes)
    with opened.in_use(f"lab image import {opened.name}", say):
        opened.require_running(healthy=False)
        for archive in archives:
            taken = cluster.import_images(archive, systems[archive])
            if not taken:
                raise _no_taker(archive, systems[archive])
            say(f"imported '{archive}' on {', '.join(taken)}")
    return tuple(names)


def _no_taker(archive: Path, systems: Collection[Os]) -> PreflightError:
    return PreflightError(
        f"importing '{archive}'",
        f"its images are for {' and '.join(sorted(systems))}, and no node of the lab takes them",
        "images for Windows are taken by Wine nodes ('--provider nspawn'); Windows machines have "
        "those of the bundle",
    )


def _on_hypervisors(work: Callable[[Host], T], say: Say) -> tuple[T, ...]:
    """Call ``work`` on each hypervisor; report and skip one that cannot be reached."""
    done: list[T] = []
    for hypervisor in _inventory().hypervisors.values():
        if hypervisor.line == 0 and not connection.is_here(hypervisor):
            continue
        try:
            done.append(work(Host(hypervisor)))
        except LabError as error:
            say(f"note: {error.doing}: {error.happened}")
    return tuple(done)
