"""Golden images and installation media on a hypervisor: copied there once, whole or not at all."""

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
from lab.imaging.golden import GoldenImage
from lab.imaging.windows.machine import VendorMedium
from lab.inventory import uri
from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt import connection, ownership, storage
from lab.providers.libvirt.host import Host

if TYPE_CHECKING:
    import libvirt

_UUID = "b39a9dd7-77c1-4f3c-8d0e-0a4d1d8b6f10"
_STALL_SECONDS = 20.0
"""A copy of another controller that nothing was written to for this long was given up."""
_COPY_SECONDS = 3600.0
_DONE = ".ok"
"""Ending of the volume that says of another one that it is whole, and its length in bytes."""
_ANY = -1
"""The length is not known: older versions noted none."""


@dataclass(frozen=True, slots=True)
class HostImage:
    """A golden image on one hypervisor; the paths are the hypervisor's."""

    disk: str
    kernel: str | None
    initrd: str | None


def images_pool(connected: libvirt.virConnect, directory: str) -> libvirt.virStoragePool:
    """The hypervisor's pool of golden images; all labs share it."""
    path = storage.images_path(directory)
    return storage.ensure_pool(connected, ownership.IMAGES_POOL, _UUID, path)


def ensure_image(
    connected: libvirt.virConnect, directory: str, image: GoldenImage, say: Callable[[str], None]
) -> None:
    """Copy what of the image is not on the hypervisor yet.

    The caller sees to it that this controller copies an image to a hypervisor once at a time.

    Raises BrokenError when there is no room, or the copy of another controller never ends. Raises
    libvirt.libvirtError as libvirt refuses.
    """
    shared = images_pool(connected, directory)
    storage.refresh(shared)
    for file, what, ending in (
        (image.disk, "disk", "qcow2"),
        (image.kernel, "kernel", "kernel"),
        (image.initrd, "initrd", "initrd"),
    ):
        if file is not None:
            name = f"{image.name}-{image.digest[:16]}.{ending}"
            ensure_copy(shared, name, file, f"{what} of image '{image.name}'", say)


def image_paths(directory: str, image: GoldenImage) -> HostImage:
    """Where :func:`ensure_image` puts it."""
    head = f"{storage.images_path(directory)}/{image.name}-{image.digest[:16]}"
    return HostImage(
        f"{head}.qcow2",
        f"{head}.kernel" if image.kernel else None,
        f"{head}.initrd" if image.initrd else None,
    )


def ensure_copy(
    shared: libvirt.virStoragePool,
    name: str,
    file: Path,
    what: str,
    say: Callable[[str], None],
) -> str:
    """Copy one file, unless it is there, whole, or another controller is quicker; its path."""
    deadline = Deadline(_COPY_SECONDS)
    while (path := _complete_copy(shared, name, what, say)) is None:
        if storage.find(shared, name) is None:
            path = _copy(shared, name, file, what, say)
            if path is not None:
                return path
        say(
            f"the {what} on the hypervisor is incomplete: checking whether another command is "
            "copying it"
        )
        if not _others_copy(shared, name, what, deadline):
            storage.remove(shared, name)
    return path


def _complete_copy(
    shared: libvirt.virStoragePool, name: str, what: str, say: Callable[[str], None]
) -> str | None:
    """The path of a copy that is whole: a second volume says so, and how long it is.

    One that has lost some of its bytes since is removed.
    """
    found = storage.find(shared, name)
    wanted = _recorded_size(shared, name)
    if found is None or wanted is None:
        return None
    size = storage.file_size(found)
    if wanted in {size, _ANY}:
        return str(found.path())
    say(f"the {what} on the hypervisor is {size} bytes long instead of {wanted}: copying it again")
    storage.remove(shared, name + _DONE)
    storage.remove(shared, name)
    return None


def _recorded_size(shared: libvirt.virStoragePool, name: str) -> int | None:
    """How long a copy is that is whole; None where nothing says that it is."""
    said = storage.read(shared, name + _DONE)
    if said is None or said.startswith(b"\0"):  # whoever made it was killed before writing it
        return None
    return int(said) if said.strip() else _ANY


def _copy(
    shared: libvirt.virStoragePool, name: str, file: Path, what: str, say: Callable[[str], None]
) -> str | None:
    """Copy the file; None where another controller has begun to."""
    size = file.stat().st_size
    free = int(shared.info()[3])
    if size > free:
        raise BrokenError(
            f"copying the {what} to the hypervisor",
            f"it needs {size >> 20} MiB and pool '{shared.name()}' has {free >> 20} MiB free",
            connection.ROOM,
        )
    say(f"copying the {what} to the hypervisor: {size >> 20} MiB")
    path = storage.copy_in(shared, name, file)
    if path is not None:
        storage.write(shared, name + _DONE, f"{size}\n".encode())
    return path


def _others_copy(shared: libvirt.virStoragePool, name: str, what: str, deadline: Deadline) -> bool:
    """Wait as long as another controller writes to a copy; False if none does."""
    seen: list[object] = [None]
    still = [Deadline(_STALL_SECONDS)]

    def settled() -> str:
        storage.refresh(shared)
        volume = storage.find(shared, name)
        if volume is None or _recorded_size(shared, name) is not None:
            return "done"
        changed = storage.modified_at(volume)
        if changed != seen[0]:
            seen[0] = changed
            still[0] = Deadline(_STALL_SECONDS)
        return "given up" if still[0].left() == 0.0 else ""

    doing = f"waiting for another controller to copy the {what}"
    return deadline.wait(doing, settled, every=0.5) == "done"


@dataclass(frozen=True, slots=True)
class Copies:
    """What of the shared pool of one hypervisor can go, or went."""

    hypervisor: str
    names: tuple[str, ...]
    bytes: int


def collect_copies(
    host: Host, current: Collection[str], discs: Collection[str] = (), *, yes: bool
) -> Copies:
    """Find, and with ``yes`` remove, copies that no recipe leads to and no machine uses.

    ``host``: the hypervisor. ``current``: digests of the images that recipes lead to now, and of
    bundles' media; copies stay. ``discs``: digests of the installation media that recipes ask for;
    so do those.

    Raises LabError when the hypervisor cannot be reached or refuses.
    """
    with host.explain_errors("collecting copies of images"):
        pool = storage.find_pool(host.connected, ownership.IMAGES_POOL)
        if pool is None or not pool.isActive():
            return Copies(host.name, (), 0)
        storage.refresh(pool)
        used = set(_used(host.connected))
        found = [
            volume
            for volume in pool.listAllVolumes()
            if not _is_current_image(volume.name(), current)
            and not is_current_medium(volume.name(), discs)
            and volume.path().removesuffix(".ok") not in used
        ]
        listed = tuple(sorted(volume.name() for volume in found))
        size = sum(int(volume.info()[2]) for volume in found)
        for volume in found if yes else ():
            volume.delete()
    return Copies(host.name, listed, size)


def _is_current_image(name: str, current: Collection[str]) -> bool:
    return any(f"-{digest[:16]}." in name for digest in current)


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


_DIGITS = 16
"""Of a digest, in the name of a kept medium: as many as images have."""


@dataclass(frozen=True, slots=True)
class PlacedMedium:
    """A medium as the hypervisor reads it."""

    path: str
    foreign: bool
    """Whether it is the user's own file."""


@dataclass(frozen=True, slots=True)
class QemuUser:
    """Who reads it: QEMU's user."""

    user: int
    groups: frozenset[int]


def is_local(hypervisor: Hypervisor) -> bool:
    """Whether the hypervisor is this machine, and sees its files."""
    return uri.parse(hypervisor.uri).host is None


def place_medium(
    host: Host, disc: VendorMedium, what: str, say: Callable[[str], None]
) -> PlacedMedium:
    """Have a medium where the hypervisor can read it.

    Raises PreflightError when QEMU may not read it where it lies, or there is no room for it.
    Raises libvirt.libvirtError as libvirt refuses.
    """
    if is_local(host.hypervisor):
        path = disc.path.resolve()
        require_readable(path, qemu_user(host.connected), what)
        return PlacedMedium(str(path), foreign=True)
    shared = images_pool(host.connected, host.hypervisor.storage)
    return PlacedMedium(ensure_copy(shared, medium_name(disc), disc.path, what, say), foreign=False)


def medium_name(disc: VendorMedium) -> str:
    """The name of a medium that a hypervisor keeps."""
    return f"medium-{disc.sha256[:_DIGITS]}.iso"


def qemu_user(connected: libvirt.virConnect) -> QemuUser:
    """Who QEMU runs as on this machine, as libvirt tells it: root where it tells nothing."""
    document = ET.fromstring(connected.getCapabilities())  # noqa: S314  libvirt's own document
    for model in document.iterfind("host/secmodel"):
        if model.findtext("model") == "dac":
            user, _, group = (model.findtext("baselabel") or "+0:+0").partition(":")
            return _with_groups(int(user.lstrip("+")), int(group.lstrip("+") or 0))
    return QemuUser(0, frozenset({0}))


def _with_groups(user: int, group: int) -> QemuUser:
    import pwd  # noqa: PLC0415  for this alone

    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        return QemuUser(user, frozenset({group}))
    return QemuUser(user, frozenset(os.getgrouplist(name, group)))


def require_readable(path: Path, who: QemuUser, what: str) -> None:
    """See that a file can be read by who it is meant for, by the modes of all that leads to it.

    Raises PreflightError naming what is in the way, and the command that fixes it.
    """
    doing = f"attaching the {what}, '{path}'"
    if not path.is_file():
        raise PreflightError(
            doing, "there is no such file", ("give its path again: 'lab image build'")
        )
    for folder in reversed(path.parents):
        if not permits(folder.stat(), who, stat.S_IXOTH):
            raise PreflightError(
                doing,
                f"QEMU (user {who.user}) may not enter '{folder}'",
                f"put the file below /var/lib/libvirt/images, or 'chmod o+x {folder}'",
            )
    if not permits(path.stat(), who, stat.S_IROTH):
        raise PreflightError(
            doing, f"QEMU (user {who.user}) may not read it", f"'chmod o+r {path}'"
        )


def permits(status: os.stat_result, who: QemuUser, right: int) -> bool:
    """Whether a mode gives a right, written as it is for others (4 to read, 1 to enter). Pure."""
    if who.user == 0:
        return True
    if who.user == status.st_uid:
        return bool(status.st_mode & (right << 6))
    if status.st_gid in who.groups:
        return bool(status.st_mode & (right << 3))
    return bool(status.st_mode & right)


def is_current_medium(name: str, digests: Collection[str]) -> bool:
    """Whether a kept file is a medium of one of those digests."""
    return any(name.startswith(f"medium-{digest[:_DIGITS]}.iso") for digest in digests)
