"""The inputs of an image: where they come from, their digests, and their files.

An image's digest covers its recipe, templates and inputs, but not the programs that build it: a
finished image needs none of them, and updating this machine must not rebuild images.

Names in the downloads directory are the first 32 hex digits of a hash and an extension: ``.file`` a
file named by its own digest, ``.file.part`` a partial one, ``.pin`` the digest that a vendor's list
had for an address (looked up once, so that an image stays the same), and ``.seen`` the digest of a
local file, so that a large one is read once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lab._errors import LabError, PreflightError
from lab.imaging import download, recipes
from lab.imaging.golden import guarded, make_own, read_json, read_line
from lab.imaging.job import BuildJob, Say
from lab.imaging.recipe import Recipe
from lab.inventory.inventory import Inventory


@dataclass(frozen=True, slots=True)
class ImageSourceFile:
    """Where an input comes from; ``url`` and ``path`` are None if it is not configured."""

    url: str | None
    """As written, before mirrors are applied."""
    path: Path | None
    digest: str | None
    """``sha256:`` or ``sha512:`` and hex; None if it has to be looked up."""
    checksums: str | None
    """Address of the vendor's checksum list."""


@dataclass(frozen=True, slots=True)
class ImageInput:
    """One file that an image is made from."""

    name: str
    """Name in the image's digest, unique within the recipe."""
    image: str
    """The inventory entry that locates it: ``[images.<image>]``."""
    what: str
    """What to get, as text."""
    optional: bool = False


FILE = "file"
"""Name of the only input of a ``cloud`` or ``iso`` image."""
ISO = "iso"
VIRTIO = "virtio-win"
OPENSSH = "openssh"
OPENSSH_IMAGE = "openssh-windows"


def needs(recipe: Recipe) -> tuple[ImageInput, ...]:
    """All inputs of an image."""
    if recipe.cloud:
        return (ImageInput(FILE, recipe.name, f"the disk at {recipe.cloud.url}"),)
    if recipe.iso:
        return (ImageInput(FILE, recipe.name, recipe.iso.medium),)
    if recipe.windows:
        medium = ImageInput(ISO, recipe.name, recipe.windows.medium)
        drivers = ImageInput(
            VIRTIO, VIRTIO, "the virtio-win ISO, with the drivers of disk and card"
        )
        shell = ImageInput(
            OPENSSH, OPENSSH_IMAGE, "Win32-OpenSSH's OpenSSH-Win64.zip", optional=True
        )
        return (medium, *((drivers,) if recipe.windows.virtio else ()), shell)
    return ()


def locate(need: ImageInput, recipe: Recipe, inventory: Inventory) -> ImageSourceFile:
    """Where recipe and inventory locate an input; the inventory takes precedence."""
    own = inventory.images.get(need.image)
    said = own.url if own else None
    parts = recipe.cloud or recipe.iso
    sha256 = (own.sha256 if own else None) or (parts.sha256 if parts else None)
    digest = f"sha256:{sha256}" if sha256 else None
    if said is None:
        cloud = recipe.cloud
        url = cloud.url if cloud else None
        return ImageSourceFile(url, None, digest, cloud.checksums if cloud else None)
    split = urlsplit(said)
    if split.scheme in {"http", "https"}:
        return ImageSourceFile(said, None, digest, None)
    return ImageSourceFile(
        None, Path(unquote(split.path) if split.scheme == "file" else said), digest, None
    )


_SHORT = 32
FORMAT = 1
"""Increase it when this code makes a different image from the same inputs."""


def digest(recipe: Recipe, inventory: Inventory, downloads: Path, say: Say) -> str:
    """Hex SHA-256 of everything that goes into the image; looks up unknown inputs.

    Raises PreflightError when an input is missing: what it is, and how to get it.
    """
    return digest_of(recipe, digests(recipe, inventory, downloads, say))


def known_digest(recipe: Recipe, inventory: Inventory, downloads: Path) -> str | None:
    """:func:`digest`, or None if that needs the network, or an input is missing."""
    there = known_digests(recipe, inventory, downloads)
    return None if there is None else digest_of(recipe, there)


def digest_of(recipe: Recipe, there: Mapping[str, str]) -> str:
    """:func:`digest` for inputs with known digests, by name."""
    hashed = {name: sha256(content).hexdigest() for name, content in recipe.files.items()}
    parts = {
        "format": FORMAT,
        "recipe": recipe.described(),
        "templates": hashed,
        "inputs": dict(there),
    }
    text = json.dumps(parts, separators=(",", ":"), sort_keys=True)
    return sha256(text.encode()).hexdigest()


def digests(recipe: Recipe, inventory: Inventory, downloads: Path, say: Say) -> Mapping[str, str]:
    """Digest of every input by name; looks up unknown ones.

    Raises PreflightError when an input is missing, cannot be looked up, or is not as expected.
    """
    digests = {need.name: _found(need, recipe, inventory, downloads, say) for need in needs(recipe)}
    return {name: digest for name, digest in digests.items() if digest is not None}


def known_digests(
    recipe: Recipe, inventory: Inventory, downloads: Path
) -> Mapping[str, str] | None:
    """:func:`digests` without the network or reading large files; None if that is not enough."""
    digests: dict[str, str] = {}
    for need in needs(recipe):
        where = locate(need, recipe, inventory)
        if where.path is None and where.url is None and need.optional:
            continue
        digest = _known(where, downloads)
        if not digest:
            return None
        digests[need.name] = digest
    return digests


def check(recipe: Recipe, inventory: Inventory) -> None:
    """Check that every input is configured and its file is the right one.

    Reads no file completely.

    Raises PreflightError with the first that is missing, and how to get it.
    """
    for need in needs(recipe):
        where = _located(need, recipe, inventory)
        if where is not None and where.path is not None:
            check_file(recipe, need.name, where.path)


def check_file(recipe: Recipe, name: str, path: Path) -> None:
    """Check that a file is what a recipe asks for.

    Reads the structure of Microsoft's media and the drivers medium, in some 0.1 s; other inputs
    cannot be checked in advance.

    ``name``: name of the recipe's input.

    Raises PreflightError when it is something else, or lacks what the recipe asks for: with what it
    contains.
    """
    if recipe.windows is None:
        return
    from lab.imaging.windows import medium  # noqa: PLC0415  a slow extra

    wanted = recipe.windows.wanted
    if name == ISO:
        medium.choose(medium.read(path), wanted)
    elif name == VIRTIO:
        medium.check_drivers(path, wanted.release)
    elif name == OPENSSH:
        medium.check_openssh(path)


def fetch_file(job: BuildJob) -> Path:
    """The medium or disk as a file on this machine; downloads it if necessary.

    Raises PreflightError, BrokenError like :func:`lab.imaging.download.fetch`.
    """
    path = find_file(job, FILE)
    assert path is not None, "found() has checked"
    return path


def find_file(job: BuildJob, name: str) -> Path | None:
    """:func:`fetch_file`; None for an optional input that does not exist."""
    need = next((one for one in needs(job.recipe) if one.name == name), None)
    if need is None:
        return None
    where = locate(need, job.recipe, job.inventory)
    if where.path is not None:
        return where.path
    if where.url is None:
        return None
    digest = digests(job.recipe, job.inventory, job.downloads, job.say)[name]
    target = job.downloads / f"{_short(digest.partition(':')[2])}.file"
    job.tell(f"downloading {where.url}")
    with guarded(f"downloading {where.url}"):
        download.fetch(_web(job.inventory), where.url, target, digest, job.tell)
    return target


def remove_downloads(job: BuildJob) -> None:
    """Remove a download after it has become an image."""
    there = known_digests(job.recipe, job.inventory, job.downloads) or {}
    for digest in there.values():
        name = f"{_short(digest.partition(':')[2])}.file"
        (job.downloads / name).unlink(missing_ok=True)


def referenced_names(folder: Path | None, inventory: Inventory) -> frozenset[str]:
    """Prefixes of the names of downloads that recipes still use."""
    names: set[str] = set()
    for name in recipes.shipped(folder):
        try:
            recipe = recipes.load(name, folder)
        except LabError:
            continue
        for need in needs(recipe):
            where = locate(need, recipe, inventory)
            names |= {_key(str(place)) for place in (where.url, where.path) if place}
            if where.digest:
                names.add(_short(where.digest.partition(":")[2]))
    return frozenset(names)


def pinned_names(downloads: Path) -> frozenset[str]:
    """Prefixes of the names of downloads whose digest is pinned."""
    held = map(read_line, downloads.glob("*.pin"))
    return frozenset(_short(digest.partition(":")[2]) for digest in held)


def _located(need: ImageInput, recipe: Recipe, inventory: Inventory) -> ImageSourceFile | None:
    """Where an input comes from; None for an optional one that is not configured.

    Raises PreflightError when another is not configured, or its file does not exist.
    """
    where = locate(need, recipe, inventory)
    if where.path is not None and not where.path.is_file():
        raise _gone(need, recipe, where.path)
    if where.path is not None or where.url is not None:
        return where
    if need.optional:
        return None
    raise _missing(need, recipe)


def _found(
    need: ImageInput, recipe: Recipe, inventory: Inventory, downloads: Path, say: Say
) -> str | None:
    """The digest of one input; None for an optional one that does not exist."""
    where = _located(need, recipe, inventory)
    if where is None:
        return None
    doing = f"looking for the input of image '{recipe.name}'"
    found = _known(where, downloads)
    if found is None and where.path is not None:
        found = _of_file(where.path, downloads, doing, say)
    elif found is None:
        found = _listed(need.image, where, inventory, downloads, doing)
    if where.digest not in {None, found}:
        raise download.mismatch(f"{doing}, '{where.path}'", str(where.digest), found)
    return found


def _known(where: ImageSourceFile, downloads: Path) -> str | None:
    if where.path is not None:
        return _seen(where.path, downloads)
    if where.url is not None:
        return where.digest or read_line(downloads / f"{_key(where.url)}.pin") or None
    return None


def _missing(need: ImageInput, recipe: Recipe) -> PreflightError:
    option = "" if need.name == FILE else f", or give it: {_by_option(need, recipe)}"
    return PreflightError(
        f"looking for the input of image '{recipe.name}'",
        f"it needs {need.what}, which cannot be downloaded",
        f"get it from its vendor and give its path in the inventory: [images.{need.image}] "
        f'path = "/where/it/is.iso"{option}',
    )


def _gone(need: ImageInput, recipe: Recipe, path: Path) -> PreflightError:
    hint = "correct 'path' in the inventory"
    if need.name != FILE:
        hint = f"give its path: {_by_option(need, recipe)}, or set 'path' in the inventory"
    return PreflightError(
        f"looking for the input of image '{recipe.name}'",
        f"'{path}': {'it is not a file' if path.exists() else 'No such file or directory'}",
        hint,
    )


def _by_option(need: ImageInput, recipe: Recipe) -> str:
    return f"'lab image build {recipe.name} --{need.name} PATH'"


def _listed(
    image: str, where: ImageSourceFile, inventory: Inventory, downloads: Path, doing: str
) -> str:
    """The digest that the vendor lists for an address; it is kept."""
    assert where.url is not None, "the caller has checked"
    name, digest = where.url.rpartition("/")[2], None
    happened = f"no digest is known for {where.url}"
    if where.checksums is not None:
        digest = download.listed(_web(inventory).text(where.checksums, doing), name)
        happened = f"{where.checksums} does not list '{name}'"
    if digest is None:
        hint = f"write its digest into the inventory: [images.{image}] sha256 = ..."
        raise PreflightError(doing, happened, hint)
    _keep(downloads / f"{_key(where.url)}.pin", f"{digest}\n", doing)
    return digest


def _keep(path: Path, text: str, doing: str) -> None:
    """Write a small file into the downloads directory."""
    with guarded(doing):
        make_own(path.parent.parent, path.parent)
        path.write_text(text, encoding="ascii")


def _of_file(path: Path, downloads: Path, doing: str, say: Say) -> str:
    """The digest of a local file; it is kept."""
    try:
        stamp = _stamp(path)
        say(f"reading '{path}' for its digest")
        digest = download.hashed(path, "sha256")
    except OSError as error:
        raise PreflightError(
            doing, f"'{path}': {error.strerror}", "correct 'path' in the inventory"
        ) from error
    text = json.dumps({"stamp": stamp, "digest": digest})
    _keep(downloads / f"{_key(str(path))}.seen", text, doing)
    return digest


def _seen(path: Path, downloads: Path) -> str | None:
    """The digest of a local file that is unchanged since it was last read."""
    kept: Any = read_json(downloads / f"{_key(str(path))}.seen")
    try:
        return str(kept["digest"]) if kept["stamp"] == _stamp(path) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns]


def _key(place: str) -> str:
    return _short(sha256(place.encode()).hexdigest())


def _short(digest: str) -> str:
    return digest[:_SHORT]


def _web(inventory: Inventory) -> download.Web:
    return download.Web(inventory.mirrors, inventory.proxies.by_name())
