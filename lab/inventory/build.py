"""From the checked models to the frozen data that the rest of the product reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lab.inventory import schema
from lab.inventory.inventory import Hypervisor, ImageSource, Inventory, Secret
from lab.scenario.findings import Key

LineOf = Callable[[Key], int]
Place = Callable[[str], Path]
"""Where a path of the inventory is."""


def inventory(model: schema.InventoryFile, path: str, line_of: LineOf, place: Place) -> Inventory:
    """The inventory of a file."""
    return Inventory(
        hypervisors=tuple(
            _hypervisor(name, one, model.storage.path, line_of(("hypervisors", name)))
            for name, one in model.hypervisors.items()
        ),
        management=model.management.cidr,
        owner=model.owner,
        expiry=model.expiry,
        cache=None if model.cache is None else place(model.cache),
        images={name: _source(one, place) for name, one in model.images.items()},
        mirrors=dict(model.mirrors),
        proxies={name: value for name, value in model.proxies if value is not None},
        secrets={
            name: Secret(None if one.file is None else place(one.file), one.env)
            for name, one in model.secrets.items()
        },
        path=path,
    )


def _hypervisor(name: str, one: schema.Hypervisor, storage: str, line: int) -> Hypervisor:
    return Hypervisor(
        name=name,
        uri=one.uri,
        vcpus=one.vcpus,
        memory_mib=one.memory,
        disk_gib=one.disk,
        tags=frozenset(one.tags),
        storage=one.storage or storage,
        address=None if one.address is None else str(one.address),
        mtu=one.mtu,
        acceleration=one.acceleration,
        parallel_boots=one.parallel_boots,
        line=line,
    )


def _source(image: schema.Image, place: Place) -> ImageSource:
    url = str(place(image.path)) if image.path else image.url
    return ImageSource(url, image.sha256)
