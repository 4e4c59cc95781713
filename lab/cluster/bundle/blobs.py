"""Blobs: written under their own digests into a bundle that is being made, and looked at again."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import IO

from lab._errors import PreflightError
from lab.cluster.bundle.manifest import FILE, Blob, Manifest
from lab.imaging.golden import guarded, remove

BLOBS = Path("blobs", "sha256")
_PART = ".part"
_CHUNK = 1 << 20


class Scratch:
    """The directory of a bundle that has no name yet."""

    def __init__(self, directory: Path) -> None:
        """Use a directory, which is made if it is not there."""
        self.directory = directory
        self.blobs = directory / BLOBS
        with guarded(f"making the bundle in '{directory.parent}'"):
            self.blobs.mkdir(parents=True, exist_ok=True)

    def keep(self, content: IO[bytes], doing: str, most: int = 1 << 50) -> Blob:
        """Copy bytes into the bundle.

        Parameters
        ----------
        doing
            For messages: ``"copying 'kubelet'"``.
        most
            Bytes that there may be; of more, one more is read.

        Raises
        ------
        PreflightError
            When the disk is full.
        StateError
            When it cannot be written.

        """
        draft = self.blobs / f"{os.getpid()}{_PART}"
        found = hashlib.sha256()
        size = 0
        with guarded(doing), draft.open("wb") as out:
            while data := content.read(min(_CHUNK, most + 1 - size)):
                found.update(data)
                size += len(data)
                out.write(data)
        blob = Blob(found.hexdigest(), size)
        with guarded(doing):
            draft.replace(self.path(blob))
        return blob

    def keep_bytes(self, content: bytes) -> Blob:
        """Write a small document into the bundle."""
        return self.keep(BytesIO(content), "writing a document of the bundle")

    def keep_file(self, path: Path) -> Blob:
        """Copy a file into the bundle. Raises as :meth:`keep`, and when it changes meanwhile."""
        doing = f"copying '{path}'"
        with guarded(doing), path.open("rb") as content:
            before = os.fstat(content.fileno())
            blob = self.keep(content, doing)
            after = os.fstat(content.fileno())
        if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, blob.size):
            raise PreflightError(doing, "somebody writes to it", "do it again when that is done")
        return blob

    def path(self, blob: Blob) -> Path:
        """Where a blob is."""
        return self.blobs / blob.sha256

    def has(self, blob: Blob) -> bool:
        """Whether a blob is there, whole."""
        path = self.path(blob)
        return path.is_file() and path.stat().st_size == blob.size

    def read(self, blob: Blob) -> bytes:
        """A small document of the bundle."""
        with guarded("reading a document of the bundle"):
            return self.path(blob).read_bytes()

    def finish(self, manifest: Manifest) -> None:
        """Keep what the manifest leads to and nothing else, all of it on the disk."""
        wanted = {blob.sha256 for blob in manifest.blobs()}
        with guarded("finishing the bundle"):
            for path in (*self.directory.iterdir(), *self.blobs.iterdir()):
                if path.name not in wanted and path not in self.blobs.parents:
                    remove(path)
            (self.directory / FILE).write_bytes(manifest.encoded())
            for path in (*self.directory.rglob("*"), self.directory):
                settle(path)


def settle(path: Path) -> None:
    """See a file or a directory on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def opened(path: Path) -> BufferedReader:
    """A file, open for reading; OSError if it is none (a pipe would be waited for)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        is_directory = stat.S_ISDIR(mode)
        raise OSError(errno.EISDIR if is_directory else errno.EINVAL, "it is no file", str(path))
    return os.fdopen(descriptor, "rb")


def damage(path: Path, blob: Blob) -> str:
    """What is wrong with the file of a blob, a clause; empty if it is that blob."""
    try:
        with opened(path) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as error:
        return f"'{path}': {lower_case(error)}"
    if size != blob.size:
        return f"'{path}' has {size:,} bytes of {blob.size:,}"
    return "" if found == blob.sha256 else f"'{path}' is another one: its SHA-256 is {found}"


def lower_case(error: OSError) -> str:
    """What the system says of a file, as a clause."""
    return (error.strerror or str(error)).lower()
