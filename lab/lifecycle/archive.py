"""One ``.tar.gz`` of pieces: private, and whole or not there at all."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

from lab._errors import UsageError
from lab.providers.provider import Evidence
from lab.state.failure import ELSEWHERE, guarded_files
from lab.state.files import PRIVATE, replacing

PIECE_BYTES = 16 << 20
"""What is longer is cut, and its end kept: that is where a log says what went wrong."""
_ODD = re.compile(r"[^A-Za-z0-9._@+=,:-]")


def member_name(path: str) -> str:
    """The path as it stands in the archive: relative, without ``..``, of harmless characters."""
    parts = [_ODD.sub("_", part) for part in path.split("/") if part not in {"", ".", ".."}]
    return "/".join(parts) or "unnamed"


def shortened(content: bytes) -> bytes:
    """The content, or the end of it below a line that says how much is missing."""
    missing = len(content) - PIECE_BYTES
    if missing <= 0:
        return content
    return b"[the first %d bytes are left out]\n" % missing + content[missing:]


def write_archive(  # noqa: PLR0913, PLR0917  what, from what, and where else
    path: Path,
    top: str,
    pieces: Iterable[Evidence],
    clean: Callable[[bytes], bytes],
    moment: float,
    elsewhere: str = ELSEWHERE,
) -> None:
    """Write every piece below the directory ``top`` of a new archive.

    Parameters
    ----------
    path
        The file; it has mode 0600.
    top
        Name of the directory that unpacking makes.
    pieces
        In the order in which they are written; of two with one path the second is numbered.
    clean
        What every content goes through before it is written.
    moment
        Seconds since 1970: when all members were changed last.
    elsewhere
        What else can be tried when it cannot be written; see ``guarded_files``.

    Raises
    ------
    UsageError
        When there is a device, a pipe or the like at that path.
    StateError
        When it cannot be written; there is no file then.

    """
    doing = f"writing '{path}'"
    with guarded_files(doing, elsewhere):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UsageError(doing, "it is a device or the like", "name an ordinary file")
    with (
        guarded_files(doing, elsewhere),
        replacing(path) as draft,
        gzip.GzipFile(fileobj=draft, mode="wb", compresslevel=6, mtime=moment) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        names: set[str] = set()
        for piece in pieces:
            name = _unused(member_name(piece.path), names)
            _add(archive, f"{top}/{name}", shortened(clean(piece.content)), moment)


def _unused(name: str, names: set[str]) -> str:
    free, number = name, 1
    while free in names:
        number += 1
        free = f"{name}.{number}"
    names.add(free)
    return free


def _add(archive: tarfile.TarFile, name: str, content: bytes, moment: float) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(content), PRIVATE, int(moment)
    archive.addfile(member, io.BytesIO(content))
