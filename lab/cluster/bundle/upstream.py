"""A bundle made from where upstream has released its parts."""

from __future__ import annotations

import http.client
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lab._errors import PreflightError, UsageError
from lab.cluster import rules
from lab.cluster.bundle import catalogue, distribution, oci
from lab.cluster.bundle.catalogue import Asset
from lab.cluster.bundle.distribution import Registries
from lab.cluster.bundle.manifest import KUBERNETES, Blob, Manifest, Program
from lab.cluster.bundle.scratch import Scratch, guarded, settle
from lab.cluster.bundle.store import Store
from lab.imaging.download import fetch
from lab.imaging.job import Say
from lab.imaging.source import listed
from lab.inventory.inventory import Inventory
from lab.scenario.scenario import Os
from lab.scenario.versions import SUPPORTED, unsupported

INSTEAD = (
    "look at 'mirrors' and 'proxies' of the inventory, or make the bundle from a directory: "
    "lab bundle create --from DIRECTORY"
)
TRUSTING = "ask the mirror's keeper, or take the mirror out of the inventory"
_BARE = re.compile(r"[0-9a-fA-F]{64}")
_VERSION = re.compile(r"([0-9]{1,2}\.[0-9]{1,4})(\.[0-9]{1,6})?")


def web(inventory: Inventory) -> Registries:
    """How upstream is reached: the inventory's mirrors and proxies."""
    return Registries(inventory.mirrors, inventory.proxies, INSTEAD, TRUSTING)


def create(  # noqa: PLR0913, PLR0917  a bundle is made of all these
    store: Store,
    reached: Registries,
    kubernetes: str,
    systems: Sequence[Os],
    say: Say,
    add_ons: Sequence[str] = (),
) -> Manifest:
    """The bundle of a Kubernetes version, downloaded; an interrupted try is gone on with.

    Parameters
    ----------
    kubernetes
        A minor, of which the newest patch version is taken, or a patch version.
    systems
        Operating systems of nodes.
    add_ons
        Network add-ons that it is to have beside flannel.

    Raises
    ------
    UsageError
        When labs cannot have that version.
    PreflightError
        When an address does not answer, or what came is not what it must be.
    BrokenError
        When the connection breaks again and again; the next try goes on.

    """
    version = _patch(reached, kubernetes)
    versions = {**rules.components(version.rpartition(".")[0]), KUBERNETES: version}
    if "windows" not in systems:
        del versions["windows-cni"]
    for one in add_ons:
        versions |= rules.add_on(one)

    def fill(into: Scratch) -> Manifest:
        fetching = _Fetching(reached, into, say)
        programs = [
            program
            for asset in catalogue.assets(versions, systems)
            for program in fetching.programs(asset, versions[asset.component])
        ]
        images = [
            image
            for wanted in catalogue.images(versions, systems, add_ons)
            for image in distribution.pull(reached, wanted, into, say)
        ]
        return Manifest(tuple(sorted(versions.items())), tuple(programs), tuple(images))

    name = "-".join(("upstream", version, *sorted(systems), *sorted(add_ons)))
    return store.add(name, fill, say, goes_on=True)


def _patch(reached: Registries, kubernetes: str) -> str:
    doing = f"making a bundle of Kubernetes {kubernetes}"
    found = _VERSION.fullmatch(kubernetes)
    if found is None:
        raise UsageError(
            doing, "that is no version", f'give one such as "{SUPPORTED[-1]}" or "1.36.1"'
        )
    why = unsupported(found[1])
    if why is not None:
        raise UsageError(doing, f"Kubernetes {found[1]} {why}", f"give {' or '.join(SUPPORTED)}")
    if found[2]:
        return kubernetes
    url = catalogue.newest_patch(kubernetes)
    said = reached.text(url, f"looking for the newest Kubernetes {kubernetes}").strip()
    if not re.fullmatch(rf"v{re.escape(kubernetes)}\.[0-9]{{1,6}}", said):
        raise PreflightError(doing, f"{url} says {said[:40]!r}", INSTEAD)
    return said.removeprefix("v")


class _Sums:
    """Digests of released files, each list asked for once."""

    def __init__(self, reached: Registries) -> None:
        self._web = reached
        self._lists: dict[str, str] = {}

    def of(self, asset: Asset) -> str | None:
        """``sha256:`` and hex; None where upstream publishes none.

        Raises
        ------
        PreflightError
            When the list cannot be had, or the file is not in it.

        """
        file = asset.url.rpartition("/")[2]
        where = asset.sums or asset.release
        assert where is not None, "the catalogue says one of the two"
        doing = f"looking for the checksum of {asset.url}"
        if where not in self._lists:
            self._lists[where] = self._web.text(where, doing)
        said = self._lists[where]
        if asset.sums is None:
            return self._of_release(said, file, where, doing)
        bare = said.strip()
        found = f"sha256:{bare.lower()}" if _BARE.fullmatch(bare) else listed(said, file)
        if found is None:
            raise PreflightError(doing, f"{where} does not list '{file}'", INSTEAD)
        return found

    def _of_release(self, said: str, file: str, where: str, doing: str) -> str | None:
        """GitHub knows the digest of what was uploaded since June 2025."""
        try:
            files = {one["name"]: one.get("digest") for one in oci.parsed(said)["assets"]}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise PreflightError(
                doing, f"{where} is no description of a release", INSTEAD
            ) from None
        if file not in files:
            raise PreflightError(doing, f"{where} has no file '{file}'", INSTEAD)
        digest = files[file]
        return None if digest is None else str(digest)


class _Fetching:
    """Fetches released files into a bundle."""

    def __init__(self, reached: Registries, into: Scratch, say: Say) -> None:
        self._web = reached
        self._into = into
        self._say = say
        self._sums = _Sums(reached)

    def programs(self, asset: Asset, version: str) -> Iterator[Program]:
        """The programs of one released file."""
        digest = self._sums.of(asset)
        self._say(f"{asset.component} {version}: {asset.url.rpartition('/')[2]}")
        if digest is None:
            self._say(f"note: nobody publishes a checksum of {asset.url}: it is taken as it comes")
            source = f"{asset.url} (no checksum is published)"
            blob = self._unchecked(asset.url)
        else:
            source = asset.url
            blob = self._checked(asset.url, digest)
        if asset.program:
            yield Program(asset.program, asset.component, asset.os, blob, source)
            return
        for member, program in asset.members:
            with _member(self._into.path(blob), member, asset.url) as content:
                found = self._into.keep(content, f"unpacking '{member}' of {asset.url}")
            yield Program(program, asset.component, asset.os, found, source)

    def _checked(self, url: str, digest: str) -> Blob:
        algorithm, _, digits = digest.partition(":")
        path = self._into.blobs / digits
        with guarded(f"downloading {url}"):
            fetch(self._web, url, path, digest, self._say)
            settle(path)
        if algorithm == "sha256":
            return Blob(digits, path.stat().st_size)
        return self._into.keep_file(path)

    def _unchecked(self, url: str) -> Blob:
        doing = f"downloading {url}"
        try:
            with self._web.open(url, {}) as answer:
                answer.take_time()
                return self._into.keep(answer, doing)
        except (OSError, http.client.HTTPException) as error:
            raise self._web.refused(url, doing, error) from error


@contextmanager
def _member(path: Path, member: str, url: str) -> Iterator[IO[bytes]]:
    """The content of a file in an archive; it is never unpacked by the archive's own names."""
    doing = f"unpacking '{member}' of {url}"
    try:
        if zipfile.is_zipfile(path):
            with (
                zipfile.ZipFile(path) as packed,
                packed.open(_named(packed.namelist(), member, doing)) as content,
            ):
                yield content
            return
        with tarfile.open(path, "r:*") as archive:
            files = {one.name: one for one in archive if one.isfile()}
            found = archive.extractfile(files[_named(files, member, doing)])
            assert found is not None, "it is a file"
            with found:
                yield found
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise PreflightError(doing, f"it is no whole archive ({error})", INSTEAD) from error
    except (zlib.error, lzma.LZMAError, RuntimeError) as error:  # the last of locked, or odd, ones
        raise PreflightError(doing, f"it cannot be unpacked ({error})", INSTEAD) from error


def _named(there: Sequence[str] | Mapping[str, object], member: str, doing: str) -> str:
    for name in there:
        if name.removeprefix("./") == member:
            return name
    held = ", ".join(sorted(there)[:8])
    raise PreflightError(doing, f"it is not in it; there is {held}", INSTEAD)
