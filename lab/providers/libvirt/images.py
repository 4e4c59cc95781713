"""Golden images on a hypervisor: copied there once, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.imaging.golden import GoldenImage
from lab.providers.libvirt import connection, names, volumes

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


def pool(connected: libvirt.virConnect, storage: str) -> libvirt.virStoragePool:
    """The hypervisor's pool of golden images; all labs share it."""
    path = volumes.images_path(storage)
    return volumes.ensure_pool(connected, names.IMAGES_POOL, _UUID, path)


def ensure(
    connected: libvirt.virConnect, storage: str, image: GoldenImage, say: Callable[[str], None]
) -> HostImage:
    """Copy what of the image is not on the hypervisor yet; where it is.

    The caller sees to it that this controller copies an image to a hypervisor once at a time.

    Raises
    ------
    BrokenError
        When there is no room, or the copy of another controller never ends.
    libvirt.libvirtError
        As libvirt refuses.

    """
    shared = pool(connected, storage)
    volumes.refresh(shared)

    def there(file: Path | None, what: str, ending: str) -> str | None:
        if file is None:
            return None
        name = f"{image.name}-{image.digest[:16]}{ending}"
        return ensure_file(shared, name, file, f"{what} of image '{image.name}'", say)

    disk = there(image.disk, "disk", ".qcow2")
    assert disk is not None
    return HostImage(
        disk, there(image.kernel, "kernel", ".kernel"), there(image.initrd, "initrd", ".initrd")
    )


def paths(storage: str, image: GoldenImage) -> HostImage:
    """Where ``ensure`` has put it."""
    head = f"{volumes.images_path(storage)}/{image.name}-{image.digest[:16]}"
    return HostImage(
        f"{head}.qcow2",
        f"{head}.kernel" if image.kernel else None,
        f"{head}.initrd" if image.initrd else None,
    )


def ensure_file(
    shared: libvirt.virStoragePool,
    name: str,
    file: Path,
    what: str,
    say: Callable[[str], None],
) -> str:
    """Copy one file, unless it is there, whole, or another controller is quicker; its path."""
    deadline = Deadline(_COPY_SECONDS)
    while True:
        path = _whole(shared, name, what, say)
        if path is not None:
            return path
        if volumes.find(shared, name) is None:
            copied = _copy(shared, name, file, what, say)
            if copied is not None:
                return copied
        say(f"the {what} is not whole on the hypervisor: seeing whether another command copies it")
        if not _others_copy(shared, name, what, deadline):
            volumes.remove(shared, name)


def _whole(
    shared: libvirt.virStoragePool, name: str, what: str, say: Callable[[str], None]
) -> str | None:
    """The path of a copy that is whole: a second volume says so, and how long it is.

    One that has lost some of its bytes since is removed.
    """
    found = volumes.find(shared, name)
    wanted = _noted(shared, name)
    if found is None or wanted is None:
        return None
    size = volumes.length(found)
    if wanted in {size, _ANY}:
        return str(found.path())
    say(f"the {what} on the hypervisor is {size} bytes long instead of {wanted}: copied anew")
    volumes.remove(shared, name + _DONE)
    volumes.remove(shared, name)
    return None


def _noted(shared: libvirt.virStoragePool, name: str) -> int | None:
    """How long a copy is that is whole; None where nothing says that it is."""
    said = volumes.read(shared, name + _DONE)
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
    path = volumes.copy_in(shared, name, file, lambda _: None)
    if path is not None:
        volumes.write(shared, name + _DONE, f"{size}\n".encode())
    return path


def _others_copy(shared: libvirt.virStoragePool, name: str, what: str, deadline: Deadline) -> bool:
    """Wait as long as another controller writes to a copy; False if none does."""
    seen: list[object] = [None]
    still = [Deadline(_STALL_SECONDS)]

    def settled() -> str:
        volumes.refresh(shared)
        volume = volumes.find(shared, name)
        if volume is None or _noted(shared, name) is not None:
            return "done"
        changed = volumes.changed(volume)
        if changed != seen[0]:
            seen[0] = changed
            still[0] = Deadline(_STALL_SECONDS)
        return "given up" if still[0].left() == 0.0 else ""

    doing = f"waiting for another controller to copy the {what}"
    return deadline.wait(doing, settled, every=0.5) == "done"
