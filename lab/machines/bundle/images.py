"""Container images for a bundle: pulled from registries by skopeo, or read from archives.

Manifests, configurations and layers are stored unchanged, each under its digest.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from io import BufferedReader
from pathlib import Path
from posixpath import normpath
from typing import IO, Annotated, TypeVar

from pydantic import AliasPath, BaseModel, ConfigDict, Field, RootModel, ValidationError

from lab._errors import PreflightError
from lab._log import quantity
from lab.machines.bundle.manifest import (
    SYSTEMS,
    Blob,
    ContainerImage,
    Layer,
    Wanted,
    first_problem,
    is_full_name,
    make_validator,
)
from lab.machines.bundle.skopeo import repository
from lab.machines.bundle.store import Scratch
from lab.machines.cluster import rules
from lab.machines.images.download import Web, fetch
from lab.machines.images.golden import guarded
from lab.machines.images.job import Say
from lab.scenario.findings import cut

LARGEST = 1 << 22
"""Bytes of the largest manifest, index or configuration that is read."""
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_INDEXES = frozenset(
    {
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    }
)
_CONTAINERD_NAME = "io.containerd.image.name"
_REFERENCE = "org.opencontainers.image.ref.name"
_ARCHITECTURE = "amd64"
"""Processor architecture of all machines."""
_OCI_FILE, _DOCKER_FILE = "index.json", "manifest.json"
_HUB, _HUBS_REGISTRY = "docker.io", "registry-1.docker.io"
_COMPRESSED = {"+gzip": b"\x1f\x8b", "+zstd": b"\x28\xb5"}
"""Magic numbers of compressed files."""
_MIB = 1 << 20
_AGAIN = "save or fetch it again, as a docker-archive or an OCI archive"

_Word = Annotated[str, make_validator(re.compile(r"[A-Za-z0-9_.+/-]{0,127}").fullmatch, "word")]
"""Media types and Windows builds: they become part of the bundle's manifest."""
_Digest = Annotated[
    str, make_validator(re.compile(r"sha256:[0-9a-f]{64}").fullmatch, "SHA-256 digest")
]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class Platform(_Document):
    """What an image runs on; an image's configuration begins with these keys."""

    os: str
    architecture: str
    os_version: _Word | None = Field(None, alias="os.version")

    def of_a_lab(self) -> bool:
        """Whether a lab's machines can run it."""
        return self.os in SYSTEMS and self.architecture == _ARCHITECTURE


class Descriptor(_Document):
    """A reference from one document to another."""

    media_type: _Word = Field("", alias="mediaType")
    digest: _Digest
    size: int = Field(ge=0, lt=1 << 50)
    platform: Platform | None = None
    annotations: Mapping[str, str] | None = None
    urls: tuple[str, ...] | None = None
    """Download addresses of a layer that registries do not store (formerly Windows base layers)."""

    @property
    def blob(self) -> Blob:
        """The same in the form of the bundle's manifest."""
        return Blob(self.digest.removeprefix("sha256:"), self.size)


class _Index(_Document):
    manifests: tuple[Descriptor, ...] | None = None
    """None if the document is the manifest of a single image."""


class _Image(_Document):
    config: Descriptor
    layers: tuple[Descriptor, ...]


class _DockerImage(_Document):
    config: str = Field(alias="Config")
    tags: tuple[str, ...] | None = Field(None, alias="RepoTags")
    layers: tuple[str, ...] = Field(alias="Layers")


class _DockerImages(RootModel[tuple[_DockerImage, ...]]):
    """``manifest.json`` of a docker-archive."""


class _Configuration(_Document):
    unpacked: tuple[_Digest, ...] = Field(validation_alias=AliasPath("rootfs", "diff_ids"))
    """Digests of the uncompressed layers."""


_T = TypeVar("_T", bound=BaseModel)


def _parse(kind: type[_T], content: bytes, where: str) -> _T:
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise _make_error(where, first_problem(error)) from error


def _make_error(where: str, problem: str) -> PreflightError:
    return PreflightError(f"reading {where}", problem, _AGAIN)


def pull(web: Web, wanted: Wanted, into: Scratch, say: Say) -> Iterator[ContainerImage]:
    """Pull an image for all wanted platforms, by digest once its tag is resolved.

    Raises PreflightError when the registry does not answer, does not have the image for those
    systems, or sends a document that does not match its digest; BrokenError when layers cannot be
    downloaded. Layers that are complete stay for the next attempt.
    """
    where = f"image '{wanted.name}'"
    path, _, tag = wanted.name.rpartition(":")
    host, _, rest = path.partition("/")
    url = f"https://{_HUBS_REGISTRY if host == _HUB else host}/v2/{rest}/"
    with repository(web, url, f"pulling {where}", into.directory) as registry:
        top = registry.document(f":{tag}")
        for manifest in _choose_manifests(top, wanted, where):
            reference = f"@sha256:{manifest.sha256}"
            _keep(registry.document(reference), manifest, into, where)
            parts = _parse(_Image, into.read(manifest), where)
            if not into.has(parts.config.blob):
                _keep(registry.document(reference, "--config"), parts.config.blob, into, where)
            image = _image(wanted.name, manifest, into, url, where)
            sizes = [layer.blob.size for layer in image.layers]
            build = f" {image.os_version}" if image.os_version else ""
            layers = quantity(len(image.layers), "layer")
            say(f"{where} for {image.os}{build}: {layers}, {sum(sizes) / _MIB:.0f} MiB")
            if not all(into.has(layer.blob) for layer in image.layers):
                registry.copy_layers(reference, sizes)
            for layer in parts.layers:
                _fetch_foreign_layer(web, layer, into, say)
            yield image


def _choose_manifests(top: bytes, wanted: Wanted, where: str) -> tuple[Blob, ...]:
    """The manifests behind a tag for the systems that are wanted."""
    listed = _parse(_Index, top, where).manifests
    if listed is None:
        return (_blob(top),)
    chosen = {
        descriptor.blob: descriptor.platform
        for descriptor in listed
        if _fits(descriptor.platform, wanted)
    }
    systems = {platform.os for platform in chosen.values() if platform}
    lacking = [system for system in wanted.systems if system not in systems]
    if lacking:
        raise PreflightError(
            f"pulling {where}",
            f"the registry has none for {' and '.join(lacking)} on {_ARCHITECTURE}",
            "leave those out with --os, or make the bundle from a directory",
        )
    return tuple(chosen)


def _fits(platform: Platform | None, wanted: Wanted) -> bool:
    if platform is None or not platform.of_a_lab() or platform.os not in wanted.systems:
        return False
    return platform.os != "windows" or rules.windows_build(platform.os_version or "") is not None


def _blob(content: bytes) -> Blob:
    return Blob(sha256(content).hexdigest(), len(content))


def _keep(content: bytes, blob: Blob, into: Scratch, where: str) -> None:
    if (copy := _blob(content)) != blob:
        raise _make_difference_error(where, blob, copy)
    into.keep_bytes(content)


def _make_difference_error(where: str, expected: Blob, actual: Blob) -> PreflightError:
    wanted = f"expected sha256:{expected.sha256} with {expected.size:,} bytes"
    return _make_error(
        where, f"wrong content: {wanted}, got sha256:{actual.sha256} with {actual.size:,}"
    )


def _fetch_foreign_layer(web: Web, layer: Descriptor, into: Scratch, say: Say) -> None:
    """Fetch a layer that skopeo leaves out because registries may not store it."""
    action = f"downloading layer {layer.digest}"
    for url in layer.urls or ():
        if url.startswith("https://") and not into.has(layer.blob):
            with guarded(action):
                fetch(web, url, into.path(layer.blob), layer.digest, say, layer.size)
    if not into.has(layer.blob):
        happened = f"its size is not the {layer.size:,} bytes that the image states"
        raise PreflightError(action, happened, web.trusting)


def _image(name: str, manifest: Blob, into: Scratch, source: str, where: str) -> ContainerImage:
    """The image of a manifest that is in the bundle already, with its configuration."""
    parts = _parse(_Image, into.read(manifest), where)
    platform = _parse(Platform, into.read(parts.config.blob), where)
    if not platform.of_a_lab():
        its = f"'{cut(name)}' is for {cut(platform.os)}/{cut(platform.architecture)}"
        ours = " and ".join(f"{system}/{_ARCHITECTURE}" for system in SYSTEMS)
        raise _make_error(where, f"{its}, but a lab's machines are {ours}")
    return ContainerImage(
        name,
        "windows" if platform.os == "windows" else "linux",
        platform.os_version or None,
        manifest,
        parts.config.blob,
        tuple(Layer(layer.media_type, layer.blob) for layer in parts.layers),
        source,
    )


def read_archive(path: Path, source: str, into: Scratch) -> Iterator[ContainerImage]:
    """Copy the images of an archive into a bundle.

    ``path``: an uncompressed docker-archive or OCI archive, or both in one. ``source``: where it
    comes from, as text.

    Raises PreflightError when it is neither, when an image in it has no full name or is for other
    machines, or when content does not match its digest.
    """
    where = f"image archive '{path}'"
    with guarded(f"reading {where}"), _ShortReads(path.open("rb", buffering=0)) as file:
        try:
            archive = _Archive(file, where)
            if _OCI_FILE in archive.members:
                yield from _oci_images(archive, source, into)
                return
            if _DOCKER_FILE in archive.members:
                yield from _docker_images(archive, source, into)
                return
        except (tarfile.TarError, OverflowError) as error:
            raise _make_error(where, f"the tar file is damaged or cut short ({error})") from error
    raise _make_error(where, f"it has neither '{_OCI_FILE}' nor '{_DOCKER_FILE}': not an image")


class _ShortReads(BufferedReader):
    """A file that refuses reads larger than any document of an image.

    tarfile reads an extended header in one piece, whatever size the file claims for it.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        """Read ``size`` bytes. Raises TarError if no document is that large."""
        if size is not None and size > LARGEST + 1:
            raise tarfile.TarError(f"it has a header of {size:,} bytes")
        return super().read(size)


class _Archive:
    """Members of a tar file by name; nothing is unpacked to the paths that it names."""

    def __init__(self, file: IO[bytes], where: str) -> None:
        """Read the headers of an open archive."""
        self.where = where
        if file.read(2) in _COMPRESSED.values():
            raise _make_error(where, "it is compressed: unpack it with gunzip or unzstd")
        file.seek(0)
        try:
            self._tar = tarfile.TarFile(fileobj=file)
            length, members = os.fstat(file.fileno()).st_size, {}
            for member in self._tar:
                if not 0 <= member.size <= length - member.offset_data:  # it is cut short
                    held = f"its member '{cut(member.name)}' has {member.size:,} bytes"
                    raise tarfile.TarError(held)
                members[normpath(member.name)] = member
            self.members = members
        except ValueError as error:  # from tarfile, about headers with bad numbers
            raise tarfile.TarError(str(error)) from error

    def document(self, name: str) -> bytes:
        """Read a small member completely."""
        content = self._open(name).read(LARGEST + 1)
        if len(content) > LARGEST:
            raise _make_error(self.where, f"'{cut(name)}' is larger than any document of an image")
        return content

    def keep(self, descriptor: Descriptor, into: Scratch) -> Blob:
        """Copy a blob into the bundle."""
        blob = descriptor.blob
        if not into.has(blob):
            content = self._open(f"blobs/sha256/{blob.sha256}")
            copy = into.keep(content, f"copying {descriptor.digest} of {self.where}", blob.size)
            if copy != blob:
                raise _make_difference_error(self.where, blob, copy)
        return blob

    def keep_layer(self, name: str, unpacked: str, into: Scratch) -> Layer:
        """Copy a layer of a docker-archive and check the digest of its uncompressed content."""
        begins = self._open(name).read(4)
        compression = next((how for how, magic in _COMPRESSED.items() if begins[:2] == magic), "")
        blob = into.keep(self._open(name), f"copying '{cut(name)}' of {self.where}")
        if not compression and f"sha256:{blob.sha256}" != unpacked:
            which = f"expected {unpacked}, got sha256:{blob.sha256}"
            raise _make_error(self.where, f"layer '{cut(name)}' has the wrong content: {which}")
        return Layer(f"{_LAYER}{compression}", blob)

    def _open(self, name: str) -> IO[bytes]:
        """The content of a member, or of the member that it links to."""
        try:
            content = self._tar.extractfile(self.members[name])
        except (KeyError, RecursionError):
            content = None
        if content is None:
            raise _make_error(self.where, f"it holds no file '{cut(name)}'")
        return content


def _oci_images(archive: _Archive, source: str, into: Scratch) -> Iterator[ContainerImage]:
    some = False
    for descriptor in _parse(_Index, archive.document(_OCI_FILE), archive.where).manifests or ():
        for leaf in _leaves(archive, descriptor):
            some = True
            name = _name(descriptor.annotations or {}, archive.where)
            manifest = archive.keep(_small(leaf, archive.where), into)
            parts = _parse(_Image, into.read(manifest), archive.where)
            archive.keep(_small(parts.config, archive.where), into)
            image = _image(name, manifest, into, source, archive.where)
            for layer in parts.layers:
                archive.keep(layer, into)
            yield image
    if not some:
        raise _make_error(archive.where, f"it holds no image for {_ARCHITECTURE} machines")


def _small(descriptor: Descriptor, where: str) -> Descriptor:
    if descriptor.size > LARGEST:
        raise _make_error(
            where, f"{descriptor.digest} has {descriptor.size:,} bytes: too large for a document"
        )
    return descriptor


def _leaves(archive: _Archive, top: Descriptor) -> Iterator[Descriptor]:
    """The manifests below a descriptor that are in the archive and for a lab's machines.

    A manifest that several indexes name is read once.
    """
    queue, digests = [top], {top.digest}
    for descriptor in queue:
        member = f"blobs/sha256/{descriptor.blob.sha256}"
        if descriptor.platform is not None and not descriptor.platform.of_a_lab():
            continue
        if descriptor.media_type not in _INDEXES:
            if descriptor.platform is None or member in archive.members:
                yield descriptor
            continue
        content = archive.document(member)
        if sha256(content).hexdigest() != descriptor.blob.sha256:
            raise _make_error(archive.where, f"index {descriptor.digest} points to another index")
        for below in _parse(_Index, content, archive.where).manifests or ():
            if below.digest not in digests:
                digests.add(below.digest)
                queue.append(below)


def _name(notes: Mapping[str, str], where: str) -> str:
    """The full name of an image, from the annotations in an index."""
    names = [notes.get(key, "") for key in (_CONTAINERD_NAME, _REFERENCE)]
    for name in names:
        if is_full_name(name):
            return name
    tag = next((f"'{cut(name)}'" for name in names if name), "nothing")
    why = f"its annotation '{_REFERENCE}' says {tag}; save it as REGISTRY/PATH:TAG"
    raise _make_error(where, f"an image in it has no full name: {why}")


def _docker_images(archive: _Archive, source: str, into: Scratch) -> Iterator[ContainerImage]:
    """The images of a docker-archive, given OCI manifests; layers stay as they are."""
    listed = _parse(_DockerImages, archive.document(_DOCKER_FILE), archive.where).root
    if not listed:
        raise _make_error(archive.where, f"'{_DOCKER_FILE}' lists no image")
    for entry in listed:
        config = archive.document(normpath(entry.config))
        unpacked = _parse(_Configuration, config, archive.where).unpacked
        if len(unpacked) != len(entry.layers):
            count = f"{len(entry.layers)} layers, but its image has {len(unpacked)}"
            raise _make_error(archive.where, f"it holds {count}")
        pairs = zip(entry.layers, unpacked, strict=True)
        layers = tuple(archive.keep_layer(normpath(name), diff, into) for name, diff in pairs)
        kept = into.keep_bytes(config)
        manifest = into.keep_bytes(_manifest(kept, layers))
        if not entry.tags:
            why = "an image in it has no name: save it by its name, not by its id"
            raise _make_error(archive.where, why)
        for tag in entry.tags:
            name = full_name(tag)
            if name is None:
                raise _make_error(archive.where, f"'{cut(tag)}' is not an image name")
            yield _image(name, manifest, into, source, archive.where)


def full_name(name: str) -> str | None:
    """The full name for a familiar one: ``docker.io/library/busybox:1`` for ``busybox:1``.

    None if the text is not an image name.
    """
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"{_HUB}/library/{name}"
    elif not ("." in first or ":" in first or first == "localhost"):
        name = f"{_HUB}/{name}"
    return name if is_full_name(name) else None


def _manifest(config: Blob, layers: tuple[Layer, ...]) -> bytes:
    """A canonical OCI manifest: the same archive gives the same bundle."""

    def described(media_type: str, blob: Blob) -> dict[str, object]:
        return {"mediaType": media_type, "digest": f"sha256:{blob.sha256}", "size": blob.size}

    document = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": described(_CONFIG, config),
        "layers": [described(layer.media_type, layer.blob) for layer in layers],
    }
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
