"""Test versions of the files besides the installation medium: virtio-win's ISO, OpenSSH's archive.

They have the original layout, but no drivers or programs.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

from lab.imaging.medium import medium

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
    files: dict[str, bytes] = {"virtio-win-guest-tools.exe": b"MZ stand-in of the guest tools"}
    for driver in drivers:
        for release in releases:
            for ending in ("inf", "sys", "cat"):
                path = f"{driver}/{release}/amd64/{driver.lower()}.{ending}"
                files[path] = f"stand-in of {driver} for {release}\r\n".encode()
    target.write_bytes(medium("virtio-win-0.1", files))
    return target
