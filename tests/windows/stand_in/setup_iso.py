"""The stand-in's setup ISO: like Microsoft's from outside, with a small Linux inside."""

from __future__ import annotations

from pathlib import Path

import media_maker
from stand_in import boots
from stand_in.linux import Linux

from lab.imaging import bootstrap

TESTS = Path(__file__).parents[1]
INIT = Path(__file__).with_name("init.sh")
PROGRAMS = ("stand_in/guest", "double")
"""Directories of the tests that run inside."""


def make(folder: Path, linux: Linux) -> Path:
    """A setup ISO in ``folder``."""
    scratch = folder / "loaders"
    scratch.mkdir(parents=True)
    made = boots.loaders(linux, scratch)
    files: dict[str, media_maker.Content] = {
        "/stand-in/kernel": linux.kernel,
        "/stand-in/initrd": ramdisk(linux),
        "/stand-in/root.ext4": linux.root,
        "/stand-in/disk.img": made.disk_bios,
        "/stand-in/bootx64.efi": made.disk_uefi,
    }
    loaders = media_maker.Boots(made.bios, made.uefi, made.uefi_no_prompt)
    iso = media_maker.make(folder, boots=loaders, files=files)
    boots.tell_where(iso, len(made.bios))
    return iso


def ramdisk(linux: Linux) -> bytes:
    """The initramfs: busybox, modules, and the programs of the tests that run inside."""
    names = ("bin", "dev", "lower", "modules", "proc", "programs", "root", "seed", "sys", "upper")
    files = {"init": INIT.read_bytes(), "bin/busybox": linux.busybox.read_bytes()}
    for path in sorted(linux.modules.iterdir()):
        files[f"modules/{path.name}"] = path.read_bytes()
    folders = dict.fromkeys(names)
    for program in PROGRAMS:
        for path in sorted((TESTS / program).glob("*.py")):
            name = f"programs/{path.relative_to(TESTS)}"
            folders |= dict.fromkeys(str(one) for one in reversed(Path(name).parents[:-2]))
            files[name] = path.read_bytes()
    return bootstrap.archive(files, folders, executable=("init", "bin/busybox"))
