"""Container images without a builder: OCI archives with the same bytes in every run.

An archive has an OCI layout (``index.json``) and also the ``manifest.json`` of
`docker save`, like those of `ctr images export`, so that importers of either format accept it.
Layers are plain tars: unpacking gzip is slow on an emulated guest.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

EPOCH = 0
"""Modification time of every file, seconds since 1970, so that archives are reproducible."""
CREATED = "1970-01-01T00:00:00Z"


SEARCHED = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry in a layer: a file of this host, a text, a link, or else a folder."""

    path: str
    """Absolute."""
    source: Path | None = None
    text: str | None = None
    link: str = ""
    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class Image:
    """A container image to write."""

    name: str
    """Full name with tag."""
    entries: tuple[Entry, ...]
    entrypoint: tuple[str, ...]
    command: tuple[str, ...] = ()
    user: str = ""
    folder: str = "/"
    environment: tuple[str, ...] = (SEARCHED,)
    build: str = ""
    """Of Windows, ``10.0.20348.1``, if it is for Windows: its entries are below ``/Files`` then."""

    @property
    def platform(self) -> dict[str, str]:
        """What it runs on."""
        if self.build:
            return {"architecture": "amd64", "os": "windows", "os.version": self.build}
        return {"architecture": "amd64", "os": "linux"}

    @property
    def file(self) -> str:
        """Name of its archive: the last part of the name, and the tag."""
        return self.name.rsplit("/", 1)[-1].replace(":", "-") + ".tar"


def write_image(image: Image, folder: Path) -> Path:
    """Write the archive of ``image`` into ``folder`` and return its path."""
    archive = folder / image.file
    layer = folder / (image.file + ".layer")
    try:
        with layer.open("wb") as file:
            write_layer(image.entries, file)
        _write_archive(image, layer, archive)
    finally:
        layer.unlink(missing_ok=True)
    return archive


def write_layer(entries: Iterable[Entry], file: BinaryIO) -> None:
    """Write a layer: ``entries`` and the folders above them, sorted by name."""
    named = {entry.path: entry for entry in entries}
    for path in tuple(named):
        for above in list(Path(path).parents)[:-1]:
            named.setdefault(str(above), Entry(str(above)))
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for _, entry in sorted(named.items()):
            _add(tar, entry)


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.path.lstrip("/"))
    info.mode = entry.mode
    info.mtime = EPOCH
    if entry.link:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.link, 0o777
        tar.addfile(info)
    elif entry.text is not None:
        content = entry.text.encode()
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    elif entry.source is not None:
        info.size = entry.source.stat().st_size
        with entry.source.open("rb") as content:
            tar.addfile(info, content)
    else:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)


def _write_archive(image: Image, layer: Path, archive: Path) -> None:
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    config = _json(_config(image, digest))
    config_digest = hashlib.sha256(config).hexdigest()
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _described("image.config.v1+json", config_digest, len(config)),
            "layers": [_described("image.layer.v1.tar", digest, layer.stat().st_size)],
        }
    )
    manifest_digest = hashlib.sha256(manifest).hexdigest()
    described = _described("image.manifest.v1+json", manifest_digest, len(manifest))
    docker = {
        "Config": f"blobs/sha256/{config_digest}",
        "RepoTags": [image.name],
        "Layers": [f"blobs/sha256/{digest}"],
    }
    blobs = "blobs/sha256/"
    entries = (
        Entry("/oci-layout", text='{"imageLayoutVersion":"1.0.0"}', mode=0o644),
        Entry("/index.json", text=_json(_index(image, described)).decode(), mode=0o644),
        Entry("/manifest.json", text=_json([docker]).decode(), mode=0o644),
        Entry(f"/{blobs}{config_digest}", text=config.decode(), mode=0o644),
        Entry(f"/{blobs}{manifest_digest}", text=manifest.decode(), mode=0o644),
        Entry(f"/{blobs}{digest}", source=layer, mode=0o644),
    )
    with archive.open("wb") as file:
        write_layer(entries, file)


def _index(image: Image, described: dict[str, object]) -> dict[str, object]:
    """Return the OCI index of an archive, with the image's name in containerd's annotation."""
    names = {
        "io.containerd.image.name": image.name,
        "org.opencontainers.image.ref.name": image.name.rsplit(":", 1)[1],
    }
    return {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described | {"platform": image.platform, "annotations": names}],
    }


def _config(image: Image, layer: str) -> dict[str, object]:
    """Return the image's configuration by the OCI image specification."""
    running = {
        "Entrypoint": list(image.entrypoint),
        "Cmd": list(image.command),
        "User": image.user,
        "WorkingDir": image.folder,
        "Env": list(image.environment),
    }
    return {
        **image.platform,
        "created": CREATED,
        "config": {key: value for key, value in running.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
        "history": [{"created": CREATED, "created_by": "tests/bundle"}],
    }


def _described(kind: str, digest: str, size: int) -> dict[str, object]:
    media = f"application/vnd.oci.{kind}"
    return {"mediaType": media, "digest": f"sha256:{digest}", "size": size}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
