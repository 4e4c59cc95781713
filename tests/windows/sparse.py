"""Large sparse files without cost: holes are skipped, never read or written."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import BinaryIO

BLOCK = 1 << 20
"""Bytes copied at a time."""
NOTHING = bytes(BLOCK)
"""The block for a hole, recognized by object identity without reading it."""


class Holes(io.RawIOBase):
    """A file of some length with contents at offsets, and zeros between them."""

    def __init__(self, length: int, contents: Mapping[int, bytes]) -> None:
        super().__init__()
        self._length = length
        self._contents = contents
        self._at = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:  # type: ignore[override]
        left = max(self._length - self._at, 0)
        count = left if size < 0 else min(size, left)
        start, self._at = self._at, self._at + count
        found = NOTHING if count == BLOCK else bytes(count)
        for offset, content in self._contents.items():
            first, last = max(start, offset), min(start + count, offset + len(content))
            if first < last:
                piece = content[first - offset : last - offset]
                found = found[: first - start] + piece + found[last - start :]
        return found


class Sink(io.RawIOBase):
    """Writes to a file, and seeks over whole blocks of holes."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def write(self, content: bytes) -> int:  # type: ignore[override]
        if content is NOTHING:
            self._file.seek(BLOCK, io.SEEK_CUR)
            return BLOCK
        return self._file.write(content)
