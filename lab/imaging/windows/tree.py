"""The files of a medium by the names that Windows gives them, whatever volume carries them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, BinaryIO

from lab._errors import PreflightError
from lab.imaging.windows.media import Extent

_SECTOR = 2048
_INLINE = 3
"""Of the low three bits of a UDF entry's flags: the content is in it (ECMA-167, 4/14.6.8)."""
_CURE = "fetch the medium again, and compare its SHA-256 with the one Microsoft gives"


class Window(io.RawIOBase):
    """A part of a file, as a file of its own; nothing is copied."""

    def __init__(self, file: BinaryIO, extent: Extent) -> None:
        super().__init__()
        self._file = file
        self._extent = extent
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As of any file."""
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence, self._extent.length) + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        """As of any file; all that is asked for, as far as it is there."""
        left = max(self._extent.length - self._at, 0)
        self._file.seek(self._extent.offset + self._at)
        found = self._file.read(left if size < 0 else min(size, left))
        self._at += len(found)
        return found


class Tree:
    """Files and folders of an opened medium; upper and lower case are the same."""

    def __init__(self, iso: Any, file: BinaryIO, doing: str) -> None:
        self._iso = iso
        self._file = file
        self._doing = doing
        self._folders: dict[str, dict[str, Any]] = {}
        if iso.has_udf():
            self._volume = "udf_path"
        elif iso.has_joliet():
            self._volume = "joliet_path"
        else:
            self._volume = "rr_path" if iso.has_rock_ridge() else "iso_path"

    def names(self, folder: str = "/") -> tuple[str, ...]:
        """What is in a folder, as it is written there; nothing where there is none."""
        return tuple(map(self._name, self._children(folder).values()))

    def find(self, path: str) -> str | None:
        """The path as the medium writes it; None if there is no such file or folder."""
        folder, _, name = path.rpartition("/")
        record = self._children(folder or "/").get(name.lower())
        if record is None:
            return None
        inside = self.find(folder) if folder else ""
        return f"{inside}/{self._name(record)}"

    def extent(self, path: str) -> Extent:
        """Where a file lies in the medium; the path is one that `find` gave.

        Raises
        ------
        PreflightError
            When it ends beyond the medium, or lies in pieces, as no file of Microsoft's does.

        """
        folder, _, name = path.rpartition("/")
        pieces = self._pieces(self._children(folder or "/")[name.lower()])
        at = pieces[0].offset if pieces else 0
        whole = Extent(at, sum(piece.length for piece in pieces))
        for piece in pieces:
            if piece.offset != at:
                raise PreflightError(self._doing, f"'{path}' lies in several pieces of it", _CURE)
            at += piece.length
        size = self._file.seek(0, io.SEEK_END)
        if at > size:
            what = f"it is cut off: its '{path}' ends at byte {at:,}, and the file has {size:,}"
            raise PreflightError(self._doing, what, _CURE)
        return whole

    def opened(self, path: str) -> BinaryIO:
        """A file's content, seekable; the path is one that `find` gave.

        Raises
        ------
        PreflightError
            As `extent`.

        """
        return Window(self._file, self.extent(path))  # type: ignore[return-value]

    def _pieces(self, record: Any) -> list[Extent]:
        """Where its pieces lie; in ISO 9660 each of less than 4 GiB, with a record of its own."""
        if self._volume != "udf_path":
            pieces = []
            while record is not None:
                pieces.append(Extent(record.extent_location() * _SECTOR, record.data_length))
                record = record.data_continuation
            return pieces
        base = self._iso.udf_main_descs.partitions[0].part_start_location
        if record.icb_tag.flags & 7 == _INLINE:
            (one,) = record.alloc_descs
            return [Extent(one.log_block_num * _SECTOR + one.offset, one.extent_length)]
        return [
            Extent((base + one.log_block_num) * _SECTOR, one.extent_length)
            for one in record.alloc_descs
            if one.extent_length
        ]

    def _children(self, folder: str) -> dict[str, Any]:
        """The library's records by name in lower case."""
        key = folder.lower()
        if key not in self._folders:
            written = "/" if folder == "/" else self.find(folder)
            records = self._listed(written) if written else ()
            self._folders[key] = {self._name(record).lower(): record for record in records}
        return self._folders[key]

    def _listed(self, folder: str) -> Iterator[Any]:
        from pycdlib.pycdlibexception import PyCdlibInvalidInput  # noqa: PLC0415  slow, an extra

        try:
            for record in self._iso.list_children(**{self._volume: folder}):
                if record is not None and not (record.is_dot() or record.is_dotdot()):
                    yield record
        except PyCdlibInvalidInput:  # it is a file
            return

    def _name(self, record: Any) -> str:
        if self._volume == "rr_path":
            return str(record.rock_ridge.name().decode(errors="replace"))
        raw: bytes = record.file_identifier()
        if self._volume == "iso_path":
            return raw.decode("ascii", errors="replace").partition(";")[0].rstrip(".")
        if self._volume == "joliet_path":
            return raw.decode("utf-16-be", errors="replace").partition(";")[0]
        return str(self._iso.full_path_from_dirrecord(record)).rpartition("/")[2]
