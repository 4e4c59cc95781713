"""Installation media on a hypervisor: read where they lie, or taken there once and kept.

A vendor's ISO image is gigabytes. On this machine QEMU reads the user's own file, and its owner
and mode are left as they are; to a hypervisor that is another machine it goes once, and stays
under the name of its digest until 'lab image gc' finds that no recipe asks for it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from lab._errors import PreflightError
from lab.imaging.windows.machine import VendorMedium
from lab.inventory import uri
from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt import images
from lab.providers.libvirt.host import Host

if TYPE_CHECKING:
    import libvirt

_DIGITS = 16
"""Of a digest, in the name of a kept medium: as many as images have."""


@dataclass(frozen=True, slots=True)
class PlacedMedium:
    """A medium as the hypervisor reads it."""

    path: str
    foreign: bool
    """Whether it is the user's own file."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads it: QEMU's user."""

    user: int
    groups: frozenset[int]


def is_own(hypervisor: Hypervisor) -> bool:
    """Whether the hypervisor is this machine, and sees its files."""
    return uri.parse(hypervisor.uri).host is None


def place(host: Host, disc: VendorMedium, what: str, say: Callable[[str], None]) -> PlacedMedium:
    """Have a medium where the hypervisor can read it.

    Raises
    ------
    PreflightError
        When QEMU may not read it where it lies, or there is no room for it.
    libvirt.libvirtError
        As libvirt refuses.

    """
    if is_own(host.hypervisor):
        path = disc.path.resolve()
        check(path, reader(host.connected), what)
        return PlacedMedium(str(path), foreign=True)
    shared = images.pool(host.connected, host.hypervisor.storage)
    return PlacedMedium(
        images.ensure_file(shared, kept_name(disc), disc.path, what, say), foreign=False
    )


def kept_name(disc: VendorMedium) -> str:
    """The name of a medium that a hypervisor keeps."""
    return f"medium-{disc.sha256[:_DIGITS]}.iso"


def reader(connected: libvirt.virConnect) -> Reader:
    """Who QEMU runs as on this machine, as libvirt tells it: root where it tells nothing."""
    document = ET.fromstring(connected.getCapabilities())  # noqa: S314  libvirt's own document
    for model in document.iterfind("host/secmodel"):
        if model.findtext("model") == "dac":
            user, _, group = (model.findtext("baselabel") or "+0:+0").partition(":")
            return _reader(int(user.lstrip("+")), int(group.lstrip("+") or 0))
    return Reader(0, frozenset({0}))


def _reader(user: int, group: int) -> Reader:
    import pwd  # noqa: PLC0415  for this alone

    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        return Reader(user, frozenset({group}))
    return Reader(user, frozenset(os.getgrouplist(name, group)))


def check(path: Path, who: Reader, what: str) -> None:
    """See that a file can be read by who it is meant for, by the modes of all that leads to it.

    Raises
    ------
    PreflightError
        Naming what is in the way, and the command that mends it.

    """
    doing = f"attaching the {what}, '{path}'"
    if not path.is_file():
        raise PreflightError(doing, "there is no such file", "name it again: 'lab image build'")
    for folder in reversed(path.parents):
        if not may(folder.stat(), who, stat.S_IXOTH):
            raise PreflightError(
                doing,
                f"QEMU (user {who.user}) may not enter '{folder}'",
                f"put the file below /var/lib/libvirt/images, or 'chmod o+x {folder}'",
            )
    if not may(path.stat(), who, stat.S_IROTH):
        raise PreflightError(
            doing, f"QEMU (user {who.user}) may not read it", f"'chmod o+r {path}'"
        )


def may(status: os.stat_result, who: Reader, right: int) -> bool:
    """Whether a mode gives a right, written as it is for others (4 to read, 1 to enter). Pure."""
    if who.user == 0:
        return True
    if who.user == status.st_uid:
        return bool(status.st_mode & (right << 6))
    if status.st_gid in who.groups:
        return bool(status.st_mode & (right << 3))
    return bool(status.st_mode & right)


def is_current(name: str, digests: Collection[str]) -> bool:
    """Whether a kept file is a medium of one of those digests."""
    return any(name.startswith(f"medium-{digest[:_DIGITS]}.iso") for digest in digests)
