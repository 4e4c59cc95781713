"""Documents of container images: read with suspicion, and written with one spelling. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from lab._errors import PreflightError
from lab.cluster.bundle.manifest import Blob, ContainerImage, Layer
from lab.scenario.scenario import Os

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = frozenset({INDEX, DOCKER_INDEX})
MANIFESTS = frozenset({MANIFEST, DOCKER_MANIFEST})
CONTAINERD_NAME = "io.containerd.image.name"
REFERENCE = "org.opencontainers.image.ref.name"
ARCHITECTURE = "amd64"
"""Of every machine of a lab."""
_SYSTEMS: tuple[Os, ...] = ("linux", "windows")
LARGEST = 1 << 22
"""Bytes of the largest manifest, index or configuration that is read."""
_SHA256 = "sha256:"
_DIGITS = 64
_SIZES = 1 << 50
"""Bytes that nothing has."""
_WORD = re.compile(r"[\w.+/-]{0,127}", re.ASCII)
"""Media types, and builds of Windows."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Platform:
    """What an image runs on."""

    os: str
    architecture: str
    os_version: str | None

    def of_a_lab(self) -> bool:
        """Whether machines of labs can run it."""
        return self.os in _SYSTEMS and self.architecture == ARCHITECTURE


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What one document says of another."""

    media_type: str
    blob: Blob
    platform: Platform | None
    annotations: Mapping[str, str]
    urls: tuple[str, ...] = ()
    """Where a layer is had that registries do not keep (Windows' base layers, once)."""


def parsed(content: bytes | str) -> Any:
    """JSON of unknown origin; ValueError when it is none."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def document(content: bytes, where: str) -> Mapping[str, Any]:
    """A JSON object.

    Raises
    ------
    PreflightError
        When it is something else.

    """
    try:
        found = parsed(content)
    except ValueError as error:
        raise broken(where, f"it is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise broken(where, "it is no JSON object")
    return found


def field(found: Any, name: str, kind: type[_T], where: str) -> _T:
    """A member of a JSON object that has to be there.

    Raises
    ------
    PreflightError
        When it is not, or is something else.

    """
    value = found.get(name) if isinstance(found, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise broken(where, f"'{name}' is {json.dumps(value)[:40]}, which is no {kind.__name__}")
    return value


def descriptors(found: Mapping[str, Any], name: str, where: str) -> tuple[Descriptor, ...]:
    """The descriptors in a list of a document."""
    return tuple(descriptor(one, where) for one in field(found, name, list, where))


def descriptor(found: Any, where: str) -> Descriptor:
    """One descriptor."""
    size = field(found, "size", int, where)
    if not 0 <= size < _SIZES:
        raise broken(where, f"'size' is {size}")
    platform = found.get("platform")
    notes = found.get("annotations")
    urls = found.get("urls")
    return Descriptor(
        _word(found, "mediaType", where) or "",
        Blob(hexadecimal(field(found, "digest", str, where), where), size),
        _platform(platform, where) if isinstance(platform, dict) else None,
        {str(key): str(value) for key, value in notes.items()} if isinstance(notes, dict) else {},
        tuple(str(url) for url in urls) if isinstance(urls, list) else (),
    )


def hexadecimal(digest: str, where: str) -> str:
    """The digits of a digest ``sha256:...``.

    Raises
    ------
    PreflightError
        When it is another kind of digest, or none.

    """
    digits = digest.removeprefix(_SHA256)
    if digits == digest or len(digits) != _DIGITS or not set(digits) <= set("0123456789abcdef"):
        raise broken(where, f"'{digest}' is no SHA-256 digest")
    return digits


def platform_of(config: bytes, where: str) -> Platform:
    """What an image's configuration says that it runs on."""
    return _platform(document(config, where), where)


def small(blob: Blob, where: str) -> Blob:
    """The blob of a document, if it is not larger than any.

    Raises
    ------
    PreflightError
        When it is.

    """
    if blob.size > LARGEST:
        raise broken(where, f"sha256:{blob.sha256} has {blob.size:,} bytes: it is no document")
    return blob


def image(
    name: str, manifest: Blob, contents: tuple[bytes, bytes], source: str, where: str
) -> ContainerImage:
    """The image of a manifest.

    Parameters
    ----------
    contents
        Of the manifest and of the configuration.

    Raises
    ------
    PreflightError
        When it is not for the machines of a lab.

    """
    content = document(contents[0], where)
    platform = platform_of(contents[1], where)
    if not platform.of_a_lab():
        raise broken(
            where,
            f"'{name}' is for {platform.os}/{platform.architecture}, and machines of labs are "
            f"linux/{ARCHITECTURE} and windows/{ARCHITECTURE}",
        )
    return ContainerImage(
        name,
        "windows" if platform.os == "windows" else "linux",
        platform.os_version,
        manifest,
        descriptor(content.get("config"), where).blob,
        tuple(Layer(one.media_type, one.blob) for one in descriptors(content, "layers", where)),
        source,
    )


def manifest(config: Blob, layers: Iterable[Layer]) -> bytes:
    """The OCI manifest of a configuration and its layers."""
    return written(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _described(CONFIG, config),
            "layers": [_described(one.media_type, one.blob) for one in layers],
        }
    )


def index(
    images: Sequence[ContainerImage], media_types: Sequence[str], annotations: Mapping[str, str]
) -> bytes:
    """An index that leads to the manifests of images."""
    found = []
    for one, media_type in zip(images, media_types, strict=True):
        platform = {"architecture": ARCHITECTURE, "os": one.os}
        if one.os_version:
            platform["os.version"] = one.os_version
        found.append({**_described(media_type, one.manifest), "platform": platform})
        if annotations:
            found[-1]["annotations"] = dict(annotations)
    return written({"schemaVersion": 2, "mediaType": INDEX, "manifests": found})


def index_of_one(media_type: str, blob: Blob, annotations: Mapping[str, str]) -> bytes:
    """An index that leads to one document."""
    found = {**_described(media_type, blob), "annotations": dict(annotations)}
    return written({"schemaVersion": 2, "mediaType": INDEX, "manifests": [found]})


def media_type(content: Mapping[str, Any]) -> str:
    """What kind of document it is, by its own word or by what is in it."""
    said = content.get("mediaType")
    if isinstance(said, str) and said:
        return said
    return INDEX if "manifests" in content else MANIFEST


def written(found: Mapping[str, Any]) -> bytes:
    """JSON with one spelling."""
    return json.dumps(found, separators=(",", ":"), sort_keys=True).encode()


def broken(where: str, problem: str) -> PreflightError:
    """The error for a document or an archive that is not what it must be."""
    return PreflightError(
        f"reading {where}", problem, "save or fetch it again, as a docker-archive or an OCI archive"
    )


def _platform(found: Any, where: str) -> Platform:
    return Platform(
        field(found, "os", str, where),
        field(found, "architecture", str, where),
        _word(found, "os.version", where),
    )


def _word(found: Mapping[str, Any], name: str, where: str) -> str | None:
    """A member that may be there, and becomes part of the bundle's own manifest."""
    value = found.get(name) or None
    if value is not None and not (isinstance(value, str) and _WORD.fullmatch(value)):
        raise broken(where, f"'{name}' is {json.dumps(value)[:40]}")
    return value


def _described(media_type: str, blob: Blob) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"{_SHA256}{blob.sha256}", "size": blob.size}
