"""Creates ISO 9660 images, and reads files from vendors' images, which may use UDF (pycdlib)."""

from __future__ import annotations

import io
import logging
import stat
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from lab._errors import PreflightError

NOT_INSTALLED = "'make setup PROVIDER=libvirt' in a checkout, else pip install 'hybridlab[libvirt]'"
"""The hint if pycdlib is missing."""
_ROCK_RIDGE = "1.09"
_JOLIET = 3
_FILES_OF_MANY_EXTENTS = 3
"""The interchange level of ECMA-119 that allows files of 4 GiB and more."""
_FILE, _PROGRAM = 0o100444, 0o100555
_NEW_YEAR_1970 = (70, 1, 1, 0, 0, 0, 0)
_CHUNK = 1 << 20
SECTOR = 2048
_FIRST = 16 * SECTOR
"""Offset of the first volume descriptor, and fields of a descriptor (ECMA-119, 6.2.1 and 8.4)."""
_LABEL = slice(40, 72)
_BLOCKS, _BLOCK = 80, 128
"""Offset of the volume's number of blocks, u32, and of the block size, u16."""
_LAST_KIND = 255
_MODIFIED = 830
_NO_DATE = b"0" * 16 + b"\0"
_BEGINNING = _FIRST + SECTOR
"""Bytes at a file's beginning that identify its type."""
_INLINE = 3
"""Value of the low three flag bits of a UDF entry whose content is inline (ECMA-167, 4/14.6.8)."""
_AGAIN = "fetch it again, and compare its SHA-256 with the one its vendor gives"
_BROKEN = (struct.error, ValueError, LookupError)
"""Other errors that pycdlib raises on a damaged medium."""
_MAGIC: Mapping[bytes, str] = {
    b"QFI\xfb": "a qcow2 disk",
    b"MSWIM\0\0\0": "a WIM file, which is only a part of a medium",
    b"vhdxfile": "a Hyper-V disk (VHDX)",
    b"conectix": "a Hyper-V disk (VHD)",
    b"KDMV": "a VMware disk (VMDK)",
    b"# Disk Desc": "a VMware disk (VMDK)",
    b"PK\x03\x04": "a ZIP archive",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    b"Rar!": "a RAR archive",
    b"\x1f\x8b": "a gzip archive",
    b"\xfd7zXZ\0": "an xz archive",
    b"BZh": "a bzip2 archive",
    b"MSCF": "a cabinet file",
    b"MZ": "a Windows program",
    b"\x7fELF": "a Linux program",
    b"%PDF": "a PDF document",
}
_WORDS: Mapping[bytes, str] = {
    b"<!doctype html": "a web page, not the medium: check the address",
    b"<html": "a web page, not the medium: check the address",
    b"<?xml": "an XML document",
}


@dataclass(frozen=True, slots=True)
class Extent:
    """A range of bytes in a medium."""

    offset: int
    length: int


def medium(label: str, files: Mapping[str, bytes]) -> bytes:
    """An ISO 9660 image with Rock Ridge and Joliet names; the same files give the same bytes.

    ``label``: volume identifier, at most 16 characters, the length that Joliet stores. ``files``:
    content by path: ``"settings.json"``, ``"drivers/a.inf"``.

    Raises PreflightError when pycdlib is not installed.
    """
    out = io.BytesIO()
    contents = {name: (io.BytesIO(content), len(content)) for name, content in files.items()}
    write(label, contents, out)
    return out.getvalue()


def write(
    label: str,
    files: Mapping[str, tuple[BinaryIO | io.RawIOBase, int]],
    out: BinaryIO,
    executable: Collection[str] = (),
) -> None:
    """Write such an image to a file; its files may be larger than memory or 4 GiB.

    ``label``: as for :func:`medium`. ``files``: what to read, and how many bytes of it, by path:
    ``"bin/kubelet"``. ``out``: the output: empty, writable and readable. ``executable``: paths with
    mode 0555 instead of 0444 in their Rock Ridge names.

    Raises PreflightError when pycdlib is not installed.
    """
    iso = _pycdlib().PyCdlib()
    iso.new(
        interchange_level=_FILES_OF_MANY_EXTENTS,
        vol_ident=label,
        joliet=_JOLIET,
        rock_ridge=_ROCK_RIDGE,
    )
    folders = {"": ""}
    for number, (path, (content, length)) in enumerate(sorted(files.items())):
        folder, _, name = path.rpartition("/")
        for above_folder in (*map(str, reversed(PurePosixPath(folder).parents)), folder)[1:]:
            if above_folder not in folders:
                above, _, own = above_folder.rpartition("/")
                folders[above_folder] = f"{folders[above]}/D{len(folders):07}"
                iso.add_directory(
                    folders[above_folder], rr_name=own, joliet_path=f"/{above_folder}"
                )
        iso.add_fp(
            content,
            length,
            f"{folders[folder]}/F{number:07}.;1",
            rr_name=name,
            joliet_path=f"/{path}",
            file_mode=_PROGRAM if path in executable else _FILE,
        )
    _without_dates(iso)
    iso.write_fp(out, blocksize=_CHUNK)
    iso.close()
    for descriptor in _descriptors(out):  # pycdlib itself writes the current date here
        out.seek(descriptor + _MODIFIED)
        out.write(_NO_DATE)


@contextmanager
def opened(path: Path, action: str, hint: str) -> Iterator[Medium]:
    """Open a medium for reading.

    ``action``: for messages: ``"reading the medium 'x.iso'"``. ``hint``: what to try if the file is
    something else.

    Raises PreflightError when it cannot be read, is truncated, damaged or something else; also for
    errors inside the block.
    """
    library = _pycdlib()
    logging.getLogger("pycdlib").setLevel(logging.ERROR)  # it logs what it tolerates
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode) or stat.S_ISDIR(mode)):
            raise PreflightError(action, "it is not a file", hint)
        with path.open("rb") as file:
            label, size = _volume(action, file, hint)
            iso = library.PyCdlib()
            try:
                iso.open_fp(file)
            except Exception as error:  # pycdlib raises many types on a damaged medium
                raise PreflightError(
                    action, f"it is damaged: {_describe_error(error)}", _AGAIN
                ) from error
            try:
                yield Medium(path, label, size, action, iso, file)
            except (library.pycdlibexception.PyCdlibException, *_BROKEN) as error:
                raise PreflightError(
                    action, f"it is damaged: {_describe_error(error)}", _AGAIN
                ) from error
            finally:
                iso.close()
    except OSError as error:
        raise PreflightError(action, f"{error.strerror}", "check the path") from error


@dataclass
class Medium:
    """An open medium; file names are not case-sensitive."""

    path: Path
    label: str
    """The volume identifier."""
    size: int
    """Bytes of the file."""
    action: str
    iso: Any
    """The pycdlib object."""
    file: BinaryIO
    _folders: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Choose the name space to read."""
        if self.iso.has_udf():
            self._volume = "udf_path"
        elif self.iso.has_rock_ridge():
            self._volume = "rr_path"
        else:
            self._volume = "joliet_path" if self.iso.has_joliet() else "iso_path"

    def names(self, folder: str = "/") -> tuple[str, ...]:
        """Names in a folder, as the medium writes them; empty if there is no such folder."""
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
        """The bytes of a file.

        Raises PreflightError when there is no such file (with the folder's content), when it ends
        beyond the medium, or is fragmented, which no vendor's medium is.
        """
        folder, _, name = path.rpartition("/")
        record = self._children(folder or "/").get(name.lower())
        if record is None:
            names = ", ".join(sorted(self.names(folder or "/")))
            raise PreflightError(
                self.action,
                f"there is no such file, '{path}'; its folder holds {names or 'nothing'}",
                "give the medium that the recipe names",
            )
        pieces = self._pieces(record)
        at = pieces[0].offset if pieces else 0
        whole = Extent(at, sum(piece.length for piece in pieces))
        for piece in pieces:
            if piece.offset != at:
                raise PreflightError(
                    self.action, (f"'{path}' is split into several pieces on it"), _AGAIN
                )
            at += piece.length
        if at > self.size:
            happened = (
                f"it is cut off: '{path}' ends at byte {at:,}, but the file has {self.size:,}"
            )
            raise PreflightError(self.action, happened, _AGAIN)
        return whole

    def read(self, path: str) -> bytes:
        """Read a file.

        Raises PreflightError: as `extent`.
        """
        return self.piece(self.extent(path))

    def piece(self, where: Extent) -> bytes:
        """The bytes of an extent, up to the end of the medium."""
        self.file.seek(where.offset)
        return self.file.read(where.length)

    def _pieces(self, record: Any) -> list[Extent]:
        """The extents of a file; ISO 9660 splits large files into records of less than 4 GiB."""
        if self._volume != "udf_path":
            pieces = []
            while record is not None:
                pieces.append(Extent(record.extent_location() * SECTOR, record.data_length))
                record = record.data_continuation
            return pieces
        base = self.iso.udf_main_descs.partitions[0].part_start_location
        if record.icb_tag.flags & 7 == _INLINE:
            (descriptor,) = record.alloc_descs
            return [
                Extent(
                    descriptor.log_block_num * SECTOR + descriptor.offset, descriptor.extent_length
                )
            ]
        return [
            Extent((base + desc.log_block_num) * SECTOR, desc.extent_length)
            for desc in record.alloc_descs
            if desc.extent_length
        ]

    def _children(self, folder: str) -> dict[str, Any]:
        """Records of pycdlib by lower-case name."""
        key = folder.lower()
        if key not in self._folders:
            written = "/" if folder == "/" else self.find(folder)
            records = self._listed(written) if written else ()
            self._folders[key] = {self._name(record).lower(): record for record in records}
        return self._folders[key]

    def _listed(self, folder: str) -> Iterator[Any]:
        from pycdlib.pycdlibexception import PyCdlibInvalidInput  # noqa: PLC0415  slow, an extra

        try:
            for record in self.iso.list_children(**{self._volume: folder}):
                if record is not None and not (record.is_dot() or record.is_dotdot()):
                    yield record
        except PyCdlibInvalidInput:  # it is a file
            return

    def _name(self, record: Any) -> str:
        named = self.iso.full_path_from_dirrecord(record, rockridge=self._volume == "rr_path")
        name = str(named).rpartition("/")[2].partition(";")[0]
        return name.rstrip(".") if self._volume == "iso_path" else name


def _volume(action: str, file: BinaryIO, hint: str) -> tuple[str, int]:
    """The volume's label and the file's size, after checking that the volume is complete."""
    size = file.seek(0, 2)
    file.seek(0)
    first = file.read(_BEGINNING)
    descriptor = first[_FIRST:]
    if descriptor[:6] != b"\x01CD001" or len(first) < _BEGINNING:
        raise PreflightError(action, kind_of(first), hint)
    label = descriptor[_LABEL].decode("ascii", errors="replace").strip(" \0")
    (blocks,) = struct.unpack_from("<I", descriptor, _BLOCKS)
    (block,) = struct.unpack_from("<H", descriptor, _BLOCK)
    whole = blocks * block
    if size < whole:
        raise PreflightError(
            action,
            f"it is cut off: the medium '{label}' has {whole:,} bytes, and the file {size:,} "
            f"({size / whole:.0%})",
            _AGAIN,
        )
    return label, size


def kind_of(first: bytes) -> str:
    """What a file without an ISO 9660 volume is, from its first 34 KiB or fewer."""
    beginning = first[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    known = [kind for magic, kind in _MAGIC.items() if first.startswith(magic)]
    known += [kind for words, kind in _WORDS.items() if beginning.startswith(words)]
    if known:
        return f"it is {known[0]}"
    if first[_FIRST + 1 : _FIRST + 6] == b"BEA01":
        return "it is a UDF volume without ISO 9660, so not an installation medium"
    if len(first) < _BEGINNING:
        return f"it has {len(first):,} bytes, too few for a medium" if first else "it is empty"
    if not any(first):
        return "its beginning is all zeros: the download was not written"
    if first[510:512] == b"\x55\xaa":
        return "it is a disk image with a boot sector, not an ISO"
    return "it is not an ISO 9660 image"


def _describe_error(error: Exception) -> str:
    return str(error) or type(error).__name__


def _without_dates(iso: Any) -> None:
    """Set every date of the image to 1970: pycdlib writes the current time."""
    from pycdlib.dates import (  # noqa: PLC0415  slow, and an extra
        DirectoryRecordDate,
        VolumeDescriptorDate,
    )

    empty = VolumeDescriptorDate()
    empty.new(0.0)
    day = DirectoryRecordDate.from_fields(*_NEW_YEAR_1970)
    for descriptor in (iso.pvd, iso.joliet_vd):
        for which in ("creation", "modification", "expiration", "effective"):
            setattr(descriptor, f"volume_{which}_date", empty)
        for record in _records(descriptor.root_dir_record):
            record.date = day
            for entries in _rock_ridge(record):
                stamps = entries.tf_record
                for when in ("creation", "access", "modification", "attribute_change"):
                    if stamps is not None and getattr(stamps, f"{when}_time") is not None:
                        setattr(stamps, f"{when}_time", day)


def _descriptors(image: BinaryIO) -> Iterator[int]:
    """Offsets of the volume descriptors that contain dates."""
    at = _FIRST
    while image.seek(at) and image.read(1)[0] != _LAST_KIND:
        yield at
        at += SECTOR


def _records(root: Any) -> Iterator[Any]:
    yield root
    for child in root.children or ():
        if child.is_dir() and not (child.is_dot() or child.is_dotdot()):
            yield from _records(child)
        else:
            yield child


def _rock_ridge(record: Any) -> Iterator[Any]:
    if record.rock_ridge is not None:
        areas = record.rock_ridge.dr_entries, record.rock_ridge.ce_entries
        yield from (entries for entries in areas if entries is not None)


def _pycdlib() -> Any:
    try:
        import pycdlib  # noqa: PLC0415  an extra: only who uses hypervisors has it
    except ImportError as error:
        raise PreflightError("making or reading a medium", f"{error}", NOT_INSTALLED) from error
    return pycdlib
