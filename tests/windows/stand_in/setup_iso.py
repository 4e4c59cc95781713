"""The stand-in's setup ISO: like Microsoft's from outside, with a small Linux inside.

GRUB starts it, from the medium and from the disk; its prompt waits for a key like Microsoft's.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import media_maker
from stand_in.linux import Linux

from lab.machines.images import bootstrap

TESTS = Path(__file__).parents[1]
HERE = Path(__file__).parent
PROGRAMS = ("stand_in", "double")
"""Directories of the tests that run inside."""
_MODULES = (
    *("normal", "memdisk", "tar", "echo", "test", "sleep", "search", "search_fs_file"),
    *("part_msdos", "part_gpt", "ntfs", "udf", "linux", "boot", "minicmd"),
)
_OF_FIRMWARE = {"x86_64-efi": ("fat", "efi_gop", "all_video"), "i386-pc": ("biosdisk", "chain")}


def make(folder: Path, linux: Linux) -> Path:
    """A setup ISO in ``folder``."""
    scratch = folder / "loaders"
    scratch.mkdir(parents=True)
    boot = (linux.grub / "i386-pc/boot.img").read_bytes()
    files: dict[str, media_maker.Content] = {
        "/stand-in/kernel": linux.kernel,
        "/stand-in/initrd": _ramdisk(linux),
        "/stand-in/root.ext4": linux.root,
        "/stand-in/disk.img": boot + _grub(linux, scratch, "i386-pc", "disk"),
        "/stand-in/bootx64.efi": _grub(linux, scratch, "x86_64-efi", "disk"),
    }
    boots = media_maker.Boots(
        bios=_grub(linux, scratch, "i386-pc-eltorito", "medium-bios"),
        uefi=_floppy(_grub(linux, scratch, "x86_64-efi", "medium-uefi"), scratch),
        uefi_no_prompt=_floppy(_grub(linux, scratch, "x86_64-efi", "medium"), scratch),
        bios_table=True,
    )
    return media_maker.make(folder, boots=boots, files=files)


def _ramdisk(linux: Linux) -> bytes:
    """The initramfs: busybox, modules, and the programs of the tests that run inside."""
    names = ("bin", "dev", "lower", "modules", "proc", "programs", "root", "seed", "sys", "upper")
    files = {"init": (HERE / "init.sh").read_bytes(), "bin/busybox": linux.busybox.read_bytes()}
    files |= {f"modules/{path.name}": path.read_bytes() for path in linux.modules.iterdir()}
    folders = [*names]
    for folder in (TESTS / program for program in PROGRAMS):
        for path in (folder, *sorted(folder.rglob("*"))):
            name = f"programs/{path.relative_to(TESTS)}"
            if path.is_dir():
                folders.append(name)
            elif path.suffix != ".pyc":
                files[name] = path.read_bytes()
    programs = ("init", "bin/busybox", "programs/stand_in/guest/lease.sh")
    return bootstrap.archive(files, folders, executable=programs)


def _grub(linux: Linux, scratch: Path, target: str, script: str) -> bytes:
    """GRUB with an embedded script of the directory ``grub``."""
    disk, made = scratch / "memdisk.tar", scratch / "made"
    with tarfile.open(disk, "w", format=tarfile.USTAR_FORMAT) as tar:
        tar.add(HERE / "grub" / f"{script}.cfg", "boot/grub/grub.cfg")
    firmware = target.removesuffix("-eltorito")
    command = ["grub-mkimage", "-O", target, "-d", str(linux.grub / firmware), "-m", str(disk)]
    subprocess.run([*command, "-o", str(made), *_MODULES, *_OF_FIRMWARE[firmware]], check=True)
    return made.read_bytes()


def _floppy(loader: bytes, scratch: Path) -> bytes:
    """A FAT file system of floppy size with an EFI loader."""
    image, program = scratch / "floppy.img", scratch / "bootx64.efi"
    image.write_bytes(bytes(media_maker.FLOPPY))
    program.write_bytes(loader)
    for command in (
        ["mformat", "-i", str(image), "-f", "1440", "::"],
        ["mmd", "-i", str(image), "::/EFI", "::/EFI/BOOT"],
        ["mcopy", "-i", str(image), str(program), "::/EFI/BOOT/BOOTX64.EFI"],
    ):
        subprocess.run(command, check=True, env={**os.environ, "MTOOLS_SKIP_CHECK": "1"})
    return image.read_bytes()
