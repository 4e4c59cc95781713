"""Whether the files of a bundle are what they must be: blobs by its manifest, media by their own.

Beside each finished medium is a file with its SHA-256, written by whoever wrote the medium.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Collection, Iterator
from io import BufferedReader
from pathlib import Path

from lab.cluster.bundle.manifest import Blob, Manifest
from lab.scenario.scenario import Os

MEDIA = "media"
"""Of a bundle's directory, where its media are."""
_DIGEST = ".sha256"


def opened(path: Path) -> BufferedReader:
    """A file, open for reading; OSError if it is none (a pipe would be waited for)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        is_directory = stat.S_ISDIR(mode)
        raise OSError(errno.EISDIR if is_directory else errno.EINVAL, "it is no file", str(path))
    return os.fdopen(descriptor, "rb")


def owned(manifest: Manifest, systems: Collection[Os]) -> Iterator[tuple[str, Blob]]:
    """Every blob for some operating systems (all, if empty), and what it belongs to."""
    for program in manifest.programs:
        if not systems or program.os in systems:
            yield f"program '{program.name}' ({program.os})", program.blob
    for image in manifest.images:
        if systems and image.os not in systems:
            continue
        owner = f"image '{image.name}' ({image.os})"
        yield f"{owner}, its manifest", image.manifest
        yield f"{owner}, its configuration", image.config
        for number, layer in enumerate(image.layers, 1):
            yield f"{owner}, layer {number}", layer.blob


def damage(path: Path, blob: Blob) -> Iterator[str]:
    """What is wrong with the file of a blob, a clause; nothing if it is that blob."""
    try:
        with opened(path) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as error:
        yield f"'{path}': {_words(error)}"
        return
    if size != blob.size:
        yield f"'{path}' has {size:,} bytes of {blob.size:,}"
    elif found != blob.sha256:
        yield f"'{path}' is another one: its SHA-256 is {found}"


def seal(medium: Path) -> None:
    """Write down what a finished medium is."""
    digest_file(medium).write_text(f"{_sha256(medium)}\n", encoding="ascii")


def digest_file(medium: Path) -> Path:
    """Where that is written."""
    return medium.with_name(f"{medium.name}{_DIGEST}")


def media(bundle: Path) -> tuple[Path, ...]:
    """The finished media beside the blobs of a bundle."""
    return tuple(sorted((bundle / MEDIA).glob("*.iso")))


def medium_damage(medium: Path) -> str | None:
    """What is wrong with a finished medium, a clause; None if it is as it was written."""
    try:
        with opened(digest_file(medium)) as file:
            told = file.read().decode("ascii", errors="replace").strip()
    except OSError as error:
        return f"medium '{medium}' has nothing beside it that says what it must be: {_words(error)}"
    try:
        found = _sha256(medium)
    except OSError as error:
        return f"medium '{medium}': {_words(error)}"
    if found != told:
        return f"medium '{medium}' is another one: its SHA-256 is {found}"
    return None


def _sha256(path: Path) -> str:
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
