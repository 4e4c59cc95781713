"""The inputs of an image: where they come from, their digests, and their files.

An image's digest is that of its recipe, templates and inputs. Programs that it is built with are
not in it: an image that is there needs none of them, and an update of this machine makes no other
image.

In the directory of downloads the names are the first 32 hex digits of a hash, and an ending:
``.file`` a file by its own digest, ``.file.part`` what has come of one, ``.pin`` the digest
that a vendor's list had for an address (asked once, so that an image stays what it is), and
``.seen`` the digest of a local file, so that a large one is read once.
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
    """Where an input comes from; neither address nor path if it is not configured."""

    url: str | None
    """As written: mirrors are not applied yet."""
    path: Path | None
    digest: str | None
    """``sha256:`` or ``sha512:`` and hex; None where it has to be looked up."""
    checksums: str | None
    """Address of the vendor's list of digests."""


@dataclass(frozen=True, slots=True)
class ImageInput:
    """One file that an image is made from."""

    name: str
    """In the image's digest; one of the recipe's own."""
    image: str
    """Whose entry in the inventory says where it is: ``[images.<image>]``."""
    what: str
    """What to get, in words."""
    optional: bool = False


FILE = "file"
"""The one input of a ``cloud`` or ``iso`` image."""
ISO = "iso"
VIRTIO = "virtio-win"
OPENSSH = "openssh"
OPENSSH_IMAGE = "openssh-windows"


def needs(recipe: Recipe) -> tuple[ImageInput, ...]:
    """All that an image is made from."""
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
"""Raised when this code makes another image of the same inputs."""


def digest(recipe: Recipe, inventory: Inventory, downloads: Path, say: Say) -> str:
    """Hex SHA-256 of all that goes into the image; looks its inputs up where it must.

    Raises
    ------
    PreflightError
        When an input is missing: what, and how to get it.

    """
    return digest_of(recipe, digests(recipe, inventory, downloads, say))


def known_digest(recipe: Recipe, inventory: Inventory, downloads: Path) -> str | None:
    """The same, or None where that would ask another host, or an input is missing."""
    there = known_digests(recipe, inventory, downloads)
    return None if there is None else digest_of(recipe, there)


def digest_of(recipe: Recipe, there: Mapping[str, str]) -> str:
    """The same, of inputs whose digests are given by their names."""
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
    """Digest of every input by its name, looked up where it is not known yet.

    Raises
    ------
    PreflightError
        When an input is missing, cannot be looked up, or is not what it must be.

    """
    digests = {need.name: _found(need, recipe, inventory, downloads, say) for need in needs(recipe)}
    return {name: digest for name, digest in digests.items() if digest is not None}


def known_digests(
    recipe: Recipe, inventory: Inventory, downloads: Path
) -> Mapping[str, str] | None:
    """The same without asking anyone or reading a large file; None where that is not enough."""
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
    """Check that every input is configured, and that the right files are there.

    No file is read whole.

    Raises
    ------
    PreflightError
        Naming the first that is missing, and how to get it.

    """
    for need in needs(recipe):
        where = locate(need, recipe, inventory)
        if where.path is None and where.url is None and not need.optional:
            raise _missing(need, recipe)
        if where.path is not None and not where.path.is_file():
            raise _gone(need, recipe, where.path)
        if where.path is not None:
            check_file(recipe, need.name, where.path)


def check_file(recipe: Recipe, name: str, path: Path) -> None:
    """Check that a file is what a recipe asks for.

    Microsoft's medium is read, in some 0.1 s, and what goes beside it; of others nothing is known
    beforehand.

    Parameters
    ----------
    name
        Of the recipe's input.

    Raises
    ------
    PreflightError
        When it is something else, or lacks what is asked for: with what it holds.

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


def fetch_file(job: BuildJob, name: str = FILE) -> Path:
    """An input as a file of this machine, downloaded if need be.

    Raises
    ------
    PreflightError, BrokenError
        As :func:`lab.imaging.download.fetch` does.

    """
    path = find_file(job, name)
    assert path is not None, "found() has looked"
    return path


def find_file(job: BuildJob, name: str) -> Path | None:
    """The same; None for one that is optional and not there."""
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
    """Remove a download that has become an image."""
    there = known_digests(job.recipe, job.inventory, job.downloads) or {}
    for digest in there.values():
        name = f"{_short(digest.partition(':')[2])}.file"
        (job.downloads / name).unlink(missing_ok=True)


def referenced_names(folder: Path | None, inventory: Inventory) -> frozenset[str]:
    """How the names of downloads begin that a recipe still leads to."""
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
    """How the names of downloads begin whose digest a pin holds."""
    held = map(read_line, downloads.glob("*.pin"))
    return frozenset(_short(digest.partition(":")[2]) for digest in held)


def _found(
    need: ImageInput, recipe: Recipe, inventory: Inventory, downloads: Path, say: Say
) -> str | None:
    """The digest of one input; None for one that is optional and not there."""
    where = locate(need, recipe, inventory)
    doing = f"looking for the input of image '{recipe.name}'"
    if where.path is not None:
        if not where.path.is_file():
            raise _gone(need, recipe, where.path)
        return _of_file(where.path, where.digest, downloads, doing, say)
    if where.url is not None:
        return where.digest or _pinned(need.image, where, inventory, downloads, doing)
    if need.optional:
        return None
    raise _missing(need, recipe)


def _known(where: ImageSourceFile, downloads: Path) -> str | None:
    if where.path is not None:
        return _seen(where.path, downloads)
    if where.url is not None:
        return where.digest or _pin(where.url, downloads)
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
        hint = f"say where it is: {_by_option(need, recipe)}, or 'path' in the inventory"
    return PreflightError(
        f"looking for the input of image '{recipe.name}'",
        f"'{path}': {'it is not a file' if path.exists() else 'No such file or directory'}",
        hint,
    )


def _by_option(need: ImageInput, recipe: Recipe) -> str:
    return f"'lab image build {recipe.name} --{need.name} PATH'"


def _pinned(
    image: str, where: ImageSourceFile, inventory: Inventory, downloads: Path, doing: str
) -> str:
    """The digest that the vendor lists for an address, asked once."""
    assert where.url is not None, "the caller has looked"
    pin = _pin(where.url, downloads)
    if pin:
        return pin
    if where.checksums is None:
        raise PreflightError(
            doing,
            f"no digest is known for {where.url}",
            f"write its digest into the inventory: [images.{image}] sha256 = ...",
        )
    text = _web(inventory).text(where.checksums, doing)
    name = where.url.rpartition("/")[2]
    digest = download.listed(text, name)
    if digest is None:
        raise PreflightError(
            doing,
            f"{where.checksums} does not list '{name}'",
            f"write its digest into the inventory: [images.{image}] sha256 = ...",
        )
    _keep(downloads / f"{_key(where.url)}.pin", f"{digest}\n", doing)
    return digest


def _keep(path: Path, text: str, doing: str) -> None:
    """Write a small file into the directory of downloads."""
    with guarded(doing):
        make_own(path.parent.parent, path.parent)
        path.write_text(text, encoding="ascii")


def _pin(url: str, downloads: Path) -> str | None:
    return read_line(downloads / f"{_key(url)}.pin") or None


def _of_file(path: Path, expected: str | None, downloads: Path, doing: str, say: Say) -> str:
    digest = _seen(path, downloads)
    if digest is None:
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
    if expected is not None and digest != expected:
        raise download.mismatch(f"{doing}, '{path}'", expected, digest)
    return digest


def _seen(path: Path, downloads: Path) -> str | None:
    """The digest of a local file that has not changed since it was read."""
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
