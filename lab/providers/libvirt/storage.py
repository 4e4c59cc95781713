"""Storage on a hypervisor: pools, and volumes written, read, cloned and removed.

Everything goes through libvirt, so that a remote hypervisor is served like a local one.
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
from lab.providers.libvirt import connection, documents

if TYPE_CHECKING:
    import libvirt

_CHUNK = 1 << 20
_BUSY_SECONDS = 60.0
"""For another command's volume to be made: libvirt writes all blocks of one that is not thin."""
_BUSY = ("has asynchronous jobs running", "is still in use", "is still being allocated")
"""What libvirt says of a pool or volume that somebody is just working on."""
_ROOT = "hybridlab"


def images_path(storage: str) -> str:
    """Where golden images are kept, below the hypervisor's storage directory."""
    return f"{storage}/{_ROOT}/images"


def lab_path(storage: str, token: str) -> str:
    """Where a lab's disks are kept; the path says whose they are."""
    return f"{storage}/{_ROOT}/labs/{token}"


def token_of(path: str) -> str | None:
    """The token of the lab whose pool is at that path; None if it belongs to none."""
    head, _, token = path.rpartition("/")
    return token if head.endswith(f"/{_ROOT}/labs") else None


def ensure_pool(
    connected: libvirt.virConnect, name: str, uuid: str, path: str
) -> libvirt.virStoragePool:
    """The pool of that name at that path, running.

    Raises BrokenError when a pool of that name is somewhere else. Raises libvirt.libvirtError as
    libvirt refuses.
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
            if not pool.isActive():  # another command was quicker
                raise
    if not pool.autostart():
        pool.setAutostart(True)
    return pool


def find_pool(connected: libvirt.virConnect, name: str) -> libvirt.virStoragePool | None:
    """The pool of that name."""
    return connection.find(connected.storagePoolLookupByName, name, "VIR_ERR_NO_STORAGE_POOL")


def directory_of(pool: libvirt.virStoragePool) -> str:
    """The directory of a pool."""
    return ET.fromstring(pool.XMLDesc()).findtext("target/path") or ""  # noqa: S314  libvirt's own


def remove_pool(pool: libvirt.virStoragePool) -> tuple[str, ...]:
    """Take a pool away with all that is in it; the names of what was in it."""
    library = connection.load()
    if not pool.isActive():
        with suppress(library.libvirtError):  # its directory has gone
            pool.create()
    removed: list[str] = []
    if pool.isActive():
        refresh(pool)
        for volume in pool.listAllVolumes():
            removed.append(volume.name())
            _retry_while_busy(volume.delete)
        _retry_while_busy(pool.destroy)
        with suppress(library.libvirtError):  # its directory has gone
            pool.delete()
    pool.undefine()
    return tuple(removed)


def refresh(pool: libvirt.virStoragePool) -> None:
    """Have libvirt reread what is in a pool, as soon as nobody is making a volume there."""
    _retry_while_busy(pool.refresh)


def _retry_while_busy(act: Callable[[], object]) -> None:
    """Do it, again and again while others are at work on the same pool or volume."""
    library = connection.load()

    def met() -> str:
        try:
            act()
        except library.libvirtError as error:
            if not any(sign in str(error) for sign in _BUSY):
                raise
            return connection.reason(error)
        return ""

    doing = "waiting for other commands to finish with a storage pool"
    Deadline(_BUSY_SECONDS).wait(doing, met, until=lambda said: not said, every=0.1)


def find(pool: libvirt.virStoragePool, name: str) -> libvirt.virStorageVol | None:
    """The volume of that name."""
    return connection.find(pool.storageVolLookupByName, name, "VIR_ERR_NO_STORAGE_VOL")


def remove(pool: libvirt.virStoragePool, name: str) -> None:
    """Take a volume away, if it is there."""
    volume = find(pool, name)
    if volume is not None:
        _retry_while_busy(volume.delete)


def clone(pool: libvirt.virStoragePool, name: str, backing: str, capacity: int) -> str:
    """Make a copy-on-write disk of ``capacity`` bytes on a golden image, in place of an old one."""
    remove(pool, name)
    document = documents.volume(name, capacity, "qcow2", backing)
    return str(pool.createXML(document).path())


def write(pool: libvirt.virStoragePool, name: str, content: bytes) -> str:
    """Make a raw volume with that content, in place of an old one; its path."""
    remove(pool, name)
    volume = pool.createXML(documents.volume(name, max(1, len(content)), "raw"))
    _upload(pool, volume, BytesIO(content), len(content))
    return str(volume.path())


def copy_in(pool: libvirt.virStoragePool, name: str, file: Path) -> str | None:
    """Copy a file of this machine into a new volume; its path.

    None if there is a volume of that name. A copy that fails is taken away again.
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
        with suppress(library.libvirtError):  # the connection has gone, and what is left is told by
            volume.delete()  # its missing the note that it is whole
        raise
    return str(volume.path())


def file_size(volume: libvirt.virStorageVol) -> int:
    """Bytes of the file that it is, as against those that a disk in it has."""
    return int(volume.infoFlags(connection.load().VIR_STORAGE_VOL_GET_PHYSICAL)[2])


def modified_at(volume: libvirt.virStorageVol) -> str:
    """When it was last written to, in a form of libvirt's; it has all its blocks from the start."""
    document = ET.fromstring(volume.XMLDesc())  # noqa: S314  libvirt's own document
    return document.findtext("target/timestamps/mtime") or ""


def read(pool: libvirt.virStoragePool, name: str, last: int | None = None) -> bytes | None:
    """The content of a volume, or its last bytes; None if there is none of that name."""
    refresh(pool)
    volume = find(pool, name)
    if volume is None:
        return None
    size = int(volume.info()[1])
    return _downloaded(pool, volume, 0 if last is None else max(0, size - last))


def read_from(pool: libvirt.virStoragePool, name: str, offset: int) -> bytes:
    """What a volume holds from a byte on: nothing if it is not there, or not so long."""
    refresh(pool)
    volume = find(pool, name)
    if volume is None or int(volume.info()[1]) <= offset:
        return b""
    return _downloaded(pool, volume, offset)


def copy_out(pool: libvirt.virStoragePool, name: str, file: Path) -> None:
    """Copy a volume into a new file of this machine."""
    refresh(pool)
    with file.open("xb") as out:
        _download(pool, pool.storageVolLookupByName(name), 0, out)


def _downloaded(pool: libvirt.virStoragePool, volume: libvirt.virStorageVol, offset: int) -> bytes:
    out = BytesIO()
    _download(pool, volume, offset, out)
    return out.getvalue()


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
    refresh(pool)  # the size and format of what is in it now


Purpose = Literal["trial", "install"]

_SCRATCH_NAME = re.compile(
    r"hybridlab-(?P<purpose>trial|install)-(?P<made>[0-9]{10,12})-[0-9a-f]{8}"
)
_ABANDONED_SECONDS: dict[str, float] = {"trial": 900.0, "install": 25 * 3600.0}
"""``trial`` is a look at the storage, of a moment. No recipe gives an installation more than 24
hours."""


def scratch_name(now: float, purpose: Purpose = "trial") -> str:
    """A new name; ``now`` is seconds since 1970."""
    return f"hybridlab-{purpose}-{int(now)}-{secrets.token_hex(4)}"


def is_abandoned(name: str, now: float) -> bool:
    """Whether a pool of that name was left by a process that has gone."""
    found = _SCRATCH_NAME.fullmatch(name)
    return found is not None and now - int(found["made"]) > _ABANDONED_SECONDS[found["purpose"]]


@contextmanager
def scratch_pool(
    connected: libvirt.virConnect, hypervisor: Hypervisor, purpose: Purpose = "trial"
) -> Iterator[libvirt.virStoragePool]:
    """A pool in a directory of its own; at the end it is gone, with all that is in it.

    Raises libvirt.libvirtError as libvirt refuses.
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
    for one in connected.listAllStoragePools():
        if is_abandoned(one.name(), now):
            with suppress(library.libvirtError):  # another one is at it, too
                remove_pool(one)
