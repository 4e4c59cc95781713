"""The stand-in's media: the setup ISO, Microsoft-like outside and a small Linux inside, and the
one that stands for virtio-win."""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import media_maker
import pycdlib
from stand_in import boots
from stand_in.linux import Linux

from lab.imaging import initramfs

TESTS = Path(__file__).parents[1]
INIT = Path(__file__).with_name("init.sh")
PROGRAMS = ("stand_in/guest", "double")
"""What of the tests runs inside."""
ORDER = "/stand-in/order.json"
MUTANT = "/stand-in/mutant.txt"
VIRTIO_DRIVERS = (
    "Balloon",
    "NetKVM",
    "pvpanic",
    "qemufwcfg",
    "vioinput",
    "viorng",
    "vioscsi",
    "vioserial",
    "viostor",
)


def make(  # noqa: PLR0913  each has its usual value
    folder: Path,
    linux: Linux,
    *,
    order: Mapping[str, Sequence[str]],
    mutants: Sequence[str] = (),
    year: str = "2022",
    channel: media_maker.Channel = "evaluation",
    **others: Any,
) -> Path:
    """A setup ISO in ``folder``.

    Parameters
    ----------
    order
        The golden order of commands: ``windowsPE``, ``specialize``, ``first-logon``, ``clone``
        and ``steps`` to their lines.
    mutants
        Faults that it has, by their names in `stand_in.guest.mutants`.
    others
        For `media_maker.make`.

    """
    scratch = folder / "loaders"
    scratch.mkdir(parents=True)
    made = boots.loaders(linux, scratch)
    files: dict[str, media_maker.Content] = {
        "/stand-in/kernel": linux.kernel,
        "/stand-in/initrd": ramdisk(linux),
        "/stand-in/root.ext4": linux.root,
        "/stand-in/disk.img": made.disk_bios,
        "/stand-in/bootx64.efi": made.disk_uefi,
        ORDER: json.dumps(order).encode(),
        MUTANT: "\n".join(("", *mutants)).encode() + b"\n",
    }
    iso = media_maker.make(
        folder,
        year=year,
        channel=channel,
        boots=media_maker.Boots(made.bios, made.uefi, made.uefi_no_prompt),
        files=files,
        **others,
    )
    boots.tell_where(iso, len(made.bios))
    return iso


def ramdisk(linux: Linux) -> bytes:
    """The initramfs: busybox, modules, and the programs of the tests that run inside."""
    names = ("bin", "dev", "lower", "modules", "proc", "programs", "root", "seed", "sys", "upper")
    entries = [initramfs.folder(name) for name in names]
    entries += [
        initramfs.program("init", INIT.read_bytes()),
        initramfs.program("bin/busybox", linux.busybox.read_bytes()),
    ]
    for path in sorted(linux.modules.iterdir()):
        entries.append(initramfs.file(f"modules/{path.name}", path.read_bytes()))
    folders: set[str] = set()
    for program in PROGRAMS:
        for path in sorted((TESTS / program).glob("*.py")):
            name = f"programs/{path.relative_to(TESTS)}"
            for parent in reversed(Path(name).parents[:-2]):
                if str(parent) not in folders:
                    folders.add(str(parent))
                    entries.append(initramfs.folder(str(parent)))
            entries.append(initramfs.Entry(name, stat.S_IFREG | 0o644, path.read_bytes()))
    return initramfs.archive(entries)


def virtio_win(target: Path) -> Path:
    """A medium that is laid out as virtio-win's, with drivers that are none."""
    files: dict[str, bytes] = {"/virtio-win-guest-tools.exe": b"MZ stand-in of the guest tools"}
    for driver in VIRTIO_DRIVERS:
        for release in ("2k19", "2k22", "2k25"):
            for ending in ("inf", "sys", "cat"):
                path = f"/{driver}/{release}/amd64/{driver.lower()}.{ending}"
                files[path] = f"stand-in of {driver} for {release}\r\n".encode()
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, vol_ident="virtio-win-0.1")
    folders: set[str] = set()
    for number, (path, content) in enumerate(sorted(files.items())):
        for parent in reversed(Path(path).parents[:-1]):
            if str(parent) not in folders:
                folders.add(str(parent))
                iso.add_directory(iso_path=_short(parent), joliet_path=str(parent))
        name = f"{_short(Path(path).parent).rstrip('/')}/F{number:07}.;1"
        iso.add_fp(io.BytesIO(content), len(content), name, joliet_path=path)
    iso.write(str(target))
    iso.close()
    return target


def _short(folder: Path) -> str:
    """A folder's name as ISO 9660 wants it."""
    return str(folder).upper()
