"""Disks of a Windows that is off: real NTFS (mkntfs, wimlib), not bootable."""

from __future__ import annotations

import shutil
import struct
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

_PROGRAMS = ("mkntfs", "wimlib-imagex", "qemu-img", "ntfsls", "ntfscat")
_FIRST = 2048
_BASIC = uuid.UUID("EBD0A0A2-B9E5-4433-87C0-68B6B72699C7").bytes_le


def missing() -> str:
    """Programs that are not installed."""
    place = "/usr/sbin:/usr/bin:/sbin:/bin"
    return ", ".join(program for program in _PROGRAMS if not shutil.which(program, path=place))


def volume(target: Path, files: Mapping[str, bytes], mib: int) -> None:
    """An NTFS volume in a file."""
    tree, packed = target.with_suffix(".tree"), target.with_suffix(".wim")
    for path, content in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
    with target.open("wb") as file:
        file.truncate(mib << 20)
    for command in (
        ["/usr/sbin/mkntfs", "-Q", "-F", "-q", target],
        ["wimlib-imagex", "capture", tree, packed, "--no-acls"],
        ["wimlib-imagex", "apply", packed, "1", target],
    ):
        subprocess.run(command, check=True, capture_output=True)
    shutil.rmtree(tree)
    packed.unlink()


def disk(
    target: Path, files: Mapping[str, bytes], firmware: str = "bios", boot: bytes = b""
) -> None:
    """A qcow2 disk: a small volume that is not Windows', and then drive C.

    ``boot``: the boot sector for a BIOS.
    """
    assert len(boot) <= 440, "the program is too long for one sector"
    parts = []
    for number, (content, mib) in enumerate((({"bootmgr": b"x"}, 8), (files, 32))):
        parts.append(target.with_suffix(f".{number}"))
        volume(parts[-1], content, mib)
    sizes = [path.stat().st_size // 512 for path in parts]
    begins = [_FIRST, _FIRST + sizes[0]]
    head = bytearray(boot.ljust(_FIRST * 512, b"\0"))
    for number, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
        if firmware == "uefi":
            entry = _BASIC + uuid.uuid4().bytes + struct.pack("<QQ", begin, begin + size - 1)
            head[1024 + 128 * number : 1024 + 128 * number + len(entry)] = entry
        else:
            entry = struct.pack("<B3xB3xII", 0x80 * (number == 0), 7, begin, size)
            head[446 + 16 * number : 462 + 16 * number] = entry
    if firmware == "uefi":
        head[512:520] = b"EFI PART"
        struct.pack_into("<QII", head, 512 + 72, 2, 128, 128)
    head[510:512] = b"\x55\xaa"
    whole = target.with_suffix(".whole")
    whole.write_bytes(bytes(head) + b"".join(path.read_bytes() for path in parts))
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", whole, target], check=True)
    for path in (*parts, whole):
        path.unlink()
