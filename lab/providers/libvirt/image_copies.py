"""Copies of golden images on hypervisors that nobody needs any more."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from lab.providers.libvirt import connection, media, names, volumes
from lab.providers.libvirt.host import Host

if TYPE_CHECKING:
    import libvirt


@dataclass(frozen=True, slots=True)
class Copies:
    """What of the shared pool of one hypervisor can go, or went."""

    hypervisor: str
    names: tuple[str, ...]
    bytes: int


def collect(
    host: Host, current: Collection[str], discs: Collection[str] = (), *, yes: bool
) -> Copies:
    """Find, and with ``yes`` remove, copies that no recipe leads to and no machine stands on.

    Parameters
    ----------
    host
        The hypervisor.
    current
        Digests of the images that recipes lead to now, and of bundles' media; copies stay.
    discs
        Digests of the installation media that recipes ask for; so do those.

    Raises
    ------
    LabError
        When the hypervisor cannot be reached or refuses.

    """
    with host.told("collecting copies of images"):
        pool = _pool(host.connected)
        if pool is None:
            return Copies(host.name, (), 0)
        volumes.refresh(pool)
        used = set(_used(host.connected))
        found = [
            volume
            for volume in pool.listAllVolumes()
            if not _is_current(volume.name(), current)
            and not media.is_current(volume.name(), discs)
            and volume.path().removesuffix(".ok") not in used
        ]
        listed = tuple(sorted(volume.name() for volume in found))
        size = sum(int(volume.info()[2]) for volume in found)
        for volume in found if yes else ():
            volume.delete()
    return Copies(host.name, listed, size)


def _is_current(name: str, current: Collection[str]) -> bool:
    return any(f"-{digest[:16]}." in name for digest in current)


def _pool(connected: libvirt.virConnect) -> libvirt.virStoragePool | None:
    library = connection.load()
    try:
        pool = connected.storagePoolLookupByName(names.IMAGES_POOL)
    except library.libvirtError as error:
        if error.get_error_code() == library.VIR_ERR_NO_STORAGE_POOL:
            return None
        raise
    return pool if pool.isActive() else None


def _used(connected: libvirt.virConnect) -> Iterator[str]:
    """Paths of all that a domain boots, and of what any volume is a clone of."""
    for _, text in connection.each(connected.listAllDomains(), _document):
        document = ET.fromstring(text)  # noqa: S314  libvirt's own
        yield document.findtext("os/kernel") or ""
        yield document.findtext("os/initrd") or ""
        for source in document.iterfind("devices/disk/source"):
            yield source.get("file", "")
        for below in document.iterfind("devices/disk/backingStore/source"):
            yield below.get("file", "")
    for pool in connected.listAllStoragePools():
        if not pool.isActive():
            continue
        for _, text in connection.each(pool.listAllVolumes(), _document):
            document = ET.fromstring(text)  # noqa: S314  libvirt's own
            yield document.findtext("backingStore/path") or ""


def _document(one: libvirt.virDomain | libvirt.virStorageVol) -> str:
    return str(one.XMLDesc())
