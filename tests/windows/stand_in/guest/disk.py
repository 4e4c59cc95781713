"""The disk of an installation: partitions from the answer file, and its boot loader."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stand_in.guest.answer import Partition
from stand_in.guest.screen import StopError, flush

KINDS = {
    "uefi": {
        "EFI": "C12A7328-F81F-11D2-BA4B-00A0C93EC93B",
        "MSR": "E3C9E316-0B5C-4DB8-817D-F92DF00215AE",
        "Primary": "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7",
    },
    "bios": {"Primary": "7"},
}
"""Firmware to kinds of partitions with their GPT or MBR types."""
BEFORE_FIRST = 1 << 20
BOOT_CODE = 440
"""Bytes of the loader in the first sector, before signature and partition table."""
CHUNK = 4 << 20
NTFS_BYTES = 8 << 30
"""Size of the NTFS volume in Windows' partition; ``init.sh`` also has this number."""
OWN = Path("/dev/loop1")
"""The rest of Windows' partition."""
SHARE = "/c/Windows/stand-in"
LAID_DOWN = 320 << 20
"""Bytes of filler files, which make the disk grow like Windows' files."""


@dataclass(frozen=True)
class Source:
    """The files to install."""

    medium: Path
    """Folder of the setup medium."""
    firmware: str


def script(partitions: Sequence[Partition], firmware: str) -> str:
    """The script for sfdisk."""
    label = "gpt" if firmware == "uefi" else "dos"
    lines = [f"label: {label}", "first-lba: 2048"] if label == "gpt" else [f"label: {label}"]
    for one in partitions:
        size = "" if one.mib is None else f"size={one.mib}MiB, "
        active = ", bootable" if one.active else ""
        lines.append(f"{size}type={KINDS[firmware][one.kind]}{active}")
    return "\n".join(lines) + "\n"


def found(seconds: float) -> str | None:
    """The first disk; None if none appears."""
    for _ in range(int(seconds * 10)):
        names = sorted(
            path.name for kind in ("vd*", "sd*") for path in Path("/sys/block").glob(kind)
        )
        if names:
            return names[0]
        time.sleep(0.1)
    return None


def partition(name: str, partitions: Sequence[Partition], target: int, firmware: str) -> None:
    """Partition and format the disk; mount Windows' at ``/c``, EFI's at ``/media/efi``."""
    _run(["sfdisk", "--quiet", "--wipe", "always", f"/dev/{name}"], script(partitions, firmware))
    for one in partitions:
        device = Path(f"/dev/{name}{one.number}")
        for _ in range(100):
            if device.exists():
                break
            time.sleep(0.05)
        mine = one.number == target
        if one.format == "FAT32":
            _run(["mkfs.vfat", "-F", "32", "-n", one.label.upper()[:11] or "SYSTEM", str(device)])
        elif one.format == "NTFS":
            sectors = [str(NTFS_BYTES // 512)] if mine else []
            _run(["mkntfs", "-Q", "-F", "-q", "-L", one.label[:16], str(device), *sectors])
        if one.kind == "EFI":
            _mount(device, "/media/efi", "vfat")
        if mine:
            _own(device)


def _own(device: Path) -> None:
    """The stand-in's own file system after the NTFS volume, for which its kernel has no driver."""
    _run(["/bin/busybox", "losetup", "-o", str(NTFS_BYTES), str(OWN), str(device)])
    features = "^metadata_csum,^orphan_file"
    lazy = "lazy_itable_init=1,lazy_journal_init=1,nodiscard"
    small = ["-N", "65536", "-J", "size=16"]
    _run(["mke2fs", "-q", "-F", "-t", "ext4", "-O", features, "-E", lazy, *small, str(OWN)])
    _mount(OWN, "/c", "ext4")


@contextmanager
def ntfs() -> Iterator[Path]:
    """Windows' drive C, mounted with ntfs-3g."""
    device = Path(f"/sys/block/{OWN.name}/loop/backing_file").read_text().strip()
    place = Path("/tmp/ntfs")
    place.mkdir(exist_ok=True)
    _run(["ntfs-3g", device, str(place)])
    try:
        yield place
    finally:
        _run(["/bin/busybox", "umount", str(place)])


def keep_panther() -> None:
    """Copy this system's folder Panther to drive C."""
    source = Path("/c/Windows/Panther")
    with ntfs() as drive:
        target = drive / "Windows/Panther"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for path in sorted(source.glob("*")):
            (target / path.name).write_bytes(path.read_bytes())


def lay_down(name: str, source: Source) -> None:
    """Copy the system and filler bytes, so that the disk grows for a while as under Setup."""
    share = Path(SHARE)
    share.mkdir(parents=True)
    _copy(source.medium / "root.ext4", share / "root.ext4")
    with ntfs() as drive:  # read by the loader
        folder = drive / "Windows/stand-in"
        folder.mkdir(parents=True)
        for one in ("kernel", "initrd"):
            _copy(source.medium / one, folder / one)
    keep_panther()
    with (share / "laid-down").open("wb", buffering=0) as out:
        for _ in range(LAID_DOWN // CHUNK):
            out.write(os.urandom(1 << 12) * (CHUNK >> 12))
            os.fdatasync(out.fileno())
    _loader(name, source)
    flush()


def _copy(what: Path, target: Path) -> None:
    with what.open("rb") as from_, target.open("wb", buffering=0) as out:
        while piece := from_.read(CHUNK):
            out.write(piece)
            os.fdatasync(out.fileno())


def _loader(name: str, source: Source) -> None:
    if source.firmware == "uefi":
        folder = Path("/media/efi/EFI/BOOT")
        folder.mkdir(parents=True)
        _copy(source.medium / "bootx64.efi", folder / "BOOTX64.EFI")
        _run(["/bin/busybox", "umount", "/media/efi"])
        return
    code = (source.medium / "disk.img").read_bytes()
    if len(code) > BEFORE_FIRST:
        raise StopError("the loader does not fit before the first partition")
    with Path(f"/dev/{name}").open("r+b", buffering=0) as disk:
        disk.write(code[:BOOT_CODE])
        disk.seek(512)
        disk.write(code[512:])


def _mount(device: Path, place: str, kind: str) -> None:
    Path(place).mkdir(parents=True, exist_ok=True)
    _run(["/bin/busybox", "mount", "-t", kind, str(device), place])


def _run(command: list[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StopError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
