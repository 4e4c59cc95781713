"""Boot loaders: GRUB on the medium and on the disk."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from stand_in.linux import Linux

FLOPPY = 2880 * 512
PROMPT = "Press any key to boot from CD or DVD..."
SECONDS = 5
"""Wait of the prompt in seconds, like Microsoft's."""
_QUIET = "quiet loglevel=3 console=tty0 vt.global_cursor_default=0 panic=0 reboot=pci"
_START_MEDIUM = f"""
search --no-floppy --set=root --file /stand-in/kernel
linux /stand-in/kernel {_QUIET} stand_in=medium
initrd /stand-in/initrd
boot
"""
_START_DISK = f"""
search --no-floppy --set=root --file /Windows/stand-in/kernel
linux /Windows/stand-in/kernel {_QUIET} stand_in=disk
initrd /Windows/stand-in/initrd
boot
"""
_ASK = f"""
echo "{PROMPT}"
if sleep --interruptible {SECONDS}; then GO_ON; fi
"""
_BIOS_MEDIUM = (
    "if search --no-floppy --set=disk --file /Windows/stand-in/kernel; then\n"
    + _ASK.replace("GO_ON", "chainloader (hd0)+1; boot")
    + "fi\n"
    + _START_MEDIUM
)
_UEFI_MEDIUM = _ASK.replace("GO_ON", "exit") + _START_MEDIUM
_SCRIPTS = ("normal", "memdisk", "tar", "echo", "test", "sleep", "search", "search_fs_file")
_FILES = ("part_msdos", "part_gpt", "ntfs", "udf", "linux", "boot", "minicmd")
_BIOS_MODULES = (*_SCRIPTS, *_FILES, "biosdisk", "chain")
_UEFI_MODULES = (*_SCRIPTS, *_FILES, "fat", "efi_gop", "all_video")


@dataclass(frozen=True)
class Loaders:
    """All loaders."""

    bios: bytes
    """On the medium: ``etfsboot.com``."""
    uefi: bytes
    """On the medium: ``efisys.bin``, which prompts."""
    uefi_no_prompt: bytes
    """On the medium: ``efisys_noprompt.bin``."""
    disk_bios: bytes
    """On the disk: the sectors before its first partition, without the partition table."""
    disk_uefi: bytes
    """On the disk: ``bootx64.efi``."""


def loaders(linux: Linux, scratch: Path) -> Loaders:
    """Build the loaders in an empty directory."""
    boot = (linux.grub / "i386-pc/boot.img").read_bytes()
    core = _grub(linux, scratch, "i386-pc", _START_DISK)
    return Loaders(
        bios=_grub(linux, scratch, "i386-pc-eltorito", _BIOS_MEDIUM),
        uefi=_floppy(_grub(linux, scratch, "x86_64-efi", _UEFI_MEDIUM), scratch),
        uefi_no_prompt=_floppy(_grub(linux, scratch, "x86_64-efi", _START_MEDIUM), scratch),
        disk_bios=boot + core,
        disk_uefi=_grub(linux, scratch, "x86_64-efi", _START_DISK),
    )


def tell_where(iso: Path, length: int) -> None:
    """Fill in the BIOS loader's boot information table, by which it finds its other parts.

    Format: mkisofs(8), "EL TORITO BOOT INFORMATION TABLE". ``length``: bytes of the loader.
    """
    with iso.open("r+b") as file:
        file.seek(17 * 2048 + 0x47)
        (catalogue,) = struct.unpack("<I", file.read(4))
        file.seek(catalogue * 2048 + 32 + 8)
        (block,) = struct.unpack("<I", file.read(4))
        file.seek(block * 2048)
        words = (file.read(length)[64:] + b"\0\0\0")[: (length - 61) // 4 * 4]
        total = sum(struct.unpack(f"<{len(words) // 4}I", words)) & 0xFFFFFFFF
        file.seek(block * 2048 + 8)
        file.write(struct.pack("<4I", 16, block, length, total))


def _grub(linux: Linux, scratch: Path, target: str, script: str) -> bytes:
    """GRUB with an embedded script."""
    disk, made = scratch / "memdisk.tar", scratch / "made"
    content = script.encode()
    with tarfile.open(disk, "w", format=tarfile.USTAR_FORMAT) as tar:
        info = tarfile.TarInfo("boot/grub/grub.cfg")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    folder = linux.grub / target.removesuffix("-eltorito")
    command = ["grub-mkimage", "-O", target, "-d", str(folder), "-m", str(disk)]
    modules = _UEFI_MODULES if target == "x86_64-efi" else _BIOS_MODULES
    subprocess.run([*command, "-o", str(made), *modules], check=True)
    return made.read_bytes()


def _floppy(loader: bytes, scratch: Path) -> bytes:
    """A FAT file system of floppy size with an EFI loader."""
    image, program = scratch / "floppy.img", scratch / "bootx64.efi"
    image.write_bytes(bytes(FLOPPY))
    program.write_bytes(loader)
    environment = {**os.environ, "MTOOLS_SKIP_CHECK": "1"}
    for command in (
        ["mformat", "-i", str(image), "-f", "1440", "::"],
        ["mmd", "-i", str(image), "::/EFI", "::/EFI/BOOT"],
        ["mcopy", "-i", str(image), str(program), "::/EFI/BOOT/BOOTX64.EFI"],
    ):
        subprocess.run(command, check=True, env=environment)
    return image.read_bytes()
