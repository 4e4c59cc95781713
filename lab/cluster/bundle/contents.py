"""What a registry of a bundle's images has: manifests, indexes and blobs, by tag and digest."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from lab.cluster.bundle import oci
from lab.cluster.bundle.manifest import Blob, ContainerImage, Manifest
from lab.cluster.bundle.store import Store

_SHA256 = "sha256:"
_OCTETS = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Served:
    """One document or blob: content or a file, never both."""

    digest: str
    """``sha256:`` and hex."""
    media_type: str
    size: int
    content: bytes | None
    path: Path | None


class Contents:
    """What a registry has, decided once from the bundle. Files are opened when asked for."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        """Read the images' manifests."""
        self._blobs: dict[str, Served] = {}
        self._manifests: dict[str, Served] = {}
        self._tags: dict[str, Served] = {}
        by_name: dict[str, list[ContainerImage]] = {}
        for image in manifest.images:
            by_name.setdefault(image.name, []).append(image)
        for name, images in by_name.items():
            found = [self._image(store, manifest, image) for image in images]
            self._tags[name] = found[0] if len(found) == 1 else self._index(images, found)

    def manifest(self, path: str, reference: str, registry: str | None) -> Served | None:
        """A manifest by tag or digest; None where there is none, or it could be either of two."""
        if reference.startswith(_SHA256):
            return self._manifests.get(reference)
        named = [full for full in self._tags if self._answers(full, path, registry)]
        found = {
            id(one): one
            for full in named
            if full.endswith(f":{reference}")
            for one in (self._tags[full],)
        }
        return next(iter(found.values())) if len(found) == 1 else None

    def tags(self, path: str, registry: str | None) -> list[str]:
        """The tags of a repository."""
        named = (full for full in self._tags if self._answers(full, path, registry))
        return sorted({full.rpartition(":")[2] for full in named})

    def blob(self, digest: str) -> Served | None:
        """A blob, or a manifest as one."""
        return self._blobs.get(digest) or self._manifests.get(digest)

    def _image(self, store: Store, manifest: Manifest, image: ContainerImage) -> Served:
        for blob in (image.config, *(layer.blob for layer in image.layers)):
            self._blobs[_SHA256 + blob.sha256] = _file(store, manifest, blob, _OCTETS)
        path = store.blob(manifest, image.manifest)
        kind = oci.media_type(oci.document(path.read_bytes(), f"manifest '{path}'"))
        served = _file(store, manifest, image.manifest, kind)
        return self._manifests.setdefault(served.digest, served)

    def _index(self, images: list[ContainerImage], served: list[Served]) -> Served:
        content = oci.index(images, [one.media_type for one in served], {})
        digest = f"{_SHA256}{sha256(content).hexdigest()}"
        found = Served(digest, oci.INDEX, len(content), content, None)
        return self._manifests.setdefault(digest, found)

    @staticmethod
    def _answers(full: str, path: str, registry: str | None) -> bool:
        repository = full.rpartition(":")[0]
        host, _, own = repository.partition("/")
        if path == repository:
            return True
        return path == own and registry in {None, host}


def _file(store: Store, manifest: Manifest, blob: Blob, media_type: str) -> Served:
    path = store.blob(manifest, blob)
    return Served(f"{_SHA256}{blob.sha256}", media_type, blob.size, None, path)
