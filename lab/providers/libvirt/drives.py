"""CD drives of a domain: emptied once what is in them has been read, and the medium deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from lab.providers.libvirt import connection, documents, volumes

if TYPE_CHECKING:
    import libvirt


def discard(domain: libvirt.virDomain, pool: libvirt.virStoragePool, name: str) -> None:
    """Take a volume out of the drives that hold it, locked or not, and delete it. Repeatable.

    Raises
    ------
    libvirt.libvirtError
        As libvirt refuses.

    """
    library = connection.load()
    flags = library.VIR_DOMAIN_AFFECT_CONFIG
    if domain.isActive():
        flags |= library.VIR_DOMAIN_AFFECT_LIVE | library.VIR_DOMAIN_DEVICE_MODIFY_FORCE
    for target in holding(domain.XMLDesc(), f"/{name}"):
        domain.updateDeviceFlags(documents.empty_drive(target), flags)
    volumes.refresh(pool)
    volumes.remove(pool, name)


def holding(document: str, ending: str) -> tuple[str, ...]:
    """The CD drives that hold a file whose path ends so. Pure."""
    found: list[str] = []
    for disk in ET.fromstring(document).iterfind("devices/disk[@device='cdrom']"):  # noqa: S314  libvirt's own
        source, target = disk.find("source"), disk.find("target")
        if source is not None and target is not None and source.get("file", "").endswith(ending):
            found.append(target.get("dev", ""))
    return tuple(found)
