"""Media: small ISO 9660 images made, and files read out of a vendor's (pycdlib)."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from lab._errors import PreflightError

NOT_INSTALLED = "'make setup PROVIDER=libvirt' in a checkout, else pip install 'hybridlab[libvirt]'"
"""The cure where pycdlib is missing."""
_ROCK_RIDGE = "1.09"
_JOLIET = 3
_FILES_OF_MANY_EXTENTS = 3
"""The interchange level of ECMA-119 that allows files of 4 GiB and more."""
_FILE, _PROGRAM = 0o100444, 0o100555
_NEW_YEAR_1970 = (70, 1, 1, 0, 0, 0, 0)
_CHUNK = 1 << 20
_SECTOR = 2048
_FIRST = 16 * _SECTOR
"""Where the first volume descriptor is, and what follows is from ECMA-119, 6.2.1 and 8.4."""
_LAST_KIND = 255
_MODIFIED = 830
_NO_DATE = b"0" * 16 + b"\0"


def medium(label: str, files: Mapping[str, bytes]) -> bytes:
    """An ISO 9660 image with Rock Ridge and Joliet names; the same files give the same bytes.

    Parameters
    ----------
    label
        Volume identifier, at most 16 characters so that Joliet carries it whole.
    files
        Content by name; all in the root.

    Raises
    ------
    PreflightError
        When pycdlib is not installed.

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
    """Write such an image to a file, of files that may be larger than memory or 4 GiB.

    Parameters
    ----------
    label
        As for :func:`medium`.
    files
        What to read and how many bytes of it, by path: ``"bin/kubelet"``.
    out
        Empty, and can be read, too.
    executable
        Paths with mode 0555 instead of 0444 in their Rock Ridge names.

    Raises
    ------
    PreflightError
        When pycdlib is not installed.

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
        if folder not in folders:
            folders[folder] = f"/D{len(folders):07}"
            iso.add_directory(folders[folder], rr_name=folder, joliet_path=f"/{folder}")
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
    for descriptor in _descriptors(out):  # this date pycdlib takes when it writes
        out.seek(descriptor + _MODIFIED)
        out.write(_NO_DATE)


def label_of(image: Path) -> str:
    """The volume identifier of an ISO 9660 image.

    Raises
    ------
    PreflightError
        When the file is no such image.

    """
    with image.open("rb") as file:
        file.seek(_FIRST)
        descriptor = file.read(_SECTOR)
    if descriptor[1:6] != b"CD001":
        raise PreflightError(
            f"reading the medium '{image}'", "it is no ISO 9660 image", "give the vendor's ISO"
        )
    return descriptor[40:72].decode("ascii", errors="replace").strip()


def extract(image: Path, path: str, out: BinaryIO) -> None:
    """Copy one file of an ISO 9660 image, by its Rock Ridge, Joliet or plain name.

    Raises
    ------
    PreflightError
        When the image cannot be read, or holds no such file; with what its folder holds.

    """
    library = _pycdlib()
    doing = f"reading '{path}' out of the medium '{image}'"
    iso = library.PyCdlib()
    try:
        iso.open(str(image))
    except library.pycdlibexception.PyCdlibException as error:
        raise PreflightError(doing, f"{error}", "give the vendor's ISO, whole") from error
    try:
        names = _facade(iso)
        try:
            names.get_file_from_iso_fp(out, path, blocksize=_CHUNK)
        except library.pycdlibexception.PyCdlibException as error:
            there = ", ".join(_listed(names, path.rpartition("/")[0] or "/", library))
            raise PreflightError(
                doing,
                f"there is no such file; its folder holds {there or 'nothing'}",
                "give the medium that the recipe names",
            ) from error
    finally:
        iso.close()


class _Facade:
    """One family of names of an image, under one signature."""

    def __init__(self, iso: Any, keyword: str) -> None:
        self._iso = iso
        self._keyword = keyword

    def get_file_from_iso_fp(self, out: BinaryIO, path: str, blocksize: int) -> None:
        written = path
        if self._keyword == "iso_path":
            head, _, name = path.upper().rpartition("/")
            written = f"{head}/{name if '.' in name else name + '.'};1"
        self._iso.get_file_from_iso_fp(out, blocksize=blocksize, **{self._keyword: written})

    def names(self, folder: str) -> Iterator[str]:
        written = folder.upper() if self._keyword == "iso_path" else folder
        for child in self._iso.list_children(**{self._keyword: written}):
            if child.is_dot() or child.is_dotdot():
                continue
            full = self._iso.full_path_from_dirrecord(child, rockridge=self._keyword == "rr_path")
            yield full.rpartition("/")[2]


def _facade(iso: Any) -> _Facade:
    if iso.has_rock_ridge():
        return _Facade(iso, "rr_path")
    return _Facade(iso, "joliet_path" if iso.has_joliet() else "iso_path")


def _listed(names: _Facade, folder: str, library: Any) -> list[str]:
    try:
        return sorted(names.names(folder))
    except library.pycdlibexception.PyCdlibException:
        return []


def _without_dates(iso: Any) -> None:
    """Every date of the image becomes 1970: pycdlib writes the time of day."""
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
    """Where every volume descriptor begins that carries dates."""
    at = _FIRST
    while image.seek(at) and image.read(1)[0] != _LAST_KIND:
        yield at
        at += _SECTOR


def _records(root: Any) -> Iterator[Any]:
    yield root
    for child in root.children or ():
        if child.is_dir() and not (child.is_dot() or child.is_dotdot()):
            yield from _records(child)
        else:
            yield child


def _rock_ridge(record: Any) -> Iterator[Any]:
    if record.rock_ridge is not None:
        both = record.rock_ridge.dr_entries, record.rock_ridge.ce_entries
        yield from (entries for entries in both if entries is not None)


def _pycdlib() -> Any:
    try:
        import pycdlib  # noqa: PLC0415  an extra: only who uses hypervisors has it
    except ImportError as error:
        raise PreflightError("making or reading a medium", f"{error}", NOT_INSTALLED) from error
    return pycdlib
