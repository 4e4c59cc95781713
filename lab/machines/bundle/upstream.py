"""Makes a bundle from upstream's releases."""

from __future__ import annotations

import json
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from lab._errors import PreflightError, UsageError
from lab.inventory.inventory import Inventory
from lab.machines.bundle import images
from lab.machines.bundle.manifest import (
    KUBERNETES,
    Asset,
    Blob,
    Manifest,
    Program,
    add_on_versions,
    newest_patch,
    wanted_assets,
    wanted_images,
)
from lab.machines.bundle.store import BundleStore, Scratch
from lab.machines.cluster import rules
from lab.machines.images.download import Web, fetch, find_digest
from lab.machines.images.golden import guarded
from lab.machines.images.job import Say
from lab.scenario.findings import cut
from lab.scenario.terms import Os
from lab.scenario.versions import SUPPORTED, unsupported
from lab.state.directory import fsync
from lab.state.failure import is_of_content

INSTEAD = (
    "check 'mirrors' and 'proxies' of the inventory, or make the bundle from a directory: "
    "lab bundle create --from DIRECTORY"
)
TRUSTING = "ask whoever runs the mirror, or remove the mirror from the inventory"
LARGEST = 2 << 30
"""Limit of the bytes in an archive; the largest, containerd's, has some 150 MB."""
_HEX = re.compile(r"[0-9a-fA-F]{64}")
_VERSION = re.compile(r"([0-9]{1,2}\.[0-9]{1,4})(\.[0-9]{1,6})?")


def web(inventory: Inventory) -> Web:
    """HTTP access to upstream through the inventory's mirrors and proxies."""
    return Web(inventory.mirrors, inventory.proxies.by_name(), INSTEAD, TRUSTING)


def create(  # noqa: PLR0913, PLR0917  a bundle is made of all these
    store: BundleStore,
    reached: Web,
    kubernetes: str,
    systems: Sequence[Os],
    say: Say,
    add_ons: Sequence[str] = (),
) -> Manifest:
    """Download the bundle of a Kubernetes version; continues an interrupted attempt.

    ``kubernetes``: a patch version, or a minor for its newest patch version. ``systems``: operating
    systems of nodes. ``add_ons``: network add-ons to include besides flannel.

    Raises UsageError for an unsupported version; PreflightError when an address does not answer or
    content does not match its checksum; BrokenError when the connection breaks repeatedly, after
    which another call continues.
    """
    version = _patch(reached, kubernetes)
    versions = {**rules.components(version.rpartition(".")[0]), KUBERNETES: version}
    if "windows" not in systems:
        for component in ("powershell", "windows-cni"):
            del versions[component]
    for addon in add_ons:
        versions |= add_on_versions()[addon]

    def fill(into: Scratch) -> Manifest:
        releases = _Releases(reached, into, say)
        programs = [
            program
            for asset in wanted_assets(versions, systems)
            for program in releases.programs(asset, versions[asset.component])
        ]
        pulled = [
            image
            for wanted in wanted_images(versions, systems, add_ons)
            for image in images.pull(reached, wanted, into, say)
        ]
        return Manifest(tuple(sorted(versions.items())), tuple(programs), tuple(pulled))

    name = "-".join(("upstream", version, *sorted(systems), *sorted(add_ons)))
    return store.add(name, fill, say, goes_on=True)


def _patch(reached: Web, kubernetes: str) -> str:
    action = f"making a bundle of Kubernetes {kubernetes}"
    match = _VERSION.fullmatch(kubernetes)
    if match is None:
        raise UsageError(action, "not a version", f'give one such as "{SUPPORTED[-1]}" or "1.36.1"')
    why = unsupported(match[1])
    if why is not None:
        raise UsageError(action, f"Kubernetes {match[1]} {why}", f"give {' or '.join(SUPPORTED)}")
    if match[2]:
        return kubernetes
    url = newest_patch(kubernetes)
    answer = reached.text(url, f"looking for the newest Kubernetes {kubernetes}").strip()
    if not re.fullmatch(rf"v{re.escape(kubernetes)}\.[0-9]{{1,6}}", answer):
        raise PreflightError(action, f"{url} says {cut(answer)!r}", INSTEAD)
    return answer.removeprefix("v")


@dataclass(frozen=True, slots=True)
class _Releases:
    """Fetches released files into a bundle; each checksum list is downloaded once."""

    web: Web
    into: Scratch
    say: Say
    lists: dict[str, str] = field(default_factory=dict)

    def programs(self, asset: Asset, version: str) -> Iterator[Program]:
        """The programs in one released file."""
        url = asset.url
        digest = self._digest(asset)
        self.say(f"{asset.component} {version}: {url.rpartition('/')[2]}")
        source = url if digest else f"{url} (no checksum is published)"
        if digest is None:
            self.say(f"note: no checksum of {url} is published: its content is not verified")
        blob = self._fetched(url, digest)
        if asset.program:
            yield Program(asset.program, asset.component, asset.os, blob, source)
            return
        for member, program in asset.members:
            with _member(self.into.path(blob), member, url) as content:
                kept = self.into.keep(content, f"unpacking '{member}' of {url}")
            yield Program(program, asset.component, asset.os, kept, source)

    def _digest(self, asset: Asset) -> str | None:
        """``sha256:`` or ``sha512:`` and hex; None if upstream publishes no checksum."""
        file = asset.url.rpartition("/")[2]
        where = asset.sums or asset.release
        assert where is not None, "the catalogue has one of the two"
        action = f"looking for the checksum of {asset.url}"
        if where not in self.lists:
            self.lists[where] = self.web.text(where, action)
        text = self.lists[where].strip()
        if asset.sums is None:
            return _find_published_digest(text, file, where, action)
        digest = f"sha256:{text.lower()}" if _HEX.fullmatch(text) else find_digest(text, file)
        if digest is None:
            raise PreflightError(action, f"{where} does not list '{file}'", INSTEAD)
        return digest

    def _fetched(self, url: str, digest: str | None) -> Blob:
        algorithm, _, digits = (digest or "").partition(":")
        path = self.into.blobs / (digits or "unchecked")
        with guarded(f"downloading {url}"):
            if digest is None:
                path.unlink(missing_ok=True)
            fetch(self.web, url, path, digest, self.say)
            fsync(path)
        if algorithm == "sha256":
            return Blob(digits, path.stat().st_size)
        return self.into.keep_file(path)


def _find_published_digest(text: str, file: str, where: str, action: str) -> str | None:
    """The digest that GitHub reports for a release's file; known for uploads since June 2025."""
    try:
        digests = {asset["name"]: asset.get("digest") for asset in json.loads(text)["assets"]}
        digest = digests[file]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        happened = f"{where} does not describe a release with a file '{file}'"
        raise PreflightError(action, happened, INSTEAD) from None
    if digest is None:
        return None
    if not _HEX.fullmatch(str(digest).removeprefix("sha256:")):
        raise PreflightError(action, f"{where} says {cut(str(digest))!r}, not a SHA-256", INSTEAD)
    return str(digest)


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a file in an archive, whose damage shows only while it is read."""

    content: IO[bytes]
    action: str

    def read(self, size: int = -1, /) -> bytes:
        """Read at most ``size`` bytes, or all. Raises as :func:`_unpacking` does."""
        with _unpacking(self.action):
            return self.content.read(size)


@contextmanager
def _member(path: Path, member: str, url: str) -> Iterator[_Content]:
    """The content of a file in an archive; nothing is unpacked to the archive's own paths.

    Reads no more of a file than the size in the archive's header. Raises PreflightError when the
    archive is damaged or does not have the file; StateError when the disk cannot be read.
    """
    action = f"unpacking '{member}' of {url}"
    with ExitStack() as opened:
        with _unpacking(action):
            content = _open_member(path, member, action, opened)
        yield _Content(content, action)


def _open_member(path: Path, member: str, action: str, opened: ExitStack) -> IO[bytes]:
    if zipfile.is_zipfile(path):
        packed = opened.enter_context(zipfile.ZipFile(path))
        sizes = {file.filename: file.file_size for file in packed.infolist()}
        _require_bounded(sum(sizes.values()), action)
        return opened.enter_context(packed.open(_read_name(sizes, member, action)))
    archive = opened.enter_context(tarfile.open(path, "r:*"))  # noqa: SIM115  until it is read
    files, size = {}, 0
    for entry in archive:
        size += _read_declared_size(entry)
        _require_bounded(size, action)  # before seeking, which reads all of this one
        if entry.isfile():
            files[entry.name] = entry
    content = archive.extractfile(files[_read_name(files, member, action)])
    assert content is not None, "it is a file"
    return opened.enter_context(content)


_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError)
"""What is raised for an archive whose content is damaged, whichever way it is packed."""


@contextmanager
def _unpacking(action: str) -> Iterator[None]:
    """Raise PreflightError for errors of a damaged archive, StateError for those of the disk."""
    try:
        with guarded(action):
            try:
                yield
            except OSError as error:
                if not is_of_content(error):
                    raise
                raise tarfile.ReadError(str(error)) from error
    except _DAMAGED as error:
        reason = str(error).partition(":\n")[0]  # tarfile adds a line for each way to unpack
        happened = f"the archive is damaged or cut short ({reason})"
        raise PreflightError(action, happened, INSTEAD) from error
    except (RuntimeError, UnicodeError) as error:
        # RuntimeError: encrypted, or odd; UnicodeError: a name that is not text
        raise PreflightError(action, f"it cannot be unpacked ({error})", INSTEAD) from error


def _read_declared_size(member: tarfile.TarInfo) -> int:
    if member.size < 0:  # tarfile would seek backwards
        raise tarfile.TarError(f"'{cut(member.name)}' has {member.size} bytes")
    return member.size


def _require_bounded(size: int, action: str) -> None:
    if size > LARGEST:
        happened = f"it claims more than {LARGEST >> 30} GiB of files, more than any release has"
        raise PreflightError(action, happened, INSTEAD)


def _read_name(members: Mapping[str, object], member: str, action: str) -> str:
    for name in members:
        if name.removeprefix("./") == member:
            return name
    held = ", ".join(sorted(members)[:8])
    raise PreflightError(action, f"it is not in the archive, which has {held}", INSTEAD)
