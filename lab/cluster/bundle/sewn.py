"""A file that is sewn together from others, and is never whole anywhere."""

from __future__ import annotations

import io
import tarfile
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from lab.cluster.bundle.manifest import Blob

Piece = bytes | tuple[Path, Blob]
"""Bytes, or a file and what it is."""


class Sewn(io.RawIOBase):
    """Pieces, one after the other, to be read from anywhere."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        """Sew pieces together; no file is opened yet."""
        super().__init__()
        self._pieces = tuple(pieces)
        self._starts: list[int] = []
        end = 0
        for piece in self._pieces:
            self._starts.append(end)
            end += len(piece) if isinstance(piece, bytes) else piece[1].size
        self.length = end
        self._at = 0
        self._opened: tuple[int, BinaryIO] | None = None

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place, counted from the beginning, from here or from the end."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.length}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Where this is."""
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        """So many bytes, fewer only at the end.

        Raises
        ------
        OSError
            When a file is shorter than it must be.

        """
        left = self.length - self._at if size < 0 else min(size, self.length - self._at)
        found = []
        while left > 0:
            number = bisect_right(self._starts, self._at) - 1
            data = self._of(number, self._at - self._starts[number], left)
            found.append(data)
            self._at += len(data)
            left -= len(data)
        return b"".join(found)

    def _of(self, number: int, offset: int, size: int) -> bytes:
        piece = self._pieces[number]
        if isinstance(piece, bytes):
            return piece[offset : offset + size]
        path, blob = piece
        if self._opened is None or self._opened[0] != number:
            self._shut()
            self._opened = (number, path.open("rb", buffering=0))
        file = self._opened[1]
        file.seek(offset)
        data = file.read(min(size, blob.size - offset))
        if not data:
            raise OSError(0, f"it has fewer than {blob.size:,} bytes", str(path))
        return data

    def _shut(self) -> None:
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    def close(self) -> None:
        """Close the file that is open, if one is."""
        self._shut()
        super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def tar(members: Sequence[tuple[str, Piece]]) -> list[Piece]:
    """The pieces of a tar file of those members; the same members give the same bytes."""
    pieces: list[Piece] = []
    for name, content in members:
        member = tarfile.TarInfo(name)
        member.size = len(content) if isinstance(content, bytes) else content[1].size
        pieces += [member.tobuf(tarfile.GNU_FORMAT), content]
        pieces.append(bytes(-member.size % tarfile.BLOCKSIZE))
    pieces.append(bytes(2 * tarfile.BLOCKSIZE))
    return [piece for piece in pieces if piece != b""]
