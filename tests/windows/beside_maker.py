"""Test versions of the files besides the installation medium: virtio-win's ISO, OpenSSH's archive.

They have the original layout, but no drivers or programs.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pycdlib

DRIVERS = (
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
RELEASES = ("2k19", "2k22", "2k25")


def openssh(target: Path) -> Path:
    """An archive with the layout of Win32-OpenSSH's."""
    with zipfile.ZipFile(target, "w") as archive:
        for name in ("sshd.exe", "ssh-keygen.exe", "install-sshd.ps1"):
            archive.writestr(f"OpenSSH-Win64/{name}", f"stand-in of {name}")
    return target


def virtio_win(
    target: Path, drivers: Sequence[str] = DRIVERS, releases: Sequence[str] = RELEASES
) -> Path:
    """A medium with the layout of virtio-win's, with dummy drivers."""
    files: dict[str, bytes] = {"/virtio-win-guest-tools.exe": b"MZ stand-in of the guest tools"}
    for driver in drivers:
        for release in releases:
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
    """A folder's name for ISO 9660."""
    return str(folder).upper()
