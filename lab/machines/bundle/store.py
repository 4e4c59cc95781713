"""The bundles of this machine: created once, named by digest, collected when superseded.

.. code-block:: text

    <cache>/bundles/0123456789ab/              manifest.json blobs/sha256/... media/...
    <cache>/bundles/.upstream-1.36.partial/    one in progress, or interrupted
    <cache>/locks/bundle-upstream-1.36/        lock of the process that creates it

A finished bundle's directory gets its name by one rename, so a named bundle is always complete.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from lab._errors import BrokenError, LabError, PreflightError, UsageError, os_words
from lab._log import quantity
from lab.machines.bundle.manifest import (
    FILE,
    SHORT,
    Blob,
    Manifest,
    create_command,
    decode,
    download_words,
)
from lab.machines.images.golden import (
    PARTIAL,
    CollectedEntries,
    cache_lock,
    entries,
    guarded,
    make_own,
    remove,
    require_own,
    size,
)
from lab.machines.images.job import Say
from lab.scenario import versions
from lab.scenario.terms import Os
from lab.state.directory import fsync
from lab.state.files import open_regular, read_regular
from lab.state.lock import HeldError, holder

if TYPE_CHECKING:
    from _typeshed import SupportsRead

BLOBS = Path("blobs", "sha256")
_PART = ".part"
_CHUNK = 1 << 20


class Scratch:
    """The directory of a bundle that has no name yet."""

    def __init__(self, directory: Path) -> None:
        """Use a directory; creates it if it does not exist."""
        self.directory = directory
        self.blobs = directory / BLOBS
        with guarded(f"making the bundle in '{directory.parent}'"):
            self.blobs.mkdir(parents=True, exist_ok=True)

    def keep(self, content: SupportsRead[bytes], action: str, most: int = 1 << 50) -> Blob:
        """Copy bytes into the bundle.

        ``action``: for messages: ``"copying 'kubelet'"``. ``most``: upper limit of bytes; at most
        one more is read.

        Raises PreflightError when the disk is full; StateError when the bundle cannot be written.
        """
        draft = self.blobs / f"{os.getpid()}{_PART}"
        digest = hashlib.sha256()
        size = 0
        with guarded(action), draft.open("wb") as out:
            while data := content.read(min(_CHUNK, most + 1 - size)):
                digest.update(data)
                size += len(data)
                out.write(data)
        blob = Blob(digest.hexdigest(), size)
        with guarded(action):
            draft.replace(self.path(blob))
        return blob

    def keep_bytes(self, content: bytes) -> Blob:
        """Write a small document into the bundle."""
        return self.keep(BytesIO(content), "writing a document of the bundle")

    def keep_file(self, path: Path) -> Blob:
        """Copy a file into the bundle. Raises as :meth:`keep`, and if the file changes."""
        action = f"copying '{path}'"
        with guarded(action), path.open("rb") as content:
            before = os.fstat(content.fileno())
            blob = self.keep(content, action)
            after = os.fstat(content.fileno())
        if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, blob.size):
            raise PreflightError(
                action, "another process is writing to it", "try again when it has finished"
            )
        return blob

    def path(self, blob: Blob) -> Path:
        """Path of a blob."""
        return self.blobs / blob.sha256

    def has(self, blob: Blob) -> bool:
        """Whether a blob exists and is complete."""
        path = self.path(blob)
        return path.is_file() and path.stat().st_size == blob.size

    def read(self, blob: Blob) -> bytes:
        """Read a small document of the bundle."""
        with guarded("reading a document of the bundle"):
            return self.path(blob).read_bytes()

    def finish(self, manifest: Manifest) -> None:
        """Delete everything that the manifest does not refer to, and flush the rest to disk."""
        wanted = {blob.sha256 for blob in manifest.blobs()}
        with guarded("finishing the bundle"):
            for path in (*self.directory.iterdir(), *self.blobs.iterdir()):
                if path.name not in wanted and path not in self.blobs.parents:
                    remove(path)
            (self.directory / FILE).write_bytes(manifest.encoded())
            for path in (*self.directory.rglob("*"), self.directory):
                fsync(path)


def damage(path: Path, sha256: str, size: int | None = None) -> str:
    """How a file differs from what it must be, as a clause; empty if it does not."""
    try:
        with open_regular(path) as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
            length = file.tell()
    except OSError as error:
        return f"'{path}': {os_words(error)}"
    if size not in {None, length}:
        return f"'{path}' has {length:,} bytes of {size:,}"
    return "" if actual == sha256 else f"'{path}' has other content: its SHA-256 is {actual}"


MEDIA = "media"
_NAME = re.compile(r"[0-9a-f]{12}")
"""Name of a bundle's directory; other names are not the lab's."""
_WAIT = 6 * 3600.0
"""Seconds to wait while another process creates a bundle: downloads on a slow line."""
_SHOWN = 8
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ListedBundle:
    """One directory of the store."""

    digest: str
    """The directory's name: the first 12 hex digits."""
    kubernetes: str
    systems: tuple[str, ...]
    programs: int
    images: int
    bytes: int
    detail: str
    """Why it is unusable; empty if it is usable."""


class BundleStore:
    """Bundles below one cache directory."""

    def __init__(self, cache: Path) -> None:
        """Use a cache; reads and creates nothing yet."""
        self._cache = cache
        self._root = cache / "bundles"

    def directory(self, manifest: Manifest) -> Path:
        """The directory of a bundle, whether it exists or not."""
        return self._root / manifest.short

    def blob(self, manifest: Manifest, blob: Blob) -> Path:
        """Path of a bundle's blob."""
        return self.directory(manifest) / BLOBS / blob.sha256

    def require_own(self, manifest: Manifest) -> None:
        """As root, refuse to write a medium where another user could redirect it by links."""
        directory = self.directory(manifest)
        require_own(self._cache, self._root, directory, directory / MEDIA)

    def get(self, digest: str) -> Manifest:
        """The bundle whose digest begins with ``digest``.

        Raises UsageError when there is none, or several; PreflightError when it is damaged.
        """
        names = self._names()
        matches = [name for name in names if digest and name.startswith(digest[:SHORT])]
        how = f"{len(matches)} bundles match"
        if not matches:
            how = f"none matches; the bundles are: {', '.join(names) or 'none'}"
        elif len(matches) == 1:
            made = self._read(matches[0])
            if made.digest.startswith(digest):
                return made
            how = f"the only one is '{made.digest}'"
        hint = "give a digest that 'lab bundle list' prints"
        raise UsageError(f"looking for bundle '{digest}'", how, hint)

    def newest(self, minor: str, systems: Collection[Os] = (), add_on: str = "") -> Manifest:
        """The bundle with the newest patch version of a minor; among equals, the youngest.

        ``systems``: operating systems that it must have programs for. ``add_on``: the network
        add-on that the hint names.

        Raises PreflightError when there is none.
        """
        of_it = [manifest for manifest in self.all() if _minor(manifest.kubernetes) == minor]
        fitting = [manifest for manifest in of_it if manifest.systems().issuperset(systems)]
        if not fitting:
            happened = f"there is none in '{self._root}'"
            if of_it:
                wanted = " and ".join(sorted(systems))
                happened = f"none in '{self._root}' has programs for {wanted}"
            action = f"looking for a bundle of Kubernetes {minor}"
            command = create_command(minor, systems, add_on)
            raise PreflightError(action, happened, f"{command}  # {download_words(systems)}")
        return max(fitting, key=self._age)

    def list(self) -> tuple[ListedBundle, ...]:
        """Every bundle, damaged ones included."""
        return tuple(self._listed(name) for name in self._names())

    def all(self) -> tuple[Manifest, ...]:
        """Every readable bundle."""
        manifests = []
        for name in self._names():
            with suppress(LabError):
                manifests.append(self._read(name))
        return tuple(manifests)

    def verify(self, manifest: Manifest, say: Say, systems: Collection[Os] = ()) -> None:
        """Read every byte of a bundle and of the media made from it.

        ``systems``: read only the blobs for these; all if empty.

        Raises BrokenError naming the first blobs that are missing or damaged with their owners,
        damaged media, and the number of further ones.
        """
        owners: dict[Blob, str] = {}
        for owner, blob in _list_blobs(manifest, systems):
            owners.setdefault(blob, owner)
        wrong = [
            f"{owner}: {problem}"
            for blob, owner in owners.items()
            if (problem := damage(self.blob(manifest, blob), blob.sha256, blob.size))
        ]
        hint = "make it again with 'lab bundle create'"
        if not wrong:
            hint = "remove the damaged file: the next 'lab up' that needs it writes it again"
        media = () if systems else sorted((self.directory(manifest) / MEDIA).glob("*.iso"))
        wrong += (problem for medium in media if (problem := _medium_damage(medium)))
        if wrong:
            more = [f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
            happened = "; ".join([*wrong[:_SHOWN], *more])
            raise BrokenError(f"verifying bundle '{manifest.short}'", happened, hint)
        read = sum(blob.size for blob in owners) / _MIB
        beside = f", and {quantity(len(media), 'finished medium')}" if media else ""
        figures = f"{quantity(len(owners), 'blob')}, {read:.0f} MiB{beside}"
        say(f"bundle '{manifest.short}' is intact: {figures}")

    def add(
        self, name: str, fill: Callable[[Scratch], Manifest], say: Say, *, goes_on: bool
    ) -> Manifest:
        """Create a bundle, completely or not at all.

        When several processes create the same bundle, one does it; the others wait and report that.

        ``name``: what it is made from; creations of the same name wait for each other. ``fill``:
        fills the scratch directory and returns its manifest. ``goes_on``: whether to reuse the
        blobs of an interrupted attempt, by their digests.
        """
        scratch = self._root / f".{name}{PARTIAL}"
        with guarded("making a bundle"):
            make_own(self._cache, self._root)
        with cache_lock(self.lock(name), "lab bundle create", wait=_WAIT, say=say):
            if scratch.exists() and goes_on:
                say("continuing an interrupted attempt")
            elif scratch.exists():
                say("an earlier attempt was interrupted; starting over")
                remove(scratch)
            try:
                made = Scratch(scratch)
                return self._adopt(made, fill(made).ordered(), say)
            except BaseException:
                if not goes_on:
                    shutil.rmtree(scratch, ignore_errors=True)
                raise

    def gc(self, in_use: Collection[str], yes: bool) -> CollectedEntries:
        """Find, and with ``yes`` remove, bundles superseded by a newer one of their minor.

        Also damaged bundles, those of minors that are no longer supported, and interrupted
        attempts.

        ``in_use``: digests, or their first digits, of bundles that labs were made from.
        """
        paths = [*self._old(in_use), *self._dead()]
        total = sum(size(path) for path in paths)
        if yes:
            require_own(self._cache, self._root)
            for path in paths:
                # unless another process has begun to create something in it
                with suppress(HeldError), cache_lock(self._lock_of(path), "lab bundle gc", wait=0):
                    remove(path)
        names = tuple(str(path.relative_to(self._cache)) for path in paths)
        return CollectedEntries(names, total, yes)

    def _adopt(self, made: Scratch, manifest: Manifest, say: Say) -> Manifest:
        """Rename a finished bundle to its final name."""
        decode(manifest.encoded(), f"{FILE} of the new bundle")
        made.finish(manifest)
        final = self.directory(manifest)
        lock = self.lock(final.name)  # another source may give the same bundle at the same time
        with (
            cache_lock(lock, "lab bundle create", wait=_WAIT, say=say),
            guarded(f"making bundle '{final.name}'"),
        ):
            if final.exists() and self._is_whole(manifest):
                say(f"bundle '{final.name}' already exists")
                shutil.rmtree(made.directory)
                return manifest
            if final.exists():
                say(f"bundle '{final.name}' is damaged; making it again")
                remove(final)
            made.directory.rename(final)
            fsync(self._root)
        return manifest

    def _is_whole(self, manifest: Manifest) -> bool:
        """Whether every byte of a bundle is intact."""
        try:
            self._read(self.directory(manifest).name)
            self.verify(manifest, lambda _: None)
        except LabError:
            return False
        return True

    def _names(self) -> tuple[str, ...]:
        names = (path.name for path in entries(self._root) if path.is_dir())
        return tuple(name for name in names if _NAME.fullmatch(name))

    def _read(self, name: str) -> Manifest:
        path = self._root / name / FILE
        action, hint = f"reading bundle '{name}'", "lab bundle gc --yes"
        try:
            content = read_regular(path)
        except OSError as error:
            raise PreflightError(action, f"'{path}': {os_words(error)}", hint) from error
        manifest = decode(content, str(path))
        if manifest.short != name:
            happened = f"'{path}' is another bundle's: its digest begins with {manifest.short}"
            raise PreflightError(action, happened, hint)
        return manifest

    def _listed(self, name: str) -> ListedBundle:
        taken = size(self._root / name)
        try:
            manifest = self._read(name)
        except LabError as error:
            return ListedBundle(name, "", (), 0, 0, taken, error.happened)
        counts = len(manifest.programs), len(manifest.images)
        return ListedBundle(
            name, manifest.kubernetes, tuple(sorted(manifest.systems())), *counts, taken, ""
        )

    def _age(self, manifest: Manifest) -> tuple[tuple[int, ...], float]:
        version = tuple(int(part) for part in manifest.kubernetes.split("."))
        with suppress(OSError):  # removed by another process meanwhile
            return version, (self.directory(manifest) / FILE).stat().st_mtime
        return version, 0.0

    def _old(self, in_use: Collection[str]) -> Iterator[Path]:
        kept = {used[:SHORT] for used in in_use}
        for manifest in self.all():
            minor = _minor(manifest.kubernetes)
            if minor in versions.SUPPORTED:
                kept.add(self.directory(self.newest(minor, manifest.systems())).name)
        yield from (self._root / name for name in self._names() if name not in kept)

    def _dead(self) -> Iterator[Path]:
        for path in sorted((*self._root.glob(f".*{PARTIAL}"), *self._root.glob(f"*/{MEDIA}/.*"))):
            if holder(self._lock_of(path)) is None:
                yield path

    def _lock_of(self, path: Path) -> Path:
        """The lock for a bundle's directory, finished or in progress (name with a leading dot)."""
        name = path.name.removeprefix(".").removesuffix(PARTIAL)
        if path.parent.name == MEDIA:
            return self.lock(f"medium-{path.parents[1].name}-{name.partition('-')[0]}")
        return self.lock(name)

    def lock(self, name: str) -> Path:
        """Directory of the lock for creating a bundle of this name."""
        return self._cache / "locks" / f"bundle-{name}"


def _minor(version: str) -> str:
    return version.rpartition(".")[0]


def seal(medium: Path) -> None:
    """Write the SHA-256 of a finished medium into a file beside it."""
    with medium.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    digest_file(medium).write_text(f"{digest}\n", encoding="ascii")


def digest_file(medium: Path) -> Path:
    """Path of that file."""
    return medium.with_name(f"{medium.name}.sha256")


def _medium_damage(medium: Path) -> str:
    """What is wrong with a finished medium, as a clause; empty if it is intact."""
    try:
        sealed = read_regular(digest_file(medium)).decode("ascii", errors="replace").strip()
    except OSError as error:
        return f"medium '{medium}' has no digest beside it: {os_words(error)}"
    why = damage(medium, sealed)
    return f"medium {why}" if why else ""


def _list_blobs(manifest: Manifest, systems: Collection[Os]) -> Iterator[tuple[str, Blob]]:
    """Every blob for some operating systems (all, if empty), and its owner."""
    for program in manifest.programs:
        if not systems or program.os in systems:
            yield f"program '{program.name}' ({program.os})", program.blob
    for image in manifest.images:
        if systems and image.os not in systems:
            continue
        owner = f"image '{image.name}' ({image.os})"
        yield f"{owner}, its manifest", image.manifest
        yield f"{owner}, its configuration", image.config
        for number, layer in enumerate(image.layers, 1):
            yield f"{owner}, layer {number}", layer.blob
