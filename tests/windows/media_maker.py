"""Installation media with Microsoft's layout, created for tests with pycdlib.

They have no content of Microsoft's: they are stand-ins, not Windows. As on real media, ISO 9660
has only ``README.TXT``, which says that UDF is needed; the files are in UDF; two El
Torito entries start BIOS and UEFI::

    made = media_maker.make(directory, year="2022", channel="evaluation")
    made = media_maker.make(directory, boots=Boots(bios=..., uefi=..., uefi_no_prompt=...),
                            files={"/sources/more.bin": b"..."}, images=server_images("2022"))
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pycdlib
import sparse
import wim_maker
from wim_maker import Channel, Container, Image

README = (
    b'This disc contains a "UDF" file system and requires an operating system\r\n'
    b'that supports the ISO-13346 "UDF" file system specification.\r\n'
)
FLOPPY = 2880 * 512
"""Bytes of ``efisys.bin``, a floppy disk image."""
Content = bytes | Path | BinaryIO
"""Bytes; a file; or a seekable object."""
PROMPT = "/efi/microsoft/boot/efisys.bin"
NO_PROMPT = "/efi/microsoft/boot/efisys_noprompt.bin"
BIOS = "/boot/etfsboot.com"
_CHANNELS = {"evaluation": "Eval", "volume": "Volume", "retail": "Retail"}
_LABELS = {"evaluation": "FREE", "volume": "FREV", "retail": "FRE"}


@dataclass(frozen=True)
class Boots:
    """The boot images for firmware."""

    bios: bytes
    uefi: bytes
    uefi_no_prompt: bytes | None
    """None for a medium without it."""
    uefi_sectors: int | None = None
    """512-byte sectors in the boot catalogue; None for the true number. Some media have 1."""
    uefi_platform: int = 0xEF
    """Platform id in the boot catalogue; some programs write 0."""


def floppy(mark: bytes) -> bytes:
    """A FAT boot sector and a mark: identifiable, but not bootable."""
    sector = bytearray(512)
    sector[0:11] = b"\xeb\x3c\x90MSDOS5.0"
    struct.pack_into("<HBHBHHBHHH", sector, 11, 512, 1, 1, 2, 224, 2880, 0xF0, 9, 18, 2)
    sector[54:62] = b"FAT12   "
    sector[510:512] = b"\x55\xaa"
    return (bytes(sector) + mark.ljust(512, b"\0")).ljust(FLOPPY, b"\0")


PLAIN = Boots(
    bios=b"\xfa\x33\xc0 the BIOS loader".ljust(4096, b"\0"),
    uefi=floppy(b"press any key"),
    uefi_no_prompt=floppy(b"no key is asked for"),
)


def make(  # noqa: PLR0913  each has a default
    directory: Path,
    *,
    year: str = "2022",
    channel: Channel = "evaluation",
    container: Container = "wim",
    images: Sequence[Image] | None = None,
    boots: Boots | None = PLAIN,
    files: Mapping[str, Content] | None = None,
    label: str | None = None,
    name: str = "windows.iso",
    **of_images: Any,
) -> Path:
    """Write a medium, and return its path.

    ``images``: images of ``install.wim``; None for the four of the year's server, with
    ``of_images`` (``build``, ``revision``, ``languages``, ``architecture``, ``files``). ``boots``:
    none for a medium that is not bootable. ``files``: additional or replaced files, by their path
    in UDF, also of ``/sources/install.wim``; an empty path's content (``b""``) leaves the usual one
    out.
    """
    chosen = wim_maker.server_images(year, channel, **of_images) if images is None else images
    work = directory / f"{name}.parts"
    usual: dict[str, Content] = dict(_plain_files(channel))
    if not any(path.startswith("/sources/install.") for path in files or {}):
        for part in wim_maker.make(work / "install", chosen, container):
            usual[f"/sources/{part.name}"] = part
    usual["/sources/boot.wim"] = wim_maker.boot_wim(work / "boot", {"setup.exe": b"MZ stand-in"})
    wanted = {path: what for path, what in (usual | dict(files or {})).items() if what != b""}
    target = directory / name
    volume = f"SSS_X64{_LABELS[channel]}_EN-US_DV9" if label is None else label
    write(target, volume, wanted, boots)
    return target


def write(target: Path, label: str, files: Mapping[str, Content], boots: Boots | None) -> None:
    """Write a bridge of ISO 9660 (``README.TXT``) and UDF (everything).

    Holes of a content (`sparse.Holes`) remain holes in the file.
    """
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, vol_ident=label, udf="2.60")
    opened: list[BinaryIO] = []
    try:
        _add(iso, README, opened, iso_path="/README.TXT;1")
        folders: set[str] = {"/"}
        everything = dict(files)
        if boots is not None:
            everything |= {BIOS: boots.bios, PROMPT: boots.uefi}
            if boots.uefi_no_prompt is not None:
                everything[NO_PROMPT] = boots.uefi_no_prompt
        for path in sorted(everything, key=lambda path: (path.startswith("/sources/"), path)):
            _folders(iso, path, folders)
            short = {BIOS: "/B.BIN;1", PROMPT: "/E.BIN;1"}.get(path) if boots else None
            _add(iso, everything[path], opened, iso_path=short, udf_path=path)
        if boots is not None:
            _start_from(iso, boots)
        with target.open("wb") as file:
            iso.write_fp(sparse.Sink(file), blocksize=sparse.BLOCK)
        iso.close()
    finally:
        for content in opened:
            content.close()
    if boots is not None:
        _correct_catalogue(target, boots)


def _start_from(iso: Any, boots: Boots) -> None:
    iso.add_eltorito("/B.BIN;1", boot_load_size=8, udf_bootcatfile="/boot.cat")
    iso.add_eltorito("/E.BIN;1", boot_load_size=boots.uefi_sectors, efi=True)
    for path in ("/B.BIN;1", "/E.BIN;1", "/BOOT.CAT;1"):
        iso.rm_hard_link(iso_path=path)


def _correct_catalogue(target: Path, boots: Boots) -> None:
    """Correct the platform of the section, which pycdlib cannot set."""
    with target.open("r+b") as file:
        file.seek(17 * 2048 + 0x47)
        (block,) = struct.unpack("<I", file.read(4))
        file.seek(block * 2048 + 64)
        header = file.read(1)
        assert header in {b"\x90", b"\x91"}, "the section's header follows the first entry"
        file.write(bytes([boots.uefi_platform]))


def _add(
    iso: Any,
    content: Content,
    opened: list[BinaryIO],
    **paths: str | None,
) -> None:
    if isinstance(content, bytes):
        source: BinaryIO = io.BytesIO(content)
    elif isinstance(content, Path):
        source = content.open("rb")
    else:
        source = content
    opened.append(source)
    length = source.seek(0, io.SEEK_END)
    source.seek(0)
    iso.add_fp(source, length, **paths)


def _folders(iso: Any, path: str, made: set[str]) -> None:
    """Create the parent folders of a file."""
    parts = path.split("/")[1:-1]
    for depth in range(1, len(parts) + 1):
        folder = "/" + "/".join(parts[:depth])
        if folder not in made:
            iso.add_directory(udf_path=folder)
            made.add(folder)


def _plain_files(channel: Channel) -> dict[str, bytes]:
    told = "1" if channel == "volume" else "0"
    return {
        "/autorun.inf": b"[AutoRun.Amd64]\r\nopen=setup.exe\r\n",
        "/bootmgr": b"stand-in of bootmgr",
        "/bootmgr.efi": b"MZ stand-in of bootmgr.efi",
        "/setup.exe": b"MZ stand-in of setup.exe",
        "/boot/bcd": b"regf",
        "/boot/boot.sdi": bytes(4096),
        "/efi/boot/bootx64.efi": b"MZ stand-in of bootx64.efi",
        "/efi/microsoft/boot/bcd": b"regf",
        "/sources/ei.cfg": (
            f"[EditionID]\r\n\r\n[Channel]\r\n{_CHANNELS[channel]}\r\n\r\n[VL]\r\n{told}\r\n"
        ).encode(),
        "/sources/lang.ini": b"[Available UI Languages]\r\nen-US = 3\r\n",
        "/sources/setup.exe": b"MZ stand-in of setup.exe",
    }
