"""The bundle medium: a read-only ISO with what guests of one operating system need.

.. code-block:: text

    bin/kubelet                                programs, mode 0555
    cni/bridge                                 CNI plugins
    images/registry.k8s.io_pause_3.10.2.tar    OCI archives for ``ctr -n k8s.io images import``
    manifest.json                              the bundle's
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from hashlib import sha256
from io import BytesIO
from pathlib import Path

from lab._errors import BrokenError, PreflightError
from lab.machines.bundle.manifest import FILE, SHORT, Blob, ContainerImage, Manifest
from lab.machines.bundle.store import MEDIA, BundleStore, digest_file, seal
from lab.machines.images import medium as iso
from lab.machines.images.golden import cache_lock, guarded, remove
from lab.scenario.terms import Os
from lab.shells.programs import MORE_ROOM
from lab.state.directory import fsync

LABEL = "HYBRIDBUNDLE"
_LAYOUT = 1
"""Increase it with every change to the content or format of the medium."""
_WAIT = 1800.0
_LONGEST = 60
"""Characters of an archive's name; with its extension it must fit Joliet's 64."""
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_HEADERS = 1 << 20
"""Upper limit of the bytes that an ISO takes besides its files."""


def program_path(name: str) -> str:
    """Path of a program on the medium: ``bin/kubelet``, ``cni/bridge``."""
    return name if name.startswith("cni/") else f"bin/{name}"


def image_path(name: str) -> str:
    """Path of an image's archive: ``images/registry.k8s.io_pause_3.10.2.tar``.

    A hash replaces the middle of a name that is too long for Joliet.
    """
    plain = name.replace("/", "_").replace(":", "_")
    if len(plain) > _LONGEST:
        plain = f"{plain[: _LONGEST - 9]}_{sha256(name.encode()).hexdigest()[:8]}"
    return f"images/{plain}.tar"


def identity(manifest: Manifest, system: Os) -> str:
    """Hex SHA-256 of everything that decides the medium's content."""
    parts = (LABEL, str(_LAYOUT), system, manifest.digest)
    return sha256("\n".join(parts).encode()).hexdigest()


def medium(
    store: BundleStore, manifest: Manifest, system: Os, say: Callable[[str], None] = lambda _: None
) -> Path:
    """The medium for guests of an operating system; created if it does not exist.

    It lies beside the bundle, is named after :func:`identity`, and is removed with the bundle.

    Raises PreflightError when the disk has no room for it, pycdlib is not installed, or the bundle
    is damaged.
    """
    path = _path(store, manifest, system)
    if path.is_file():
        return path
    store.require_own(manifest)
    lock = store.lock(f"medium-{manifest.short}-{system}")
    with cache_lock(lock, "making a bundle medium", wait=_WAIT, say=say):
        if not path.is_file():
            check(store, manifest, system)
            say(f"writing the bundle medium for {system}")
            with guarded(f"writing the bundle medium '{path}'"):
                path.parent.mkdir(exist_ok=True)
                _write(store, manifest, system, path)
    return path


def unpack(store: BundleStore, manifest: Manifest, system: Os, into: Path) -> None:
    """Write the medium's content into a new directory.

    Raises OSError when it cannot be written.
    """
    into.mkdir(parents=True)
    for name, file in _files(store, manifest, system, into).items():
        path = into / name
        if path != file:
            path.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, path)
        path.chmod(0o555 if _is_program(name) else 0o444)


def check(store: BundleStore, manifest: Manifest, system: Os) -> None:
    """Check that a medium exists, or that the blobs it would be made from are intact.

    Programs are not checked again once they are on a medium, and media stay on hypervisors.

    Raises PreflightError naming every blob that is missing or damaged.
    """
    if _path(store, manifest, system).is_file():
        return
    try:
        store.verify(manifest, lambda _: None, (system,))
    except BrokenError as error:
        raise PreflightError(error.doing, error.happened, error.hint) from error


def _path(store: BundleStore, manifest: Manifest, system: Os) -> Path:
    name = f"{system}-{identity(manifest, system)[:SHORT]}.iso"
    return store.directory(manifest) / MEDIA / name


def _write(store: BundleStore, manifest: Manifest, system: Os, path: Path) -> None:
    draft, scratch = (path.with_name(f".{path.name}.{ending}") for ending in ("partial", "images"))
    try:
        _room(path.parent, manifest, system)
        remove(scratch)  # left by a killed command
        scratch.mkdir()
        with ExitStack() as opened:
            contents = {
                name: (opened.enter_context(file.open("rb")), file.stat().st_size)
                for name, file in _files(store, manifest, system, scratch).items()
            }
            with draft.open("w+b") as out:
                iso.write(LABEL, contents, out, [name for name in contents if _is_program(name)])
        fsync(draft)
        seal(draft)
        digest_file(draft).replace(digest_file(path))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
        digest_file(draft).unlink(missing_ok=True)
        remove(scratch)


def _is_program(name: str) -> bool:
    return name.startswith(("bin/", "cni/"))


def _files(store: BundleStore, manifest: Manifest, system: Os, scratch: Path) -> Mapping[str, Path]:
    """Path on the medium and the file for it: the bundle's own, or one written to ``scratch``."""
    files = {FILE: scratch / FILE}
    files[FILE].write_bytes(manifest.encoded())
    for program in manifest.programs:
        if program.os == system and not program.is_archive:
            path = store.blob(manifest, program.blob)
            if path.stat().st_size != program.blob.size:
                raise OSError(0, f"its size is not {program.blob.size:,} bytes", str(path))
            files[program_path(program.name)] = path
    images: dict[str, list[ContainerImage]] = {}
    for image in manifest.images:
        if image.os == system:
            images.setdefault(image.name, []).append(image)
    for name, of_it in images.items():
        file = files[image_path(name)] = scratch / image_path(name)
        file.parent.mkdir(exist_ok=True)
        _archive(name, of_it, lambda blob: store.blob(manifest, blob), file)
    return files


def _archive(
    name: str, images: list[ContainerImage], where: Callable[[Blob], Path], file: Path
) -> None:
    """Write an OCI archive of one image, for one Windows build or several."""
    members: dict[str, bytes | Path] = {
        f"blobs/sha256/{blob.sha256}": where(blob) for image in images for blob in image.blobs()
    }
    top, *others = (_describe_image(image, where(image.manifest)) for image in images)
    if others:
        below = _index(top, *others)
        digest = sha256(below).hexdigest()
        members[f"blobs/sha256/{digest}"] = below
        top = {"mediaType": _INDEX, "digest": f"sha256:{digest}", "size": len(below)}
    top.pop("platform", None)
    notes = {
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    first = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _index({**top, "annotations": notes}),
    }
    with tarfile.open(file, "w", format=tarfile.GNU_FORMAT) as tar:
        for path, content in (*first.items(), *sorted(members.items())):
            member = tarfile.TarInfo(path)
            if isinstance(content, bytes):
                member.size = len(content)
                tar.addfile(member, BytesIO(content))
                continue
            member.size = content.stat().st_size
            with content.open("rb") as blob:
                tar.addfile(member, blob)


def _describe_image(image: ContainerImage, manifest: Path) -> dict[str, object]:
    """The descriptor of an image's manifest; its media type is read from the manifest."""
    platform = {"architecture": "amd64", "os": image.os}
    if image.os_version:
        platform["os.version"] = image.os_version
    return {
        "mediaType": json.loads(manifest.read_bytes()).get("mediaType") or _MANIFEST,
        "digest": f"sha256:{image.manifest.sha256}",
        "size": image.manifest.size,
        "platform": platform,
    }


def _index(*manifests: Mapping[str, object]) -> bytes:
    return _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests})


def _json(document: Mapping[str, object]) -> bytes:
    """Canonical JSON: the same bundle gives the same media."""
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def _room(directory: Path, manifest: Manifest, system: Os) -> None:
    """Check for room for the medium and for the archives written before it."""
    programs = sum(program.blob.size for program in manifest.programs if program.os == system)
    images = sum(
        blob.size for image in manifest.images if image.os == system for blob in image.blobs()
    )
    figures = os.statvfs(directory)
    free = figures.f_bavail * figures.f_frsize
    if free < programs + 2 * images + _HEADERS:
        raise PreflightError(
            f"writing a bundle medium to '{directory}'",
            f"it takes {(programs + 2 * images) >> 20} MiB, and {free >> 20} MiB are free",
            MORE_ROOM,
        )
