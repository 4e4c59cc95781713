"""A bundle being made: its blobs, each under its own digest once it is whole."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO

from lab._errors import PreflightError
from lab.cluster.bundle.manifest import Blob
from lab.imaging.job import MORE_ROOM
from lab.state.failure import guarded_files

BLOBS = Path("blobs", "sha256")
_PART = ".part"
_CHUNK = 1 << 20
ELSEWHERE = "or name another 'cache' in the inventory"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Scratch:
    """The directory of a bundle that has no name yet."""

    def __init__(self, directory: Path) -> None:
        """Use a directory, which is made if it is not there."""
        self.directory = directory
        self.blobs = directory / BLOBS
        with guarded(f"making the bundle in '{directory.parent}'"):
            self.blobs.mkdir(parents=True, exist_ok=True)

    def keep(self, content: IO[bytes], doing: str) -> Blob:
        """Copy bytes into the bundle.

        Parameters
        ----------
        doing
            For messages: ``"copying 'kubelet'"``.

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
            while data := content.read(_CHUNK):
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

    def write(self, name: str, content: bytes) -> None:
        """Write a file beside the blobs."""
        with guarded("finishing the bundle"):
            (self.directory / name).write_bytes(content)

    def tidy(self, kept: Iterator[Blob]) -> None:
        """Remove what the manifest does not lead to."""
        wanted = {blob.sha256 for blob in kept}
        with guarded("finishing the bundle"):
            for path in self.blobs.iterdir():
                if path.name not in wanted:
                    path.unlink()

    def settle(self) -> None:
        """See everything on the disk before the directory gets its name."""
        with guarded("finishing the bundle"):
            for path in (*self.directory.rglob("*"), self.directory):
                settle(path)


def settle(path: Path) -> None:
    """See a file or a directory on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def guarded(doing: str) -> Iterator[None]:
    """Turn an OSError into a LabError; a full disk with the cure for caches."""
    try:
        with guarded_files(doing, ELSEWHERE):
            yield
    except PreflightError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in _FULL:
            raise PreflightError(doing, error.happened, MORE_ROOM) from cause
        raise
