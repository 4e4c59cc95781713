"""The bundle medium: a read-only ISO with what the guests of one operating system need.

.. code-block:: text

    bin/kubelet                                programs, mode 0555
    cni/bridge                                 CNI plugins
    images/registry.k8s.io_pause_3.10.2.tar    OCI archives for ``ctr -n k8s.io images import``
    manifest.json                              the bundle's
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

from lab._errors import BrokenError, PreflightError
from lab.cluster.bundle import document, names, oci, whole
from lab.cluster.bundle.document import SHORT
from lab.cluster.bundle.manifest import Blob, ContainerImage, Manifest
from lab.cluster.bundle.scratch import guarded, settle
from lab.cluster.bundle.sewn import Piece, Sewn, tar
from lab.cluster.bundle.store import Store
from lab.imaging import medium as iso
from lab.imaging.job import MORE_ROOM
from lab.scenario.scenario import Os
from lab.state.lock import lab_lock

LABEL = "HYBRIDBUNDLE"
_LAYOUT = 1
"""Goes up with every change of what is on the medium, or how."""
_WAIT = 1800.0
"""Seconds to wait for another one that makes the same medium."""
_COPY_BYTES = 1 << 20
_HEADERS = 1 << 20
"""Bytes of an ISO beside its files, at most."""


def program_path(name: str) -> str:
    """Where a program is on the medium: ``bin/kubelet``, ``cni/bridge``."""
    return name if name.startswith("cni/") else f"bin/{name}"


def image_path(name: str) -> str:
    """Where an image's archive is on the medium, by its full name."""
    return f"images/{names.file(name)}"


def identity(manifest: Manifest, system: Os) -> str:
    """Hex SHA-256 of all that decides what is on the medium."""
    parts = (LABEL, str(_LAYOUT), system, document.digest(manifest))
    return sha256("\n".join(parts).encode()).hexdigest()


def medium(
    store: Store, manifest: Manifest, system: Os, say: Callable[[str], None] = lambda _: None
) -> Path:
    """The medium for guests of an operating system, made if it is not there.

    It is beside the bundle, named by what decides its content, and goes with the bundle.

    Raises
    ------
    PreflightError
        When there is no room for it, pycdlib is not installed, or the bundle is damaged.

    """
    path = _path(store, manifest, system)
    if path.is_file():
        return path
    lock = store.lock(f"medium-{document.digest(manifest)[:SHORT]}-{system}")
    with lab_lock(lock, "making a bundle medium", wait=_WAIT, say=say):
        if not path.is_file():
            check(store, manifest, system)
            say(f"writing the bundle medium for {system}")
            with guarded(f"writing the bundle medium '{path}'"):
                path.parent.mkdir(exist_ok=True)
                _write(store, manifest, system, path)
    return path


def unpack(store: Store, manifest: Manifest, system: Os, into: Path) -> None:
    """Write what would be on the medium into a new directory.

    Raises
    ------
    OSError
        When it cannot be written.

    """
    for name, pieces in _files(store, manifest, system):
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with Sewn(pieces) as source, path.open("xb") as out:
            shutil.copyfileobj(source, out, _COPY_BYTES)
        path.chmod(0o555 if name.startswith(("bin/", "cni/")) else 0o444)


def check(store: Store, manifest: Manifest, system: Os) -> None:
    """See that a medium is there, or that what it would be made from is whole.

    Nobody looks at a program again once it is on a medium, and media stay on hypervisors.

    Raises
    ------
    PreflightError
        Naming every blob that is gone or is another one.

    """
    if _path(store, manifest, system).is_file():
        return
    try:
        store.verify(manifest, lambda _: None, (system,))
    except BrokenError as error:
        raise PreflightError(error.doing, error.happened, error.cure) from error


def _path(store: Store, manifest: Manifest, system: Os) -> Path:
    name = f"{system}-{identity(manifest, system)[:SHORT]}.iso"
    return store.directory(manifest) / whole.MEDIA / name


def _write(store: Store, manifest: Manifest, system: Os, path: Path) -> None:
    pieces = dict(_files(store, manifest, system))
    draft = path.with_name(f".{path.name}.partial")
    try:
        with ExitStack() as opened:
            files = {name: opened.enter_context(Sewn(parts)) for name, parts in pieces.items()}
            _room(path.parent, sum(file.length for file in files.values()))
            programs = [name for name in files if name.startswith(("bin/", "cni/"))]
            with draft.open("w+b") as out:
                contents = {name: (file, file.length) for name, file in files.items()}
                iso.write(LABEL, contents, out, programs)
        settle(draft)
        whole.seal(draft)
        whole.digest_file(draft).replace(whole.digest_file(path))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
        whole.digest_file(draft).unlink(missing_ok=True)


def _files(store: Store, manifest: Manifest, system: Os) -> Iterator[tuple[str, list[Piece]]]:
    """Path on the medium, and what stands there."""

    def piece(blob: Blob) -> Piece:
        return store.blob(manifest, blob), blob

    yield document.FILE, [document.encoded(manifest)]
    for program in manifest.programs:
        if program.os == system:
            yield program_path(program.name), [piece(program.blob)]
    images: dict[str, list[ContainerImage]] = {}
    for image in manifest.images:
        if image.os == system:
            images.setdefault(image.name, []).append(image)
    for name, of_it in images.items():
        yield image_path(name), tar(_archive(name, of_it, piece))


def _archive(
    name: str, images: list[ContainerImage], piece: Callable[[Blob], Piece]
) -> list[tuple[str, Piece]]:
    """The members of an OCI archive of one image, for one Windows build or several."""
    kinds = [_media_type(piece(one.manifest)) for one in images]
    parts: dict[str, Piece] = {}
    for one in images:
        for blob in (one.manifest, one.config, *(layer.blob for layer in one.layers)):
            parts[f"blobs/sha256/{blob.sha256}"] = piece(blob)
    media_type, top = kinds[0], images[0].manifest
    if len(images) > 1:
        below = oci.index(images, kinds, {})
        media_type, top = oci.INDEX, Blob(sha256(below).hexdigest(), len(below))
        parts[f"blobs/sha256/{top.sha256}"] = below
    notes = {oci.CONTAINERD_NAME: name, oci.REFERENCE: name.rpartition(":")[2]}
    return [
        ("oci-layout", oci.written({"imageLayoutVersion": "1.0.0"})),
        ("index.json", oci.index_of_one(media_type, top, notes)),
        *sorted(parts.items()),
    ]


def _media_type(piece: Piece) -> str:
    assert not isinstance(piece, bytes), "a manifest is a blob"
    content = piece[0].read_bytes()
    return oci.media_type(oci.document(content, f"manifest '{piece[0]}'"))


def _room(directory: Path, files: int) -> None:
    figures = os.statvfs(directory)
    free = figures.f_bavail * figures.f_frsize
    if free < files + _HEADERS:
        raise PreflightError(
            f"writing a bundle medium to '{directory}'",
            f"it takes {files >> 20} MiB, and {free >> 20} MiB are free",
            MORE_ROOM,
        )
