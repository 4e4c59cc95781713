"""Virtual machines as libvirt has them: found, started, saved and removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from lab._errors import BrokenError
from lab.providers.libvirt import connection, names, ownership
from lab.providers.libvirt.ownership import Owner
from lab.providers.provider import LabHandle

if TYPE_CHECKING:
    import libvirt

State = Literal["running", "off", "saved", "paused", "full", "crashed"]

WORDS = {
    "running": "running",
    "off": "shut off",
    "saved": "suspended",
    "paused": "paused",
    "full": "paused, as there is no room on its hypervisor for what it writes",
    "crashed": "crashed",
}
"""What is said of a domain in each state."""


def find(
    connected: libvirt.virConnect, lab: LabHandle, machine: str
) -> tuple[libvirt.virDomain, Owner] | None:
    """The domain of a machine of the lab.

    Raises
    ------
    BrokenError
        When a stranger's domain has its name.

    """
    library = connection.load()
    name = names.domain(lab, machine)
    try:
        domain = connected.lookupByName(name)
    except library.libvirtError as error:
        if error.get_error_code() == library.VIR_ERR_NO_DOMAIN:
            return None
        raise
    owner = ownership.read(domain.XMLDesc())
    if owner is None or owner.token != lab.token:
        raise BrokenError(
            f"looking for domain '{name}'",
            "there is one of that name that is not of this lab",
            "give the lab another name with --name",
        )
    return domain, owner


def owned(connected: libvirt.virConnect) -> Iterator[tuple[libvirt.virDomain, Owner]]:
    """Every domain that carries our mark, whoever's lab it is of."""
    found = connected.listAllDomains()
    for domain, owner in connection.each(found, lambda one: ownership.read(one.XMLDesc())):
        if owner is not None:
            yield domain, owner


def state(domain: libvirt.virDomain) -> State:
    """What it is doing.

    ``saved`` is off with its memory on disk, ``full`` is paused by QEMU, which could not write to
    a disk since its file system is full.
    """
    library = connection.load()
    number, why = domain.state()
    if number == library.VIR_DOMAIN_RUNNING:
        return "running"
    if number == library.VIR_DOMAIN_PAUSED and why == library.VIR_DOMAIN_PAUSED_IOERROR:
        full = library.VIR_DOMAIN_DISK_ERROR_NO_SPACE in domain.diskErrors().values()
        return "full" if full else "paused"
    if number in {library.VIR_DOMAIN_PAUSED, library.VIR_DOMAIN_PMSUSPENDED}:
        return "paused"
    if number == library.VIR_DOMAIN_CRASHED:
        return "crashed"
    return "saved" if domain.hasManagedSaveImage() else "off"


def size(domain: libvirt.virDomain) -> tuple[int, int]:
    """Virtual CPUs and MiB of memory that it has now: none if it does not run."""
    if not domain.isActive():
        return 0, 0
    _, memory_kib, _, vcpus, _ = domain.info()
    return int(vcpus), int(memory_kib) // 1024


def start(domain: libvirt.virDomain) -> State:
    """Bring it to run, from its saved memory if there is any; what it was before."""
    before = state(domain)
    if before in {"paused", "full"}:
        domain.resume()
    elif before != "running":
        if before == "crashed":
            domain.destroy()
        domain.create()
    return before


def save(domain: libvirt.virDomain) -> bool:
    """Save its memory to disk and stop it; False if it was not running."""
    if state(domain) != "running":
        return False
    domain.managedSave()
    return True


def remove(domain: libvirt.virDomain) -> None:
    """Stop it and forget it, with saved memory, snapshots and firmware variables."""
    library = connection.load()
    gone = {library.VIR_ERR_NO_DOMAIN, library.VIR_ERR_OPERATION_INVALID}
    flags = (
        library.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
        | library.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        | library.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
        | library.VIR_DOMAIN_UNDEFINE_NVRAM
    )
    for act in (domain.destroy, lambda: domain.undefineFlags(flags)):
        try:
            act()
        except library.libvirtError as error:
            if error.get_error_code() not in gone:
                raise


def screenshot(domain: libvirt.virDomain) -> bytes:
    """What its screen shows, in the form that QEMU gives (PPM or PNG)."""
    library = connection.load()
    stream = domain.connect().newStream()
    picture = bytearray()

    def take(_stream: object, data: bytes, into: bytearray) -> int:
        into += data
        return len(data)

    try:
        domain.screenshot(stream, 0)
        stream.recvAll(take, picture)
        stream.finish()
    except BaseException:
        with suppress(library.libvirtError):  # it has ended by itself
            stream.abort()
        raise
    return bytes(picture)
