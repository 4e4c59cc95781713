"""The files of a medium by the names that Windows gives them, whatever volume carries them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from lab._errors import PreflightError
from lab.imaging.windows.media import Extent

_SECTOR = 2048
_CURE = "fetch the medium again, and compare its SHA-256 with the one Microsoft gives"


class Tree:
    """Files and folders of an opened medium; upper and lower case are the same."""

    def __init__(self, iso: Any, doing: str) -> None:
        self._iso = iso
        self._doing = doing
        self._folders: dict[str, dict[str, tuple[str, Any]]] = {}
        if iso.has_udf():
            self._volume = "udf_path"
        elif iso.has_joliet():
            self._volume = "joliet_path"
        else:
            self._volume = "rr_path" if iso.has_rock_ridge() else "iso_path"

    def names(self, folder: str = "/") -> tuple[str, ...]:
        """What is in a folder, as it is written there; nothing where there is none."""
        return tuple(name for name, _ in self._children(folder).values())

    def find(self, path: str) -> str | None:
        """The path as the medium writes it; None if there is no such file or folder."""
        folder, _, name = path.rpartition("/")
        found = self._children(folder or "/").get(name.lower())
        if found is None:
            return None
        inside = self.find(folder) if folder else ""
        return f"{inside}/{found[0]}"

    @contextmanager
    def opened(self, path: str) -> Iterator[BinaryIO]:
        """A file's content, seekable; nothing is copied. The path is one that `find` gave."""
        written = path
        if self._volume == "iso_path":
            written = f"{path};1"
        with self._iso.open_file_from_iso(**{self._volume: written}) as file:
            yield file

    def extent(self, path: str) -> Extent:
        """Where a file lies in the medium; the path is one that `find` gave.

        Raises
        ------
        PreflightError
            When it lies in pieces, as no file of Microsoft's media does.

        """
        folder, _, name = path.rpartition("/")
        record = self._children(folder or "/")[name.lower()][1]
        if self._volume != "udf_path":
            return Extent(record.extent_location() * _SECTOR, record.get_data_length())
        length = record.get_data_length()
        base = self._iso.udf_main_descs.partitions[0].part_start_location
        pieces = [
            ((base + one.log_block_num) * _SECTOR, one.extent_length)
            for one in record.alloc_descs
            if one.extent_length
        ]
        at = pieces[0][0] if pieces else 0
        for offset, size in pieces:
            if offset != at:
                raise PreflightError(self._doing, f"'{path}' lies in several pieces of it", _CURE)
            at += size
        return Extent(pieces[0][0] if pieces else 0, length)

    def _children(self, folder: str) -> dict[str, tuple[str, Any]]:
        """By lower-case name: the name as written, and the library's record."""
        key = folder.lower()
        if key not in self._folders:
            written = "/" if folder == "/" else self.find(folder)
            self._folders[key] = {} if written is None else dict(self._listed(written))
        return self._folders[key]

    def _listed(self, folder: str) -> Iterator[tuple[str, tuple[str, Any]]]:
        from pycdlib.pycdlibexception import PyCdlibInvalidInput  # noqa: PLC0415  slow, an extra

        try:
            for record in self._iso.list_children(**{self._volume: folder}):
                if record is None or record.is_dot() or record.is_dotdot():
                    continue
                name = self._name(record)
                yield name.lower(), (name, record)
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
