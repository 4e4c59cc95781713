"""What firmware starts from a medium (El Torito), and a medium that asks for no key press.

The UEFI loader of Microsoft's media waits for a key, and goes on to the next device without one.
``efisys_noprompt.bin`` on the same medium does not wait. It takes the other's place in a layer
over the ISO, which stays as it is.

The layout is that of "El Torito", 1.0 (Phoenix and IBM, 1995), and for UEFI of the UEFI
specification, 13.3.2.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.imaging.windows.media import Boot, BootKind, Extent, WindowsMedium

SECTOR = 2048
_VIRTUAL = 512
"""Bytes of the sectors that the catalogue counts."""
_RECORD = 17
"""Sector of the boot record volume descriptor."""
_SYSTEM = b"\0CD001\x01EL TORITO SPECIFICATION"
_CATALOGUE = 0x47
"""Where in it the catalogue's sector is told, u32."""
_LARGEST = 4 * SECTOR
"""Bytes of the catalogue that are read: 256 entries."""
_ENTRY = 32
_BOOTABLE, _HEADER, _LAST_HEADER, _EXTENSION = 0x88, 0x90, 0x91, 0x44
_NO_EMULATION = 0
_PC, _UEFI = 0x00, 0xEF
_WHOLE = 2
"""Fewer sectors than this mean all that follows, to firmware (UEFI 13.3.2.1)."""
_SECONDS = 60.0
_DAMAGED = "fetch the medium again, and compare its SHA-256 with the one Microsoft gives"
_BY_KEY = "build it with firmware bios, whose loader asks for no key on an empty disk"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the catalogue."""

    platform: int
    emulation: int
    sectors: int
    """Of 512 bytes."""
    offset: int
    """In the medium, in bytes."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Bytes to lay over a medium."""

    offset: int
    content: bytes


def boots(doing: str, file: BinaryIO) -> tuple[Boot, ...]:
    """What firmware can start, in the catalogue's order; nothing where there is no catalogue.

    Raises
    ------
    PreflightError
        When the catalogue is damaged, or leads beyond the medium.

    """
    end = file.seek(0, 2)
    record = _piece(file, _RECORD * SECTOR, SECTOR)
    if not record.startswith(_SYSTEM):
        return ()
    (sector,) = struct.unpack_from("<I", record, _CATALOGUE)
    found = []
    for entry in catalogue(doing, _piece(file, sector * SECTOR, _LARGEST)):
        first = _piece(file, entry.offset, _VIRTUAL)
        boot = boot_of(entry, first)
        if boot is None:
            continue
        if not first or boot.extent.offset + boot.extent.length > end:
            raise PreflightError(
                doing,
                f"its {boot.kind} loader is said to end at byte "
                f"{boot.extent.offset + boot.extent.length:,}, and the medium has {end:,}",
                _DAMAGED,
            )
        found.append(boot)
    return tuple(found)


def catalogue(doing: str, data: bytes) -> tuple[Entry, ...]:
    """The bootable entries of a catalogue.

    Raises
    ------
    PreflightError
        When it is none.

    """
    if len(data) < 2 * _ENTRY or data[0] != 1 or data[30:32] != b"\x55\xaa":
        raise PreflightError(
            doing, "its boot record leads to something that is no boot catalogue", _DAMAGED
        )
    return tuple(_entries(data))


def boot_of(entry: Entry, first: bytes) -> Boot | None:
    """Who starts an entry, and how long its image is; None for other processors' firmware.

    Parameters
    ----------
    first
        Its image's first 512 bytes: some programs write platform 0 for UEFI too, and some media
        tell of one sector only, so that the image has to tell itself.

    """
    file_system = _fat_bytes(first) if entry.emulation == _NO_EMULATION else 0
    kind: BootKind
    if entry.platform == _UEFI or (entry.platform == _PC and file_system):
        kind = "uefi"
    elif entry.platform == _PC:
        kind = "bios"
    else:
        return None
    length = entry.sectors * _VIRTUAL
    if kind == "uefi" and entry.sectors < _WHOLE:
        length = file_system
    return Boot(kind, Extent(entry.offset, length))


def patches(doing: str, medium: WindowsMedium, no_prompt: bytes) -> tuple[Patch, ...]:
    """Which bytes go where, so that the medium's UEFI loader asks for no key.

    Raises
    ------
    PreflightError
        When the medium does not start under UEFI, or its loader has too little room.

    """
    places = [boot.extent for boot in medium.boots if boot.kind == "uefi"]
    if not places:
        raise PreflightError(doing, "it does not start under UEFI", _BY_KEY)
    for place in places:
        if len(no_prompt) > place.length:
            raise PreflightError(
                doing,
                f"its loader that asks for no key has {len(no_prompt):,} bytes, and there is room "
                f"for {place.length:,}",
                _BY_KEY,
            )
    return tuple(Patch(place.offset, no_prompt.ljust(place.length, b"\0")) for place in places)


def no_prompt(medium: WindowsMedium) -> tuple[Patch, ...]:
    """The same, with the loader read out of the medium: data, for wherever the medium will be.

    Raises
    ------
    PreflightError
        When it holds no such loader, does not start under UEFI, or has too little room.

    """
    doing = f"making the UEFI loader of '{medium.path}' start without a key press"
    where = medium.no_prompt
    if where is None:
        raise PreflightError(
            doing, "there is no 'efi/microsoft/boot/efisys_noprompt.bin' on it", _BY_KEY
        )
    with medium.path.open("rb") as file:
        return patches(doing, medium, _piece(file, where.offset, where.length))


def overlay(iso: Path, medium: WindowsMedium, out: Path) -> None:
    """Make a qcow2 over the ISO, which stays as it is; its UEFI loader asks for no key.

    Parameters
    ----------
    iso
        Where the medium is for whoever opens the layer, which refers to it by its whole path.
    medium
        As it has been read, there or at another place.
    out
        Must not be there. Takes about 2 MB.

    Raises
    ------
    PreflightError
        When the medium cannot be started that way, the disk is full, or a program is missing.
    BrokenError
        When a program fails.

    """
    from lab.imaging import tools  # noqa: PLC0415  who reads a medium runs no programs

    layers = no_prompt(medium)
    doing = f"making the layer '{out}' over '{iso}'"
    if out.exists():
        raise PreflightError(doing, "there is a file of that name", "remove it, or name another")
    tools.need(doing, "qemu-img", "qemu-io", "setpriv")
    deadline = Deadline(_SECONDS)
    base = str(iso.resolve())
    create = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, str(out)]
    try:
        tools.run(doing, create, deadline)
        for layer in layers:
            _write(doing, out, layer, deadline)
    except BaseException:
        out.unlink(missing_ok=True)
        raise


def _write(doing: str, out: Path, layer: Patch, deadline: Deadline) -> None:
    from lab.imaging import tools  # noqa: PLC0415  the same

    with TemporaryDirectory(prefix="hybridlab-") as scratch:
        content = Path(scratch) / "content"
        content.write_bytes(layer.content)
        # Its words are split at every blank, quoted or not: a path is better not among them.
        verb = f"write -q -s /dev/stdin {layer.offset} {len(layer.content)}"
        command = ["qemu-io", "-f", "qcow2", "-c", verb, str(out)]
        tools.run(doing, command, deadline, stdin=content)


def _entries(data: bytes) -> Iterator[Entry]:
    """The first entry is of the catalogue's own platform; then sections come, each with its own."""
    yield from _entry(data[1], data[_ENTRY : 2 * _ENTRY])
    at, kind = 2 * _ENTRY, _HEADER
    while kind == _HEADER and at + _ENTRY <= len(data):
        kind, platform, count = struct.unpack_from("<BBH", data, at)
        at += _ENTRY
        if kind not in {_HEADER, _LAST_HEADER}:
            return
        while count and at + _ENTRY <= len(data):
            entry = data[at : at + _ENTRY]
            at += _ENTRY
            if entry[0] != _EXTENSION:
                count -= 1
                yield from _entry(platform, entry)


def _entry(platform: int, data: bytes) -> Iterator[Entry]:
    if data[0] == _BOOTABLE:
        sectors, sector = struct.unpack_from("<HI", data, 6)
        yield Entry(platform, data[1] & 0x0F, sectors, sector * SECTOR)


def _fat_bytes(sector: bytes) -> int:
    """Size of the FAT file system that begins with this sector; 0 if none does."""
    if sector[510:512] != b"\x55\xaa" or sector[:1] not in {b"\xeb", b"\xe9"}:
        return 0
    if sector[54:57] != b"FAT" and sector[82:85] != b"FAT":
        return 0
    (unit,) = struct.unpack_from("<H", sector, 11)
    (small,) = struct.unpack_from("<H", sector, 19)
    (large,) = struct.unpack_from("<I", sector, 32)
    return int(unit * (small or large))


def _piece(file: BinaryIO, offset: int, length: int) -> bytes:
    file.seek(offset)
    return file.read(length)
