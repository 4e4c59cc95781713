"""A storage pool for a moment, on the hypervisor's own storage: made, used and taken away.

Its name holds the time at which it was made, so that what a killed process has left is known
for what it is, and removed by the next one.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt import connection, documents, volumes

if TYPE_CHECKING:
    import libvirt

Purpose = Literal["trial", "install"]

_NAME = re.compile(r"hybridlab-(?P<purpose>trial|install)-(?P<made>[0-9]{10,12})-[0-9a-f]{8}")
_FORGOTTEN_SECONDS: dict[str, float] = {"trial": 900.0, "install": 25 * 3600.0}
"""``trial`` is a look at the storage, of a moment. No recipe gives an installation more than 24
hours."""


def name_at(now: float, purpose: Purpose = "trial") -> str:
    """A new name; ``now`` is seconds since 1970."""
    return f"hybridlab-{purpose}-{int(now)}-{secrets.token_hex(4)}"


def is_forgotten(name: str, now: float) -> bool:
    """Whether a pool of that name was left by a process that has gone."""
    found = _NAME.fullmatch(name)
    return found is not None and now - int(found["made"]) > _FORGOTTEN_SECONDS[found["purpose"]]


@contextmanager
def pool(
    connected: libvirt.virConnect, hypervisor: Hypervisor, purpose: Purpose = "trial"
) -> Iterator[libvirt.virStoragePool]:
    """A pool in a directory of its own; at the end it is gone, with all that is in it.

    Raises
    ------
    libvirt.libvirtError
        As libvirt refuses.

    """
    _sweep(connected)
    name = name_at(time.time(), purpose)
    made = connected.storagePoolDefineXML(
        documents.pool(name, str(uuid4()), f"{hypervisor.storage}/{name}")
    )
    try:
        made.build()
        made.create()
        yield made
    finally:
        volumes.remove_pool(made)


def _sweep(connected: libvirt.virConnect) -> None:
    """Remove what killed processes have left."""
    library = connection.load()
    now = time.time()
    for one in connected.listAllStoragePools():
        if is_forgotten(one.name(), now):
            with suppress(library.libvirtError):  # another one is at it, too
                volumes.remove_pool(one)
