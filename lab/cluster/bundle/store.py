"""The bundles of this machine: made once, named by digest, collected when a newer one is there.

.. code-block:: text

    <cache>/bundles/0123456789ab/              manifest.json blobs/sha256/... media/...
    <cache>/bundles/.upstream-1.36.partial/    one that is being made, or was
    <cache>/locks/bundle-upstream-1.36/        who makes it

A bundle's directory gets its name when it is whole, by one rename: what is there is complete.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab._errors import BrokenError, LabError, PreflightError, UsageError
from lab._log import quantity
from lab.cluster.bundle import document, whole
from lab.cluster.bundle.document import SHORT
from lab.cluster.bundle.garbage import PARTIAL, Collected, found_stat, remove, size_of
from lab.cluster.bundle.manifest import Blob, Manifest
from lab.cluster.bundle.scratch import BLOBS, ELSEWHERE, Scratch, guarded, settle
from lab.imaging.job import Say
from lab.scenario import versions
from lab.scenario.scenario import Os
from lab.state.failure import file_failure
from lab.state.lock import HeldError, holder, lab_lock

_NAME = re.compile(r"[0-9a-f]{12}")
"""Of a bundle's directory; whatever else is there is not the lab's."""
_WAIT = 6 * 3600.0
"""Seconds to wait for another one to make a bundle: downloads on a slow line."""
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Listed:
    """One directory of the store."""

    digest: str
    """Its name: the first 12 hex digits."""
    kubernetes: str
    """Version; empty where the bundle is unusable."""
    systems: tuple[str, ...]
    programs: int
    images: int
    bytes: int
    """Of its files on disk."""
    detail: str
    """Why it is unusable; empty if it is not."""


class Store:
    """Bundles below one cache directory."""

    def __init__(self, cache: Path) -> None:
        """Use a cache; nothing is read or made yet."""
        self._cache = cache
        self._root = cache / "bundles"

    def directory(self, manifest: Manifest) -> Path:
        """Where a bundle is, or would be."""
        return self._root / document.digest(manifest)[:SHORT]

    def blob(self, manifest: Manifest, blob: Blob) -> Path:
        """Where a blob of a bundle is."""
        return self.directory(manifest) / BLOBS / blob.sha256

    def get(self, digest: str) -> Manifest:
        """The bundle whose digest begins so.

        Raises
        ------
        UsageError
            When there is none, or several.
        PreflightError
            When it is damaged.

        """
        found = [name for name in self._names() if digest and name.startswith(digest[:SHORT])]
        if len(found) != 1:
            there = ", ".join(self._names()) or "no other either"
            how = f"there are {len(found)} of them" if found else f"there is none; there is {there}"
            raise UsageError(
                f"looking for bundle '{digest}'", how, "give a digest that 'lab bundle list' prints"
            )
        made = self._read(found[0])
        if not document.digest(made).startswith(digest):
            raise UsageError(
                f"looking for bundle '{digest}'",
                f"there is '{document.digest(made)}' only",
                "give a digest that 'lab bundle list' prints",
            )
        return made

    def newest(self, minor: str, systems: Collection[Os] = ()) -> Manifest:
        """The bundle of the newest patch version of a Kubernetes minor; of several, the last made.

        Parameters
        ----------
        systems
            Operating systems that it must have programs for.

        Raises
        ------
        PreflightError
            When there is none.

        """
        of_it = [one for one in self._whole() if _minor(one.kubernetes) == minor]
        fitting = [one for one in of_it if _systems(one).issuperset(systems)]
        if not fitting:
            wanted = " and ".join(sorted(systems))
            raise PreflightError(
                f"looking for a bundle of Kubernetes {minor}",
                f"none in '{self._root}' has programs for {wanted}"
                if of_it
                else f"there is none in '{self._root}'",
                f"lab bundle create --kubernetes {minor}",
            )
        return max(fitting, key=self._age)

    def list(self) -> tuple[Listed, ...]:
        """Every bundle, the damaged ones too."""
        return tuple(self._listed(name) for name in self._names())

    def all(self) -> tuple[Manifest, ...]:
        """Every bundle that can be read."""
        return tuple(self._whole())

    def verify(self, manifest: Manifest, say: Say, systems: Collection[Os] = ()) -> None:
        """Read every byte of a bundle, and of the media that have been made from it.

        Parameters
        ----------
        systems
            Read the blobs that are for these alone; all of it if empty.

        Raises
        ------
        BrokenError
            Naming every blob that is gone or is another one, what it belongs to, and every medium
            that is not as it was written.

        """
        name = document.digest(manifest)[:SHORT]
        seen: set[Blob] = set()
        problems: list[str] = []
        for owner, blob in whole.owned(manifest, systems):
            if blob not in seen:
                seen.add(blob)
                problems += (
                    f"{owner}: {one}" for one in whole.damage(self.blob(manifest, blob), blob)
                )
        cure = "make it anew as it was made ('lab bundle create'): that mends it"
        media = () if systems else whole.media(self.directory(manifest))
        if not problems:
            cure = "remove what is damaged: the next 'lab up' that needs it writes it anew"
        problems += (problem for one in media if (problem := whole.medium_damage(one)))
        if problems:
            raise BrokenError(f"verifying bundle '{name}'", "; ".join(problems), cure)
        size = sum(blob.size for blob in seen)
        beside = f", and {quantity(len(media), 'finished medium')}" if media else ""
        figures = f"{quantity(len(seen), 'blob')}, {size / _MIB:.0f} MiB{beside}"
        say(f"bundle '{name}': all is whole: {figures}")

    def add(
        self, name: str, fill: Callable[[Scratch], Manifest], say: Say, *, goes_on: bool
    ) -> Manifest:
        """Make a bundle, whole or not at all.

        Several processes may make the same one: one does, the others wait and are told for whom.

        Parameters
        ----------
        name
            Of what it is made from; two that are made from the same wait for one another.
        fill
            Fills the scratch directory, and says what it has filled in.
        goes_on
            Whether what an interrupted try has left is used: blobs by their digests.

        """
        scratch = self._root / f".{name}{PARTIAL}"
        with guarded("making a bundle"):
            self._root.mkdir(parents=True, exist_ok=True)
        with lab_lock(self.lock(name), "lab bundle create", wait=_WAIT, say=say):
            if scratch.exists():
                say(
                    "going on with an interrupted one"
                    if goes_on
                    else "an interrupted one is done anew"
                )
                if not goes_on:
                    remove(scratch)
            try:
                made = Scratch(scratch)
                return self._adopt(made, document.settled(fill(made)), say)
            except BaseException:
                if not goes_on:
                    shutil.rmtree(scratch, ignore_errors=True)
                raise

    def gc(self, in_use: Collection[str], yes: bool) -> Collected:
        """Find, and with ``yes`` remove, bundles that a newer one of their minor stands for.

        So do damaged ones, those of minors that labs no longer have, and what was interrupted.

        Parameters
        ----------
        in_use
            Digests, or their beginnings, of bundles that labs were made from.
        yes
            Remove; else only say what would be.

        """
        found = [*self._old(in_use), *self._dead()]
        size = sum(size_of(path) for path in found)
        if yes:
            for path in found:
                self._collect(path)
        names = tuple(str(path.relative_to(self._cache)) for path in found)
        return Collected(names, size, yes)

    def _collect(self, path: Path) -> None:
        """Remove a directory, unless somebody has begun to make something in it meanwhile."""
        name = path.name.removeprefix(".").removesuffix(PARTIAL)
        with suppress(HeldError), lab_lock(self.lock(name), "lab bundle gc", wait=0):
            remove(path)

    def _adopt(self, made: Scratch, manifest: Manifest, say: Say) -> Manifest:
        """Give a finished bundle its name."""
        for problem in document.wrong(manifest):
            raise BrokenError("making a bundle", problem)
        made.tidy(manifest.blobs())
        made.write(document.FILE, document.encoded(manifest))
        made.settle()
        final = self.directory(manifest)
        lock = self.lock(final.name)  # the same may be made from elsewhere at the same time
        with (
            lab_lock(lock, "lab bundle create", wait=_WAIT, say=say),
            guarded(f"making bundle '{final.name}'"),
        ):
            if final.exists() and self._is_whole(manifest):
                say(f"bundle '{final.name}' is there already")
                shutil.rmtree(made.directory)
                return manifest
            if final.exists():
                say(f"bundle '{final.name}' is damaged: it is made anew")
                remove(final)
            made.directory.rename(final)
            settle(self._root)
        return manifest

    def _is_whole(self, manifest: Manifest) -> bool:
        """Whether every byte of a bundle is what it must be."""
        try:
            self._read(self.directory(manifest).name)
            self.verify(manifest, lambda _: None)
        except LabError:
            return False
        return True

    def _names(self) -> tuple[str, ...]:
        try:
            found = sorted(path.name for path in self._root.iterdir() if path.is_dir())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise file_failure(f"looking into '{self._root}'", error, ELSEWHERE) from error
        return tuple(name for name in found if _NAME.fullmatch(name))

    def _read(self, name: str) -> Manifest:
        path = self._root / name / document.FILE
        try:
            with whole.opened(path) as file:
                content = file.read()
        except OSError as error:
            raise PreflightError(
                f"reading bundle '{name}'",
                f"'{path}': {(error.strerror or str(error)).lower()}",
                "lab bundle gc --yes",
            ) from error
        found = hashlib.sha256(content).hexdigest()[:SHORT]
        manifest = document.decoded(content, str(path))
        if found != name:
            raise PreflightError(
                f"reading bundle '{name}'",
                f"'{path}' is another bundle's: its digest begins with {found}",
                "lab bundle gc --yes",
            )
        return manifest

    def _whole(self) -> Iterator[Manifest]:
        for name in self._names():
            try:
                yield self._read(name)
            except LabError:
                continue

    def _listed(self, name: str) -> Listed:
        size = size_of(self._root / name)
        try:
            found = self._read(name)
        except LabError as error:
            return Listed(name, "", (), 0, 0, size, error.happened)
        return Listed(
            name,
            found.kubernetes,
            tuple(sorted(_systems(found))),
            len(found.programs),
            len(found.images),
            size,
            "",
        )

    def _age(self, manifest: Manifest) -> tuple[tuple[int, ...], float]:
        made = found_stat(self.directory(manifest) / document.FILE)
        version = tuple(int(part) for part in manifest.kubernetes.split("."))
        return version, made.st_mtime if made else 0.0

    def _old(self, in_use: Collection[str]) -> Iterator[Path]:
        kept = {used[:SHORT] for used in in_use}
        for one in self._whole():
            minor = _minor(one.kubernetes)
            if minor in versions.SUPPORTED:
                kept.add(self.directory(self.newest(minor, _systems(one))).name)
        for name in self._names():
            if name not in kept:
                yield self._root / name

    def _dead(self) -> Iterator[Path]:
        if not self._root.is_dir():
            return
        for place in sorted(self._root.iterdir()):
            name = place.name.removeprefix(".").removesuffix(PARTIAL)
            partial = place.name == f".{name}{PARTIAL}"
            if partial and holder(self.lock(name)) is None:
                yield place

    def lock(self, name: str) -> Path:
        """The directory of the lock for making something of that name."""
        return self._cache / "locks" / f"bundle-{name}"


def _systems(manifest: Manifest) -> frozenset[Os]:
    return frozenset(one.os for one in manifest.programs)


def _minor(version: str) -> str:
    return version.rpartition(".")[0]
