"""What a medium is good for: which of its images is meant, which key goes with it, who it serves.

Pure: what is wrong is said on the host, before Setup says no more than "No images are available".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from lab._errors import PreflightError, UsageError
from lab.imaging.windows.media import WindowsImage, WindowsMedium
from lab.imaging.windows.release import RELEASES, Release, Wanted

ARCHITECTURE = "x86_64"
"""The only one that Windows Server's containers are made for."""
_SERVERS = "give the ISO of Windows Server 2019, 2022 or 2025"


@dataclass(frozen=True, slots=True)
class Use:
    """What one recipe would have of a medium."""

    recipe: str
    image: str
    """NAME of the image that it would install."""
    refusal: str
    """Why it cannot; empty if it can."""


def choose(medium: WindowsMedium, wanted: Wanted) -> WindowsImage:
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
        cure = f"give the ISO of {wanted.release.name}, or build the image of {releases[0]}"
    else:
        happened = "there is no such image on it"
        cure = "ask for one of those that it holds, or give another ISO"
    raise PreflightError(doing, f"{happened}; {held(medium)}", cure)


def by_name(medium: WindowsMedium, text: str) -> WindowsImage:
    """The image that somebody calls by NAME, or by DISPLAYNAME as DISM prints it.

    Raises
    ------
    UsageError
        When none or several are called so, with what the medium holds.

    """
    doing = f"looking for '{text}' on the medium '{medium.path}'"
    asked = " ".join(text.lower().split())
    for names in ({one.index: one.name for one in medium.images}, _displayed(medium)):
        found = [number for number, name in names.items() if name.lower() == asked]
        if len(found) == 1:
            return medium.images[found[0] - 1]
        if found:
            several = " and ".join(map(str, found))
            happened = f"images {several} are both called so; {held(medium)}"
            raise UsageError(doing, happened, "give the name that the list has first")
    known = [name for one in medium.images for name in (one.name, one.display_name)]
    near = get_close_matches(text, known, 1)
    cure = f"did you mean '{near[0]}'?" if near else "give one of the names that it holds"
    raise UsageError(doing, f"there is no image of that name; {held(medium)}", cure)


def key_for(medium: WindowsMedium, wanted: Wanted) -> str | None:
    """The product key that an answer file gives: Microsoft's KMS client key.

    None for evaluation media: with any key Setup finds no image on them.
    """
    if medium.channel == "evaluation":
        return None
    return wanted.release.keys[wanted.edition]


def uses(medium: WindowsMedium, recipes: Mapping[str, Wanted]) -> tuple[Use, ...]:
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


def _displayed(medium: WindowsMedium) -> dict[int, str]:
    return {one.index: one.display_name for one in medium.images}
