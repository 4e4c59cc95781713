"""What stands beside Microsoft's medium: the virtio-win ISO and the archive of Win32-OpenSSH.

Looked at before anything boots: without its drivers Setup would say, minutes later, that there is
no disk; without sshd the first logon would fail after half an hour.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from lab._errors import PreflightError
from lab.imaging.windows.iso import opened
from lab.imaging.windows.release import Release
from lab.imaging.windows.tree import Tree

_STORAGE, _CARD = "viostor", "NetKVM"
"""Folders of the drivers without which nothing can be installed, or reached."""
_DRIVERS_CURE = "give the whole virtio-win ISO, of a version that has this release"
_DAEMON = "sshd.exe"
_OPENSSH_CURE = "give OpenSSH-Win64.zip of a release of Win32-OpenSSH"
_ARCHIVE_MOST = 256 << 20
"""Bytes; the archive has some 5 MB, and goes onto the answer medium."""


def check_drivers(path: Path, release: Release) -> None:
    """See that a medium has the drivers of disk and card for a release.

    Raises
    ------
    PreflightError
        When it cannot be read, is something else, or has no drivers for that release.

    """
    with opened(path, "the virtio-win medium", _DRIVERS_CURE) as (doing, label, tree):
        for driver in (_STORAGE, _CARD):
            folder = f"/{driver}/{release.drivers}/amd64"
            if not any(name.lower().endswith(".inf") for name in tree.names(folder)):
                raise PreflightError(doing, _lack(label, tree, driver, folder), _DRIVERS_CURE)


def check_openssh(path: Path) -> None:
    """See that a file is an archive with Win32-OpenSSH's server in it.

    Raises
    ------
    PreflightError
        When it is not.

    """
    doing = f"reading the archive of OpenSSH '{path}'"
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise PreflightError(doing, "it is no file", _OPENSSH_CURE)
        if size > _ARCHIVE_MOST:
            what = f"it has {size:,} bytes, which is no archive of OpenSSH"
            raise PreflightError(doing, what, _OPENSSH_CURE)
        with zipfile.ZipFile(path) as archive:
            names = [
                name.replace("\\", "/").rpartition("/")[2].lower() for name in archive.namelist()
            ]
    except zipfile.BadZipFile as error:
        raise PreflightError(doing, "it is no whole ZIP archive", _OPENSSH_CURE) from error
    except OSError as error:
        raise PreflightError(doing, f"{error.strerror}", "check the path") from error
    if _DAEMON not in names:
        raise PreflightError(doing, f"it holds no '{_DAEMON}'", _OPENSSH_CURE)


def _lack(label: str, tree: Tree, driver: str, folder: str) -> str:
    called = f"the medium '{label}'"
    releases = [name for name in tree.names(f"/{driver}") if not name.startswith(".")]
    if not releases:
        return f"{called} has no folder '{driver}': it is not the virtio-win ISO"
    return f"{called} has no driver in '{folder[1:]}', but for {', '.join(sorted(releases))}"
