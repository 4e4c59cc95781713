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
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lab._errors import LabError, PreflightError
from lab.inventory.inventory import ImageSource, Inventory
from lab.machines.images import download, recipes
from lab.machines.images.golden import guarded, make_own, read_json, read_line
from lab.machines.images.recipe import Recipe
from lab.machines.system import System, system_of

FILE = "file"
"""Name of the only input of a ``cloud`` or ``iso`` image."""
ISO = "iso"
VIRTIO = "virtio-win"
OPENSSH = "openssh"
OPENSSH_IMAGE = "openssh-windows"
_SHORT = 32
FORMAT = 1
"""Increase it when this code makes a different image from the same inputs."""


@dataclass(frozen=True, slots=True)
class ImageInput:
    """One file that an image is made from, and where it comes from.

    Neither ``url`` nor ``path`` is set if the file is not configured.
    """

    name: str
    """Name in the image's digest, unique within the recipe."""
    image: str
    """The inventory entry that locates it: ``[images.<image>]``."""
    description: str
    """What to get, as text."""
    optional: bool = False
    url: str | None = None
    """As written, before mirrors are applied."""
    path: Path | None = None
    digest: str | None = None
    """``sha256:`` or ``sha512:`` and hex; None if it has to be looked up."""
    checksums: str | None = None
    """Address of the vendor's checksum list."""


def needs(recipe: Recipe, inventory: Inventory) -> tuple[ImageInput, ...]:
    """All inputs of an image; the inventory takes precedence over the recipe."""
    return tuple(
        _locate(needed, inventory.images.get(needed.image)) for needed in _inputs_of_recipe(recipe)
    )


def _inputs_of_recipe(recipe: Recipe) -> Iterator[ImageInput]:
    if cloud := recipe.cloud:
        disk = ImageInput(FILE, recipe.name, f"the disk at {cloud.url}", url=cloud.url)
        yield replace(disk, digest=_sha256(cloud.sha256), checksums=cloud.checksums)
    elif iso := recipe.iso:
        yield ImageInput(FILE, recipe.name, iso.medium, digest=_sha256(iso.sha256))
    elif windows := recipe.windows:
        yield ImageInput(ISO, recipe.name, windows.medium)
        if windows.virtio:
            purpose = "the virtio-win ISO, with the drivers of disk and card"
            yield ImageInput(VIRTIO, VIRTIO, purpose)
        archive = "Win32-OpenSSH's OpenSSH-Win64.zip"
        yield ImageInput(OPENSSH, OPENSSH_IMAGE, archive, optional=True)


def _locate(need: ImageInput, source: ImageSource | None) -> ImageInput:
    if source is None:
        return need
    need = replace(need, digest=_sha256(source.sha256) or need.digest)
    if source.url is None:
        return need
    split = urlsplit(source.url)
    if split.scheme in {"http", "https"}:
        return replace(need, url=source.url, checksums=None)
    path = Path(unquote(split.path) if split.scheme == "file" else source.url)
    return replace(need, url=None, path=path, checksums=None)


def _sha256(digits: str | None) -> str | None:
    return f"sha256:{digits}" if digits else None


def digest_of(recipe: Recipe, digests: Mapping[str, str]) -> str:
    """Hex SHA-256 of everything that goes into an image; ``digests``: its inputs', by name."""
    hashed = {name: sha256(content).hexdigest() for name, content in recipe.files.items()}
    parts = {
        "format": FORMAT,
        "recipe": recipe.described(),
        "templates": hashed,
        "inputs": dict(digests),
    }
    text = json.dumps(parts, separators=(",", ":"), sort_keys=True)
    return sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class ImageInputs:
    """The inputs of one recipe's image.

    ``downloads``: directory of downloads and of known digests; created when first needed. ``say``:
    called before anything that takes long.
    """

    recipe: Recipe
    inventory: Inventory
    downloads: Path
    say: Callable[[str], None] = lambda _: None

    def tell(self, phase: str) -> None:
        """Report the current phase of the image's build."""
        self.say(f"image '{self.recipe.name}': {phase}")

    def digest(self) -> str:
        """Hex SHA-256 of everything that goes into the image; looks up unknown inputs.

        Raises PreflightError like :meth:`digests`.
        """
        return digest_of(self.recipe, self.digests())

    def known_digest(self) -> str | None:
        """:meth:`digest`, or None if that needs the network, or an input is missing."""
        digests = self.known_digests()
        return None if digests is None else digest_of(self.recipe, digests)

    def digests(self) -> Mapping[str, str]:
        """Digest of every input by name; looks up unknown ones.

        Raises PreflightError when an input is missing (what it is, and how to get it), cannot be
        looked up, or is not as expected.
        """
        return {need.name: self._digest(need) for need in self._configured()}

    def known_digests(self) -> Mapping[str, str] | None:
        """:meth:`digests` without the network or reading large files; None if not enough."""
        digests: dict[str, str] = {}
        for need in self._needs:
            if need.optional and need.path is None and need.url is None:
                continue
            digest = self._known(need)
            if not digest:
                return None
            digests[need.name] = digest
        return digests

    def check(self) -> None:
        """Check that every input is configured and its file is the right one.

        Reads no file completely.

        Raises PreflightError with the first that is missing, and how to get it.
        """
        for need in self._configured():
            if need.path is not None:
                check_file(self.recipe, need.name, need.path)

    def find(self, name: str) -> Path | None:
        """An input as a file on this machine; downloads it if necessary.

        None for an optional input that is not configured.

        Raises PreflightError, BrokenError like :func:`lab.machines.images.download.fetch`.
        """
        need = next((candidate for candidate in self._needs if candidate.name == name), None)
        if need is None or need.url is None:
            return need.path if need else None
        digest = self._digest(need)
        target = self._download(digest)
        self.tell(f"downloading {need.url}")
        with guarded(f"downloading {need.url}"):
            download.fetch(self._web, need.url, target, digest, self.tell)
        return target

    def fetch_file(self) -> Path:
        """:meth:`find` for the only input of a ``cloud`` or ``iso`` image."""
        path = self.find(FILE)
        assert path is not None, "check() has refused it"
        return path

    def remove_downloads(self) -> None:
        """Remove downloads after they have become an image."""
        for digest in (self.known_digests() or {}).values():
            self._download(digest).unlink(missing_ok=True)

    @property
    def _needs(self) -> tuple[ImageInput, ...]:
        return needs(self.recipe, self.inventory)

    @property
    def _web(self) -> download.Web:
        return download.Web(self.inventory.mirrors, self.inventory.proxies.by_name())

    @property
    def _doing(self) -> str:
        return f"looking for the input of image '{self.recipe.name}'"

    def _configured(self) -> Iterator[ImageInput]:
        """All inputs except optional ones that are not configured.

        Raises PreflightError when another is not configured, or its file does not exist.
        """
        for need in self._needs:
            if need.path is not None and not need.path.is_file():
                raise self._gone(need, need.path)
            if need.path is not None or need.url is not None:
                yield need
            elif not need.optional:
                raise self._missing(need)

    def _digest(self, need: ImageInput) -> str:
        digest = self._known(need)
        if digest is None:
            digest = self._read(need.path) if need.path is not None else self._look_up(need)
        if need.digest not in {None, digest}:
            raise download.mismatch(f"{self._doing}, '{need.path}'", str(need.digest), digest)
        return digest

    def _known(self, need: ImageInput) -> str | None:
        if need.path is not None:
            return self._seen(need.path)
        if need.url is not None:
            return need.digest or read_line(self._record_path(need.url, "pin")) or None
        return None

    def _seen(self, path: Path) -> str | None:
        """The digest of a local file that is unchanged since it was last read."""
        kept: Any = read_json(self._record_path(path, "seen"))
        try:
            return str(kept["digest"]) if kept["stamp"] == _stamp(path) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _read(self, path: Path) -> str:
        """The digest of a local file; it is kept."""
        try:
            stamp = _stamp(path)
            self.say(f"reading '{path}' for its digest")
            digest = download.hash_file(path, "sha256")
        except OSError as error:
            raise PreflightError(
                self._doing, f"'{path}': {error.strerror}", "correct 'path' in the inventory"
            ) from error
        self._keep(self._record_path(path, "seen"), json.dumps({"stamp": stamp, "digest": digest}))
        return digest

    def _look_up(self, need: ImageInput) -> str:
        """The digest that the vendor lists for an address; it is kept."""
        assert need.url is not None, "the caller has checked"
        digest, happened = None, f"no digest is known for {need.url}"
        if need.checksums is not None:
            name = need.url.rpartition("/")[2]
            digest = download.find_digest(self._web.text(need.checksums, self._doing), name)
            happened = f"{need.checksums} does not list '{name}'"
        if digest is None:
            hint = f"write its digest into the inventory: [images.{need.image}] sha256 = ..."
            raise PreflightError(self._doing, happened, hint)
        self._keep(self._record_path(need.url, "pin"), f"{digest}\n")
        return digest

    def _keep(self, path: Path, text: str) -> None:
        with guarded(self._doing):
            make_own(self.downloads.parent, self.downloads)
            path.write_text(text, encoding="ascii")

    def _record_path(self, place: str | Path, ending: str) -> Path:
        return self.downloads / f"{_key(place)}.{ending}"

    def _download(self, digest: str) -> Path:
        return self.downloads / f"{_short(digest)}.file"

    def _missing(self, need: ImageInput) -> PreflightError:
        option = "" if need.name == FILE else f", or give it: {self._by_option(need)}"
        return PreflightError(
            self._doing,
            f"it needs {need.description}, which cannot be downloaded",
            f"get it from its vendor and give its path in the inventory: [images.{need.image}] "
            f'path = "/where/it/is.iso"{option}',
        )

    def _gone(self, need: ImageInput, path: Path) -> PreflightError:
        hint = "correct 'path' in the inventory"
        if need.name != FILE:
            hint = f"give its path: {self._by_option(need)}, or set 'path' in the inventory"
        why = "it is not a file" if path.exists() else "No such file or directory"
        return PreflightError(self._doing, f"'{path}': {why}", hint)

    def _by_option(self, need: ImageInput) -> str:
        return f"'lab image build {self.recipe.name} --{need.name} PATH'"


class MediaSystem(System):
    """A system whose images are made from its vendor's media."""

    @abstractmethod
    def check_input(self, recipe: Recipe, name: str, path: Path) -> None:
        """Check that a file is what a recipe's input asks for.

        Raises PreflightError when it is something else: with what it contains.
        """


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
    system_of("windows", MediaSystem, f"checking '{path}'").check_input(recipe, name, path)


def referenced_names(folder: Path | None, inventory: Inventory) -> frozenset[str]:
    """Prefixes of the names of downloads that recipes still use."""
    names: set[str] = set()
    for name in recipes.shipped(folder):
        with suppress(LabError):
            for need in needs(recipes.load(name, folder), inventory):
                names |= {_key(place) for place in (need.url, need.path) if place}
                names |= {_short(need.digest)} if need.digest else set()
    return frozenset(names)


def pinned_names(downloads: Path) -> frozenset[str]:
    """Prefixes of the names of downloads whose digest is pinned."""
    return frozenset(_short(read_line(path)) for path in downloads.glob("*.pin"))


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns]


def _key(place: str | Path) -> str:
    return sha256(str(place).encode()).hexdigest()[:_SHORT]


def _short(digest: str) -> str:
    return digest.partition(":")[2][:_SHORT]
