"""What media are good for: which image of Microsoft's is meant, and what goes beside it.

What is wrong is said on the host, before anything boots: Setup says no more than "No images are
available", and without its drivers, minutes later, that there is no disk.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab._errors import PreflightError
from lab.imaging.medium import Medium, opened
from lab.imaging.windows.medium import WindowsImage, WindowsMedium
from lab.imaging.windows.release import RELEASES, Release, WantedImage

ARCHITECTURE = "x86_64"
"""The only one that Windows Server's containers are made for."""
_SERVERS = "give the ISO of Windows Server 2019, 2022 or 2025"
_STORAGE, _CARD = "viostor", "NetKVM"
"""Folders of the drivers without which nothing can be installed, or reached."""
_DRIVERS_CURE = "give the whole virtio-win ISO, of a version that has this release"
_DAEMON = "sshd.exe"
_OPENSSH_CURE = "give OpenSSH-Win64.zip of a release of Win32-OpenSSH"
_ARCHIVE_MOST = 256 << 20
"""Bytes; the archive has some 5 MB, and goes onto the answer medium."""


@dataclass(frozen=True, slots=True)
class Use:
    """What one recipe would have of a medium."""

    recipe: str
    image: str
    """NAME of the image that it would install."""
    refusal: str
    """Why it cannot; empty if it can."""


def choose(medium: WindowsMedium, wanted: WantedImage) -> WindowsImage:
    """The image that is asked for.

    Raises
    ------
    PreflightError
        When the medium has no such image, or one that cannot be used; with what it holds.

    """
    doing = f"looking for '{wanted.name}' on the medium '{medium.path}'"
    _server(doing, medium)
    for image in medium.images:
        if image.name.lower() == wanted.name.lower():
            _usable(doing, image, wanted.release)
            return image
    releases = sorted({release.name for image in medium.images if (release := _release(image))})
    if releases and wanted.release.name not in releases:
        happened = f"it is a medium of {' and '.join(releases)}"
        hint = f"give the ISO of {wanted.release.name}, or build the image of {releases[0]}"
    else:
        happened = "there is no such image on it"
        hint = "ask for one of those that it holds, or give another ISO"
    raise PreflightError(doing, f"{happened}; {held(medium)}", hint)


def uses(medium: WindowsMedium, recipes: Mapping[str, WantedImage]) -> tuple[Use, ...]:
    """What each recipe would have of a medium, in the order of their names."""
    found = []
    for recipe, wanted in sorted(recipes.items()):
        try:
            choose(medium, wanted)
        except PreflightError as error:
            found.append(Use(recipe, wanted.name, error.happened.partition("; it holds")[0]))
        else:
            found.append(Use(recipe, wanted.name, ""))
    return tuple(found)


def held(medium: WindowsMedium) -> str:
    """The images of a medium, in words: ``it holds`` and a line for each."""
    lines = [
        f"\n    {image.index} '{image.name}' ('{image.display_name}'), {version(image)}"
        for image in medium.images
    ]
    return f"it holds{''.join(lines)}" if lines else "it holds no images"


def version(image: WindowsImage) -> str:
    """``build 20348.587``."""
    return f"build {image.build}.{image.revision}"


def check_drivers(path: Path, release: Release) -> None:
    """See that the virtio-win medium has the drivers of disk and card for a release.

    Raises
    ------
    PreflightError
        When it cannot be read, is something else, or has no drivers for that release.

    """
    with opened(path, f"reading the virtio-win medium '{path}'", _DRIVERS_CURE) as medium:
        for driver in (_STORAGE, _CARD):
            folder = f"/{driver}/{release.drivers}/amd64"
            if not any(name.lower().endswith(".inf") for name in medium.names(folder)):
                raise PreflightError(medium.doing, _lack(medium, driver, folder), _DRIVERS_CURE)


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


def _lack(medium: Medium, driver: str, folder: str) -> str:
    called = f"the medium '{medium.label}'"
    releases = [name for name in medium.names(f"/{driver}") if not name.startswith(".")]
    if not releases:
        return f"{called} has no folder '{driver}': it is not the virtio-win ISO"
    return f"{called} has no driver in '{folder[1:]}', but for {', '.join(sorted(releases))}"


def _server(doing: str, medium: WindowsMedium) -> None:
    """See that it is a medium of servers at all."""
    kinds = {image.installation.lower() for image in medium.images}
    if kinds and kinds <= {"client"}:
        happened = f"it is a medium of Windows for desktops; {held(medium)}"
        raise PreflightError(doing, happened, _SERVERS)
    if kinds and kinds <= {"windowspe", ""}:
        happened = f"it is a medium without Windows to install; {held(medium)}"
        raise PreflightError(doing, happened, _SERVERS)


def _usable(doing: str, image: WindowsImage, release: Release) -> None:
    if image.architecture != ARCHITECTURE:
        raise PreflightError(
            doing,
            f"the image is for {image.architecture}, and nodes are {ARCHITECTURE}",
            f"give the {ARCHITECTURE} (x64) ISO of {release.name}",
        )
    if image.build != release.build:
        raise PreflightError(
            doing,
            f"the image is {version(image)}, and {release.name} is build {release.build}",
            f"give the ISO of {release.name} that Microsoft has released",
        )
    if image.revision < release.least_revision:
        raise PreflightError(
            doing,
            f"the image is {version(image)}, too old: {release.why}, which "
            f"{release.build}.{release.least_revision} has",
            f"give a newer ISO of {release.name}; those of the evaluation centre will do",
        )


def _release(image: WindowsImage) -> Release | None:
    for release in RELEASES.values():
        if image.name.lower().startswith(release.name.lower()):
            return release
    return None
