"""Copy golden images and installation media to a hypervisor, once and atomically."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError
from lab.inventory import uri
from lab.machines.images.golden import GoldenImage
from lab.machines.images.installation import VendorMedium
from lab.machines.libvirt import connection, ownership, storage
from lab.machines.libvirt.documents import Disc
from lab.machines.libvirt.host import Host

if TYPE_CHECKING:
    import libvirt

_UUID = "b39a9dd7-77c1-4f3c-8d0e-0a4d1d8b6f10"
_STALL_SECONDS = 20.0
"""Another controller's copy counts as abandoned after this long without a write."""
_COPY_SECONDS = 3600.0
_DONE = ".ok"
"""Suffix of the volume that marks another volume as complete and contains its length in bytes."""
_ANY = -1
"""Unknown length: older versions did not record it."""


def images_pool(connected: libvirt.virConnect, directory: str) -> libvirt.virStoragePool:
    """The hypervisor's pool of golden images, shared by all labs."""
    path = storage.images_path(directory)
    return storage.ensure_pool(connected, ownership.IMAGES_POOL, _UUID, path)


def ensure_image(
    connected: libvirt.virConnect, directory: str, image: GoldenImage, say: Callable[[str], None]
) -> None:
    """Copy the image's files that the hypervisor does not have yet.

    The caller must prevent concurrent copies of an image to a hypervisor by this controller.

    Raises BrokenError when there is too little space. Raises DeadlineError when another
    controller's copy never finishes. Raises libvirt.libvirtError.
    """
    shared = images_pool(connected, directory)
    storage.refresh(shared)
    for file, title, ending in (
        (image.disk, "disk", "qcow2"),
        (image.kernel, "kernel", "kernel"),
        (image.initrd, "initrd", "initrd"),
    ):
        if file is not None:
            ensure_copy(
                shared, _copy_name(image, ending), file, f"{title} of image '{image.name}'", say
            )


def image_path(directory: str, image: GoldenImage, ending: str) -> str:
    """The path that :func:`ensure_image` copies the ``qcow2``, ``kernel`` or ``initrd`` to."""
    return f"{storage.images_path(directory)}/{_copy_name(image, ending)}"


def _copy_name(image: GoldenImage, ending: str) -> str:
    return f"{image.name}-{image.digest[:16]}.{ending}"


def ensure_copy(
    shared: libvirt.virStoragePool,
    name: str,
    file: Path,
    title: str,
    say: Callable[[str], None],
) -> str:
    """Copy one file unless a complete copy exists or another controller makes it; the path."""
    deadline = Deadline(_COPY_SECONDS)
    while (path := _complete_copy(shared, name, title, say)) is None:
        if storage.find(shared, name) is None:
            path = _copy(shared, name, file, title, say)
            if path is not None:
                return path
        say(
            f"the {title} on the hypervisor is incomplete: checking whether another command is "
            "copying it"
        )
        if not _others_copy(shared, name, title, deadline):
            storage.remove(shared, name)
    return path


def _complete_copy(
    shared: libvirt.virStoragePool, name: str, title: str, say: Callable[[str], None]
) -> str | None:
    """The path of a complete copy, which a second volume marks; None if there is none.

    A copy whose size has changed since is removed.
    """
    volume = storage.find(shared, name)
    wanted = _recorded_size(shared, name)
    if volume is None or wanted is None:
        return None
    size = storage.file_size(volume)
    if wanted in {size, _ANY}:
        return str(volume.path())
    say(f"the {title} on the hypervisor is {size} bytes long instead of {wanted}: copying it again")
    storage.remove(shared, name + _DONE)
    storage.remove(shared, name)
    return None


def _recorded_size(shared: libvirt.virStoragePool, name: str) -> int | None:
    """The recorded size of a complete copy; None if it is not marked complete."""
    record = storage.read(shared, name + _DONE)
    if record is None or record.startswith(b"\0"):  # its writer was killed before writing
        return None
    return int(record) if record.strip() else _ANY


def _copy(
    shared: libvirt.virStoragePool, name: str, file: Path, title: str, say: Callable[[str], None]
) -> str | None:
    """Copy the file; None if another controller has started to copy it."""
    size = file.stat().st_size
    free = int(shared.info()[3])
    if size > free:
        raise BrokenError(
            f"copying the {title} to the hypervisor",
            f"it needs {size >> 20} MiB and pool '{shared.name()}' has {free >> 20} MiB free",
            connection.ROOM,
        )
    say(f"copying the {title} to the hypervisor: {size >> 20} MiB")
    path = storage.copy_in(shared, name, file)
    if path is not None:
        storage.write(shared, name + _DONE, f"{size}\n".encode())
    return path


def _others_copy(shared: libvirt.virStoragePool, name: str, title: str, deadline: Deadline) -> bool:
    """Wait while another controller writes a copy; False if it is abandoned."""
    states: list[object] = [None]
    still = [Deadline(_STALL_SECONDS)]

    def settled() -> str:
        storage.refresh(shared)
        volume = storage.find(shared, name)
        if volume is None or _recorded_size(shared, name) is not None:
            return "done"
        changed = storage.modified_at(volume)
        if changed != states[0]:
            states[0] = changed
            still[0] = Deadline(_STALL_SECONDS)
        return "given up" if still[0].left() == 0.0 else ""

    action = f"waiting for another controller to copy the {title}"
    return deadline.wait(action, settled, every=0.5) == "done"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Unused copies or abandoned sites on one hypervisor, found or removed."""

    hypervisor: str
    names: tuple[str, ...]
    bytes: int = 0
    """Of copies."""


def collect_copies(
    host: Host, current: Collection[str], discs: Collection[str] = (), *, yes: bool
) -> Leftovers:
    """Find, and with ``yes`` remove, copies that no recipe and no machine uses.

    ``current``: digests of the recipes' current images and of bundles' media. ``discs``: digests
    of the recipes' installation media. Copies of both are kept.

    Raises LabError when the hypervisor is unreachable or refuses.
    """
    with host.explain_errors("collecting copies of images"):
        pool = storage.find_pool(host.connected, ownership.IMAGES_POOL)
        if pool is None or not pool.isActive():
            return Leftovers(host.name, ())
        storage.refresh(pool)
        used = set(_list_used_files(host.connected))
        volumes = [
            volume
            for volume in pool.listAllVolumes()
            if not any(f"-{digest[:16]}." in volume.name() for digest in current)
            and not is_current_medium(volume.name(), discs)
            and volume.path().removesuffix(".ok") not in used
        ]
        listed = tuple(sorted(volume.name() for volume in volumes))
        size = sum(int(volume.info()[2]) for volume in volumes)
        for volume in volumes if yes else ():
            volume.delete()
    return Leftovers(host.name, listed, size)


def _list_used_files(connected: libvirt.virConnect) -> Iterator[str]:
    """Paths of all files that domains use, and of all volumes' backing files."""
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


def _document(item: libvirt.virDomain | libvirt.virStorageVol) -> str:
    return str(item.XMLDesc())


_DIGITS = 16
"""Hex digits of the digest in a medium's name, as in images' names."""


@dataclass(frozen=True, slots=True)
class QemuUser:
    """The user that QEMU runs as."""

    user: int
    groups: frozenset[int]


def place_medium(host: Host, disc: VendorMedium, title: str, say: Callable[[str], None]) -> Disc:
    """Make a medium readable for the hypervisor, copying it to a remote one; returns its drive.

    Raises PreflightError when QEMU may not read a local file. Raises BrokenError when there is too
    little space. Raises libvirt.libvirtError.
    """
    if uri.parse(host.hypervisor.uri).host is None:  # this machine, which sees its own files
        path = disc.path.resolve()
        require_readable(path, qemu_user(host.connected), title)
        return Disc(str(path), foreign=True)
    shared = images_pool(host.connected, host.hypervisor.storage)
    return Disc(ensure_copy(shared, medium_name(disc), disc.path, title, say))


def medium_name(disc: VendorMedium) -> str:
    """The name of a medium's copy on a hypervisor."""
    return f"medium-{disc.sha256[:_DIGITS]}.iso"


def qemu_user(connected: libvirt.virConnect) -> QemuUser:
    """The user that QEMU runs as, from libvirt's capabilities; root if they do not say."""
    document = ET.fromstring(connected.getCapabilities())  # noqa: S314  libvirt's own document
    for model in document.iterfind("host/secmodel"):
        if model.findtext("model") == "dac":
            user, _, group = (model.findtext("baselabel") or "+0:+0").partition(":")
            return _with_groups(int(user.lstrip("+")), int(group.lstrip("+") or 0))
    return QemuUser(0, frozenset({0}))


def _with_groups(user: int, group: int) -> QemuUser:
    import pwd  # noqa: PLC0415  only used here

    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        return QemuUser(user, frozenset({group}))
    return QemuUser(user, frozenset(os.getgrouplist(name, group)))


def require_readable(path: Path, who: QemuUser, title: str) -> None:
    """Check by the modes of a file and its directories that ``who`` can read it.

    Raises PreflightError naming the obstacle and the command that fixes it.
    """
    action = f"attaching the {title}, '{path}'"
    if not path.is_file():
        raise PreflightError(
            action, "there is no such file", ("give its path again: 'lab image build'")
        )
    for folder in reversed(path.parents):
        if not permits(folder.stat(), who, stat.S_IXOTH):
            raise PreflightError(
                action,
                f"QEMU (user {who.user}) may not enter '{folder}'",
                f"put the file below /var/lib/libvirt/images, or 'chmod o+x {folder}'",
            )
    if not permits(path.stat(), who, stat.S_IROTH):
        raise PreflightError(
            action, f"QEMU (user {who.user}) may not read it", f"'chmod o+r {path}'"
        )


def permits(status: os.stat_result, who: QemuUser, right: int) -> bool:
    """True if a file's mode grants ``who`` a right, given as S_IROTH or S_IXOTH. Pure."""
    if who.user == 0:
        return True
    if who.user == status.st_uid:
        return bool(status.st_mode & (right << 6))
    if status.st_gid in who.groups:
        return bool(status.st_mode & (right << 3))
    return bool(status.st_mode & right)


def is_current_medium(name: str, digests: Collection[str]) -> bool:
    """True if a file is the copy of a medium with one of those digests."""
    return any(name.startswith(f"medium-{digest[:_DIGITS]}.iso") for digest in digests)
