"""Container images in tar files, as ``docker save``, ``skopeo`` and ``ctr`` write them.

Nothing is unpacked to the disk by a name that an archive gives: members are read by name and
kept by their digests. Layers stay as they are.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from lab.cluster.bundle import names, oci
from lab.cluster.bundle.manifest import Blob, ContainerImage, Layer
from lab.cluster.bundle.oci import Descriptor, broken, field
from lab.cluster.bundle.scratch import Scratch, guarded

_DOCKER = "manifest.json"
_OCI = "index.json"
_DEPTH = 4
"""Indexes below indexes, and links to links."""
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_MAGIC_AT, _MAGIC = 257, b"ustar"


def images(path: Path, source: str, into: Scratch) -> tuple[ContainerImage, ...]:
    """Copy the images of an archive into a bundle.

    Parameters
    ----------
    path
        A docker-archive or an OCI archive, or both in one, without compression.
    source
        Where it was had from, in words.

    Raises
    ------
    PreflightError
        When it is neither, an image in it has no full name or is for other machines, or its
        content is not what its digests say.

    """
    with _opened(path) as archive:
        if _OCI in archive:
            return tuple(_oci(archive, source, into))
        if _DOCKER in archive:
            return tuple(_docker(archive, source, into))
        raise broken(archive.where, f"it holds neither '{_OCI}' nor '{_DOCKER}': it is no image")


class _Archive:
    """Members of a tar file by name."""

    def __init__(self, tar: tarfile.TarFile, length: int, where: str) -> None:
        self.where = where
        self._tar = tar
        self._length = length
        self._members = {name: member for member in tar if (name := self._checked(member))}
        self.leaves: dict[str, tuple[Descriptor, ...]] = {}
        """What is below each index, by its digest: it is asked once, however often it is named."""

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def open(self, name: str) -> IO[bytes]:
        """The content of a member, which may be a link to another one."""
        asked = name
        for _ in range(_DEPTH):
            member = self._members.get(name)
            if member is None:
                break
            if member.isfile():
                content = self._tar.extractfile(member)
                assert content is not None, "it is a file"
                return content
            if not (member.issym() or member.islnk()):
                break
            beside = PurePosixPath(name).parent if member.issym() else PurePosixPath()
            name = _plain(beside / member.linkname) or ""
        raise broken(self.where, f"it holds no file '{asked}'")

    def document(self, name: str) -> bytes:
        """A small member, whole."""
        with self.open(name) as content:
            found = content.read(oci.LARGEST + 1)
        if len(found) > oci.LARGEST:
            raise broken(self.where, f"'{name}' is larger than any document of an image")
        return found

    def keep(self, name: str, blob: Blob | None, into: Scratch) -> Blob:
        """Copy a member into the bundle; it must be that blob, where one is given."""
        if blob is not None and into.has(blob):
            return blob
        with self.open(name) as content:
            found = into.keep(content, f"copying '{name}' of {self.where}")
        if blob is not None and found != blob:
            raise broken(
                self.where,
                f"'{name}' is not what it must be: expected sha256:{blob.sha256} with "
                f"{blob.size:,} bytes, and it is sha256:{found.sha256} with {found.size:,}",
            )
        return found

    def _checked(self, member: tarfile.TarInfo) -> str | None:
        name = _plain(PurePosixPath(member.name))
        if name is None:
            raise broken(self.where, f"its member '{member.name}' points out of it")
        plain = member.isfile() or member.isdir() or member.issym() or member.islnk()
        if not plain or member.issparse():
            raise broken(self.where, f"its member '{member.name}' is neither file nor link")
        if not 0 <= member.size <= self._length - member.offset_data:
            raise broken(
                self.where,
                f"it is no whole tar file (its member '{member.name}' has {member.size:,} bytes)",
            )
        return None if member.isdir() else name


@contextmanager
def _opened(path: Path) -> Iterator[_Archive]:
    where = f"image archive '{path}'"
    with guarded(f"reading {where}"), path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        start = file.read(_MAGIC_AT + len(_MAGIC))
        if start.startswith((_GZIP, _ZSTD)):
            raise broken(where, "it is compressed: unpack it with gunzip or unzstd")
        file.seek(0)
        try:
            yield _looked_into(file, length, where)
        except tarfile.TarError as error:
            raise broken(where, f"it is no whole tar file ({error})") from error


def _looked_into(file: IO[bytes], length: int, where: str) -> _Archive:
    try:
        return _Archive(tarfile.open(fileobj=file, mode="r:"), length, where)
    except (ValueError, OverflowError) as error:  # what tarfile makes of headers with odd numbers
        raise broken(where, f"it is no whole tar file ({error})") from error


def _plain(path: PurePosixPath) -> str | None:
    """A path without dots; None where it leads out of the archive."""
    found: list[str] = []
    for part in path.parts:
        if part == "/" or (part == ".." and not found):
            return None
        if part == "..":
            found.pop()
        elif part != ".":
            found.append(part)
    return "/".join(found)


def _oci(archive: _Archive, source: str, into: Scratch) -> Iterator[ContainerImage]:
    index = oci.document(archive.document(_OCI), f"'{_OCI}' of {archive.where}")
    some = False
    for one in oci.descriptors(index, "manifests", archive.where):
        for manifest in _leaves(archive, one, _DEPTH):
            yield _oci_image(archive, _name(archive, one), manifest, source, into)
            some = True
    if not some:
        raise broken(archive.where, f"it holds no image for {oci.ARCHITECTURE} machines")


def _name(archive: _Archive, one: Descriptor) -> str:
    """The full name of an image of an index."""
    said = [one.annotations.get(key, "") for key in (oci.CONTAINERD_NAME, oci.REFERENCE)]
    for name in said:
        if "/" in name and names.is_full(name):
            return name
    tag = next((f"'{name}'" for name in said if name), "nothing")
    raise broken(
        archive.where,
        f"an image in it has no full name: its annotation '{oci.REFERENCE}' says {tag}; save it "
        "as REGISTRY/PATH:TAG",
    )


def _leaves(archive: _Archive, one: Descriptor, depth: int) -> tuple[Descriptor, ...]:
    """The manifests below a descriptor that are for machines of labs, and are in the archive."""
    if one.platform is not None and not one.platform.of_a_lab():
        return ()
    if one.media_type not in oci.INDEXES:
        there = one.platform is None or _member(one) in archive
        return (one,) if there else ()
    if one.blob.sha256 not in archive.leaves:
        archive.leaves[one.blob.sha256] = _below(archive, one, depth)
    return archive.leaves[one.blob.sha256]


def _below(archive: _Archive, one: Descriptor, depth: int) -> tuple[Descriptor, ...]:
    if not depth:
        raise broken(archive.where, "its indexes do not come to an end")
    where = f"index sha256:{one.blob.sha256} of {archive.where}"
    _checked(archive, one)
    found = oci.document(archive.document(_member(one)), where)
    by_digest = {
        leaf.blob.sha256: leaf
        for below in oci.descriptors(found, "manifests", where)
        for leaf in _leaves(archive, below, depth - 1)
    }
    return tuple(by_digest.values())


def _member(one: Descriptor) -> str:
    return f"blobs/sha256/{one.blob.sha256}"


def _checked(archive: _Archive, one: Descriptor) -> None:
    """See that a document is what its descriptor says; it is not kept."""
    from hashlib import sha256  # noqa: PLC0415  indexes below indexes are rare

    content = archive.document(_member(one))
    if sha256(content).hexdigest() != one.blob.sha256:
        raise broken(archive.where, f"index sha256:{one.blob.sha256} is another one")


def _oci_image(
    archive: _Archive, name: str, one: Descriptor, source: str, into: Scratch
) -> ContainerImage:
    where = f"manifest of '{name}' of {archive.where}"
    manifest = archive.keep(_member(one), oci.small(one.blob, where), into)
    content = oci.document(into.read(manifest), where)
    config = oci.small(oci.descriptor(content.get("config"), where).blob, where)
    archive.keep(f"blobs/sha256/{config.sha256}", config, into)
    contents = into.read(manifest), into.read(config)
    found = oci.image(name, manifest, contents, source, where)
    for layer in found.layers:
        archive.keep(f"blobs/sha256/{layer.blob.sha256}", layer.blob, into)
    return found


def _docker(archive: _Archive, source: str, into: Scratch) -> Iterator[ContainerImage]:
    try:
        listed = oci.parsed(archive.document(_DOCKER))
    except ValueError as error:
        raise broken(archive.where, f"'{_DOCKER}' is no JSON ({error})") from error
    if not isinstance(listed, list) or not listed:
        raise broken(archive.where, f"'{_DOCKER}' lists no image")
    for one in listed:
        yield from _docker_images(archive, one, source, into)


def _docker_images(
    archive: _Archive, one: Mapping[str, Any], source: str, into: Scratch
) -> Iterator[ContainerImage]:
    member = field(one, "Config", str, archive.where)
    archive.document(_plain(PurePosixPath(member)) or member)
    config = archive.keep(
        _plain(PurePosixPath(member)) or member, _digest_in(archive, member), into
    )
    layers = _docker_layers(archive, one, into.read(config), into)
    manifest = into.keep_bytes(oci.manifest(config, layers))
    contents = into.read(manifest), into.read(config)
    tags = one.get("RepoTags")
    if not isinstance(tags, list) or not tags:
        raise broken(
            archive.where, "an image in it has no name: save it by its name, not by its id"
        )
    for tag in tags:
        name = names.full(str(tag))
        if name is None:
            raise broken(archive.where, f"'{tag}' is no name of an image")
        yield oci.image(name, manifest, contents, source, archive.where)


def _digest_in(archive: _Archive, member: str) -> Blob | None:
    """The configuration's file is named by its digest, as far as anyone writes one."""
    digits = PurePosixPath(member).name.removesuffix(".json")
    if len(digits) != len("0" * 64) or not set(digits) <= set("0123456789abcdef"):
        return None
    return Blob(digits, len(archive.document(_plain(PurePosixPath(member)) or member)))


def _docker_layers(
    archive: _Archive, one: Mapping[str, Any], config: bytes, into: Scratch
) -> list[Layer]:
    where = f"configuration of {archive.where}"
    rootfs = field(oci.document(config, where), "rootfs", dict, where)
    unpacked = field(rootfs, "diff_ids", list, where)
    members = field(one, "Layers", list, archive.where)
    if len(unpacked) != len(members):
        raise broken(
            archive.where, f"it holds {len(members)} layers, and its image has {len(unpacked)}"
        )
    layers = []
    for member, digest in zip(members, unpacked, strict=True):
        name = _plain(PurePosixPath(str(member))) or str(member)
        with archive.open(name) as content:
            ending = {_GZIP: "+gzip", _ZSTD[:2]: "+zstd"}.get(content.read(2), "")
        blob = archive.keep(name, None, into)
        if not ending and blob.sha256 != oci.hexadecimal(str(digest), where):
            raise broken(
                archive.where,
                f"layer '{name}' is not what it must be: expected {digest}, and it is "
                f"sha256:{blob.sha256}",
            )
        layers.append(Layer(f"{oci.LAYER}{ending}", blob))
    return layers
