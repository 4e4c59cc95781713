"""Storage pools and volumes on a hypervisor: create, read, write, clone and remove.

Everything goes through libvirt, so remote hypervisors work like local ones.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal
from uuid import uuid4
from xml.etree import ElementTree as ET

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.inventory.inventory import Hypervisor
from lab.machines.libvirt import connection, documents

if TYPE_CHECKING:
    import libvirt

_CHUNK = 1 << 20
_BUSY_SECONDS = 60.0
"""For another command to create a volume: libvirt writes all blocks unless it is sparse."""
_ROOT = "hybridlab"


def images_path(storage: str) -> str:
    """The directory of golden images, below the hypervisor's storage directory."""
    return f"{storage}/{_ROOT}/images"


def lab_path(storage: str, token: str) -> str:
    """The directory of a lab's disks; the path identifies the lab."""
    return f"{storage}/{_ROOT}/labs/{token}"


def token_of(path: str) -> str | None:
    """The token of the lab whose pool has that path; None if it is not a lab's."""
    head, _, token = path.rpartition("/")
    return token if head.endswith(f"/{_ROOT}/labs") else None


def ensure_pool(
    connected: libvirt.virConnect, name: str, uuid: str, path: str
) -> libvirt.virStoragePool:
    """Define and start the pool of that name at that path, if necessary.

    Raises BrokenError when a pool of that name has another path. Raises libvirt.libvirtError.
    """
    library = connection.load()
    pool = find_pool(connected, name)
    if pool is None:
        pool = connected.storagePoolDefineXML(documents.pool(name, uuid, path))
    if directory_of(pool) != path:
        raise BrokenError(
            f"looking for storage pool '{name}'",
            f"a pool of that name exists, at '{directory_of(pool)}' instead of '{path}'",
            f"'virsh pool-undefine {name}' if it is not needed, or change 'storage'",
        )
    if not pool.isActive():
        pool.build()
        try:
            pool.create()
        except library.libvirtError:
            if not pool.isActive():  # another command was faster
                raise
    if not pool.autostart():
        pool.setAutostart(True)
    return pool


def find_pool(connected: libvirt.virConnect, name: str) -> libvirt.virStoragePool | None:
    """The pool of that name; None if there is none."""
    return connection.find(connected.storagePoolLookupByName, name, "VIR_ERR_NO_STORAGE_POOL")


def directory_of(pool: libvirt.virStoragePool) -> str:
    """The directory of a pool."""
    return ET.fromstring(pool.XMLDesc()).findtext("target/path") or ""  # noqa: S314  libvirt's own


def remove_pool(pool: libvirt.virStoragePool) -> tuple[str, ...]:
    """Remove a pool with all its volumes; returns the volumes' names."""
    library = connection.load()
    if not pool.isActive():
        with suppress(library.libvirtError):  # its directory is gone
            pool.create()
    removed: list[str] = []
    if pool.isActive():
        refresh(pool)
        for volume in pool.listAllVolumes():
            removed.append(volume.name())
            _retry_while_busy(volume.delete)
        _retry_while_busy(pool.destroy)
        with suppress(library.libvirtError):  # its directory is gone
            pool.delete()
    pool.undefine()
    return tuple(removed)


def refresh(pool: libvirt.virStoragePool) -> None:
    """Have libvirt reread a pool's contents, once no command is creating a volume there."""
    _retry_while_busy(pool.refresh)


def _retry_while_busy(act: Callable[[], object]) -> None:
    """Call ``act``, retrying while other commands work on the same pool or volume."""
    library = connection.load()

    def met() -> str:
        try:
            act()
        except library.libvirtError as error:
            if not connection.is_busy(error):
                raise
            return connection.reason(error)
        return ""

    action = "waiting for other commands to finish with a storage pool"
    Deadline(_BUSY_SECONDS).wait(action, met, until=lambda why: not why, every=0.1)


def find(pool: libvirt.virStoragePool, name: str) -> libvirt.virStorageVol | None:
    """The volume of that name; None if there is none."""
    return connection.find(pool.storageVolLookupByName, name, "VIR_ERR_NO_STORAGE_VOL")


def remove(pool: libvirt.virStoragePool, name: str) -> None:
    """Delete a volume, if it exists."""
    volume = find(pool, name)
    if volume is not None:
        _retry_while_busy(volume.delete)


def clone(pool: libvirt.virStoragePool, name: str, backing: str, capacity: int) -> str:
    """Create a copy-on-write disk of ``capacity`` bytes on a golden image, replacing an old one."""
    remove(pool, name)
    document = documents.volume(name, capacity, "qcow2", backing)
    return str(pool.createXML(document).path())


def write(pool: libvirt.virStoragePool, name: str, content: bytes) -> str:
    """Create a raw volume with that content, replacing an old one; returns its path."""
    remove(pool, name)
    volume = pool.createXML(documents.volume(name, max(1, len(content)), "raw"))
    _upload(pool, volume, BytesIO(content), len(content))
    return str(volume.path())


def copy_in(pool: libvirt.virStoragePool, name: str, file: Path) -> str | None:
    """Upload a file of this machine into a new volume; returns its path.

    Returns None if a volume of that name exists. A failed copy is removed.
    """
    library = connection.load()
    size = file.stat().st_size
    try:
        volume = pool.createXML(documents.volume(name, size, "raw"))
    except library.libvirtError as error:
        if error.get_error_code() == library.VIR_ERR_STORAGE_VOL_EXIST:
            return None
        raise
    try:
        with file.open("rb") as content:
            _upload(pool, volume, content, size)
    except BaseException:
        # if the connection is lost, the incomplete copy stays, without its completion mark
        with suppress(library.libvirtError):
            volume.delete()
        raise
    return str(volume.path())


def file_size(volume: libvirt.virStorageVol) -> int:
    """Size of the volume's file in bytes, not of the virtual disk in it."""
    return int(volume.infoFlags(connection.load().VIR_STORAGE_VOL_GET_PHYSICAL)[2])


def modified_at(volume: libvirt.virStorageVol) -> str:
    """Time of the last write, in libvirt's format; the size does not show progress."""
    document = ET.fromstring(volume.XMLDesc())  # noqa: S314  libvirt's own document
    return document.findtext("target/timestamps/mtime") or ""


def read(pool: libvirt.virStoragePool, name: str, offset: int = 0) -> bytes | None:
    """The content of a volume from ``offset`` on, or if that is negative, its last bytes.

    None if the volume does not exist; empty if it is shorter.
    """
    refresh(pool)
    volume = find(pool, name)
    if volume is None:
        return None
    size, out = int(volume.info()[1]), BytesIO()
    if offset < 0:
        offset = max(0, size + offset)
    if offset < size:
        _download(pool, volume, offset, out)
    return out.getvalue()


def copy_out(pool: libvirt.virStoragePool, name: str, file: Path) -> None:
    """Download a volume into a new file on this machine."""
    refresh(pool)
    with file.open("xb") as out:
        _download(pool, pool.storageVolLookupByName(name), 0, out)


def _download(
    pool: libvirt.virStoragePool, volume: libvirt.virStorageVol, offset: int, out: IO[bytes]
) -> None:
    def take(_stream: object, data: bytes, into: IO[bytes]) -> int:
        into.write(data)
        return len(data)

    with connection.streamed(pool.connect()) as stream:
        volume.download(stream, offset, 0)
        stream.recvAll(take, out)


def _upload(
    pool: libvirt.virStoragePool, volume: libvirt.virStorageVol, content: IO[bytes], size: int
) -> None:
    def give(_stream: object, count: int, source: IO[bytes]) -> bytes:
        return source.read(min(count, _CHUNK))

    with connection.streamed(pool.connect()) as stream:
        volume.upload(stream, 0, size)
        stream.sendAll(give, content)
    refresh(pool)  # update the recorded size and format


Purpose = Literal["trial", "install"]

_SCRATCH_NAME = re.compile(
    r"hybridlab-(?P<purpose>trial|install)-(?P<made>[0-9]{10,12})-[0-9a-f]{8}"
)
_ABANDONED_SECONDS: dict[str, float] = {"trial": 900.0, "install": 25 * 3600.0}
"""``trial`` is a short check of the storage. No recipe allows an installation more than 24
hours."""


def scratch_name(now: float, purpose: Purpose = "trial") -> str:
    """A new pool name; ``now`` is seconds since 1970."""
    return f"hybridlab-{purpose}-{int(now)}-{secrets.token_hex(4)}"


def is_abandoned(name: str, now: float) -> bool:
    """True if a pool of that name was left behind by a dead process."""
    match = _SCRATCH_NAME.fullmatch(name)
    return match is not None and now - int(match["made"]) > _ABANDONED_SECONDS[match["purpose"]]


@contextmanager
def scratch_pool(
    connected: libvirt.virConnect, hypervisor: Hypervisor, purpose: Purpose = "trial"
) -> Iterator[libvirt.virStoragePool]:
    """A temporary pool in a new directory, removed with all its volumes after the block.

    Raises libvirt.libvirtError.
    """
    _remove_abandoned(connected)
    name = scratch_name(time.time(), purpose)
    made = connected.storagePoolDefineXML(
        documents.pool(name, str(uuid4()), f"{hypervisor.storage}/{name}")
    )
    try:
        made.build()
        made.create()
        yield made
    finally:
        remove_pool(made)


def _remove_abandoned(connected: libvirt.virConnect) -> None:
    library = connection.load()
    now = time.time()
    for pool in connected.listAllStoragePools():
        if is_abandoned(pool.name(), now):
            with suppress(library.libvirtError):  # another command may be removing it too
                remove_pool(pool)
