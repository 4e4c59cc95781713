"""Installation media with Microsoft's layout, created for tests with pycdlib and wimlib.

What lies beside them too: virtio-win's medium and OpenSSH's archive.
They have no content of Microsoft's: they are stand-ins, not Windows. As on real media, ISO 9660
has only ``README.TXT``, which says that UDF is needed; the files are in UDF; two El
Torito entries start BIOS and UEFI::

    made = media_maker.make(directory, year="2022", channel="evaluation")
    made = media_maker.make(directory, boots=Boots(bios=..., uefi=..., uefi_no_prompt=...),
                            files={"/sources/more.bin": b"..."})
"""

from __future__ import annotations

import io
import struct
import subprocess
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pycdlib

from lab.machines.images.medium import medium

Channel = Literal["evaluation", "volume"]
Container = Literal["wim", "esd", "swm"]
Content = bytes | Path
BUILDS = {"2019": (17763, 3650), "2022": (20348, 587), "2025": (26100, 32230)}
"""Builds and revisions of the public evaluation media."""
README = (
    b'This disc contains a "UDF" file system and requires an operating system\r\n'
    b'that supports the ISO-13346 "UDF" file system specification.\r\n'
)
FLOPPY = 2880 * 512
"""Bytes of ``efisys.bin``, a floppy disk image."""
PROMPT = "/efi/microsoft/boot/efisys.bin"
NO_PROMPT = "/efi/microsoft/boot/efisys_noprompt.bin"
BIOS = "/boot/etfsboot.com"
_WORDS = {"evaluation": ("Eval", "FREE", 0), "volume": ("Volume", "FREV", 1)}
"""Channel to its name in ``ei.cfg``, its part of the label, and whether it has volume keys."""
DRIVERS = (
    *("Balloon", "NetKVM", "pvpanic", "qemufwcfg", "vioinput", "viorng", "vioscsi"),
    *("vioserial", "viostor"),
)
RELEASES = ("2k19", "2k22", "2k25")
_WIM_HEADER = 208
_BLOCK = 1 << 20
_ZEROS = bytes(_BLOCK)


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
    bios_table: bool = False
    """Whether the BIOS loader is told its place: mkisofs' boot information table."""


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
    build: str = "",
    boots: Boots | None = PLAIN,
    files: Mapping[str, Content] | None = None,
    name: str = "windows.iso",
) -> Path:
    """Write a medium, and return its path.

    ``build``: of the images, else the year's. ``boots``: none for a medium that is not bootable.
    ``files``: additional or replaced files, by their path in UDF, also of ``/sources/install.wim``;
    an empty path's content (``b""``) leaves the usual one out.
    """
    work = directory / f"{name}.parts"
    usual: dict[str, Content] = dict(_plain_files(channel))
    if not any(path.startswith("/sources/install.") for path in files or {}):
        for part in install_wim(work / "install", year, channel, container, build):
            usual[f"/sources/{part.name}"] = part
    usual["/sources/boot.wim"] = _boot_wim(work / "boot")
    wanted = {path: what for path, what in (usual | dict(files or {})).items() if what != b""}
    target = directory / name
    _write(target, f"SSS_X64{_WORDS[channel][1]}_EN-US_DV9", wanted, boots)
    return target


def _write(target: Path, label: str, files: Mapping[str, Content], boots: Boots | None) -> None:
    """Write a bridge of ISO 9660 (``README.TXT``) and UDF (everything)."""
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, vol_ident=label, udf="2.60")
    _add(iso, README, iso_path="/README.TXT;1")
    everything = dict(files)
    if boots is not None:
        everything |= {BIOS: boots.bios, PROMPT: boots.uefi}
        if boots.uefi_no_prompt is not None:
            everything[NO_PROMPT] = boots.uefi_no_prompt
    folders = {str(folder) for path in everything for folder in PurePosixPath(path).parents}
    for folder in sorted(folders - {"/"}):
        iso.add_directory(udf_path=folder)
    for path in sorted(everything, key=lambda path: (path.startswith("/sources/"), path)):
        short = {BIOS: "/B.BIN;1", PROMPT: "/E.BIN;1"}.get(path) if boots else None
        _add(iso, everything[path], iso_path=short, udf_path=path)
    if boots is not None:
        iso.add_eltorito(
            "/B.BIN;1",
            boot_load_size=8,
            boot_info_table=boots.bios_table,
            udf_bootcatfile="/boot.cat",
        )
        iso.add_eltorito("/E.BIN;1", boot_load_size=boots.uefi_sectors, efi=True)
        for path in ("/B.BIN;1", "/E.BIN;1", "/BOOT.CAT;1"):
            iso.rm_hard_link(iso_path=path)
    save(iso, target)
    if boots is not None:
        _correct_catalogue(target, boots)


def save(iso: Any, target: Path) -> None:
    """Write an ISO of pycdlib's, with holes for zeros, and close it."""
    with _Sparse(io.FileIO(target, "wb")) as file:
        iso.write_fp(file, blocksize=_BLOCK)
    iso.close()


class _Sparse(io.BufferedWriter):
    def write(self, content: Any) -> int:
        if content != _ZEROS:
            return super().write(content)
        self.seek(_BLOCK, io.SEEK_CUR)
        return _BLOCK


def _correct_catalogue(target: Path, boots: Boots) -> None:
    """Correct the platform of the section, which pycdlib cannot set."""
    with target.open("r+b") as file:
        file.seek(17 * 2048 + 0x47)
        (block,) = struct.unpack("<I", file.read(4))
        file.seek(block * 2048 + 64)
        header = file.read(1)
        assert header in {b"\x90", b"\x91"}, "the section's header follows the first entry"
        file.write(bytes([boots.uefi_platform]))


def _add(iso: Any, content: Content, **paths: str | None) -> None:
    if isinstance(content, Path):
        iso.add_file(str(content), **paths)
    else:
        iso.add_fp(io.BytesIO(content), len(content), **paths)


def _plain_files(channel: Channel) -> dict[str, bytes]:
    name, _, keys = _WORDS[channel]
    return {
        "/bootmgr": b"stand-in of bootmgr",
        "/setup.exe": b"MZ stand-in of setup.exe",
        "/efi/boot/bootx64.efi": b"MZ stand-in of bootx64.efi",
        "/sources/ei.cfg": (
            f"[EditionID]\r\n\r\n[Channel]\r\n{name}\r\n\r\n[VL]\r\n{keys}\r\n".encode()
        ),
        "/sources/setup.exe": b"MZ stand-in of setup.exe",
    }


def install_wim(
    directory: Path,
    year: str = "2022",
    channel: Channel = "evaluation",
    container: Container = "wim",
    build: str = "",
) -> list[Path]:
    """Write ``install.wim``, ``install.esd``, or ``install.swm`` with its other parts, in order.

    It has the four images of every Windows Server medium.
    """
    whole = directory / "install.wim"
    usual, revision = BUILDS[year]
    suffix, word = ("Eval", " Evaluation") if channel == "evaluation" else ("", "")
    _capture(
        whole,
        (
            (
                f"Windows Server {year} SERVER{edition.upper()}{'CORE' if core else ''}",
                f"Windows Server {year} {edition}{word}{'' if core else ' (Desktop Experience)'}",
                {
                    "EDITIONID": f"Server{edition}{suffix}",
                    "INSTALLATIONTYPE": "Server Core" if core else "Server",
                    "VERSION/BUILD": build or str(usual),
                    "VERSION/SPBUILD": str(revision),
                },
            )
            for edition in ("Standard", "Datacenter")
            for core in (True, False)
        ),
    )
    if container == "wim":
        return [whole]
    parts = directory / f"install.{container}"
    if container == "esd":
        _wimlib("export", whole, "all", parts, "--solid")
    else:
        _wimlib("split", whole, parts, "0.1")
    whole.unlink()
    return sorted(directory.glob("install*"), key=lambda path: (len(path.name), path.name))


def _boot_wim(directory: Path) -> Path:
    """``boot.wim``: the two images that Setup runs from."""
    own = {"EDITIONID": "WindowsPE", "INSTALLATIONTYPE": "WindowsPE"}
    names = ("Microsoft Windows PE (amd64)", "Microsoft Windows Setup (amd64)")
    _capture(directory / "boot.wim", ((name, name, own) for name in names))
    return directory / "boot.wim"


def _capture(wim: Path, images: Iterable[tuple[str, str, Mapping[str, str]]]) -> None:
    """Write a WIM of images: name, the name that is shown, properties."""
    wim.parent.mkdir(parents=True)
    for number, (name, shown, own) in enumerate(images, start=1):
        tree = wim.parent / f"tree-{number}/Windows/System32"
        tree.mkdir(parents=True)
        # Enough random data for the images to fill more than one part of a split set.
        filling = bytes((number * 31 + at * at) % 251 for at in range(1 << 10)) * 90
        (tree / "ntoskrnl.exe").write_bytes(filling + bytes([number]))
        properties = {
            "ARCH": "9",
            "LANGUAGES/LANGUAGE": "en-US",
            "LANGUAGES/DEFAULT": "en-US",
            "VERSION/MAJOR": "10",
            "VERSION/MINOR": "0",
            **own,
        }
        words = [f"--image-property=WINDOWS/{key}={value}" for key, value in properties.items()]
        words += [f"--image-property=DISPLAYNAME={shown}", "--compress=none"]
        verb = "capture" if number == 1 else "append"
        _wimlib(verb, tree.parents[1], wim, name, f"{shown}, a stand-in", *words)


def grow(wim: Path, size: int) -> None:
    """Enlarge a WIM to this many bytes by a hole.

    The resource table (header 0x30) and XML (0x48) move to the end, where they are in real WIMs.
    """
    with wim.open("r+b") as file:
        head = bytearray(file.read(_WIM_HEADER))
        for at in (0x48, 0x30):
            length, offset, _ = struct.unpack_from("<QQQ", head, at)
            length &= (1 << 56) - 1
            size -= length
            file.seek(offset)
            moved = file.read(length)
            file.seek(size)
            file.write(moved)
            struct.pack_into("<Q", head, at + 8, size)
        file.seek(0)
        file.write(head)


def _wimlib(*arguments: str | Path) -> None:
    words = ["wimlib-imagex", *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


def openssh(target: Path) -> Path:
    """An archive with the layout of Win32-OpenSSH's."""
    with zipfile.ZipFile(target, "w") as archive:
        for name in ("sshd.exe", "ssh-keygen.exe", "install-sshd.ps1"):
            archive.writestr(f"OpenSSH-Win64/{name}", f"stand-in of {name}")
    return target


_LABEL = slice(16 * 2048 + 40, 16 * 2048 + 72)
"""The volume identifier in the primary volume descriptor (ECMA-119, 8.4)."""


def virtio_win(
    target: Path,
    drivers: Sequence[str] = DRIVERS,
    releases: Sequence[str] = RELEASES,
    label: str = "virtio-win-0.1",
) -> Path:
    """A medium with the layout of virtio-win's, with dummy drivers."""
    files: dict[str, bytes] = {}
    for driver in drivers:
        for release in releases:
            for ending in ("inf", "sys", "cat"):
                path = f"{driver}/{release}/amd64/{driver.lower()}.{ending}"
                files[path] = f"stand-in of {driver} for {release}\r\n".encode()
    content = bytearray(medium("virtio-win", files))
    content[_LABEL] = label.ljust(_LABEL.stop - _LABEL.start).encode()
    target.write_bytes(content)
    return target
