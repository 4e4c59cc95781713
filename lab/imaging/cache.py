"""What is on the disk in the cache: read, listed, measured and removed, whatever stands there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab._errors import PreflightError
from lab.imaging.job import MORE_ROOM
from lab.state.directory import writer
from lab.state.failure import guarded_files
from lab.state.files import read_regular

ELSEWHERE = "or name another 'cache' in the inventory"
PARTIAL = ".partial"
"""At the end of the name of a directory that is being made, or goes."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def guarded(doing: str) -> Iterator[None]:
    """Turn an OSError into a LabError; a full disk with the hint for caches."""
    try:
        with guarded_files(doing, ELSEWHERE):
            yield
    except PreflightError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in _FULL:
            raise PreflightError(doing, error.happened, MORE_ROOM) from cause
        raise


def require_own(*directories: Path) -> None:
    """Refuse to write as root where another user could lead the files elsewhere by links.

    Parameters
    ----------
    directories
        Those of the cache that are written into, and the cache itself.

    Raises
    ------
    PreflightError
        Which directory it is, and who may write it.

    """
    for path in directories if os.geteuid() == 0 else ():
        if path.is_dir() and (stranger := writer(path)):
            raise PreflightError(
                f"writing into '{path}'",
                stranger,
                "name a directory of root's own as 'cache' in the inventory",
            )


def read_json(path: Path) -> object:
    """What a small file of the cache says; None where it cannot be read."""
    try:
        found: object = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        return None
    return found


def read_line(path: Path) -> str:
    """The text of a small file of the cache, without its end of line; empty where there is none."""
    try:
        return read_regular(path).decode("ascii", "replace").strip()
    except OSError:
        return ""


def entries(directory: Path) -> list[Path]:
    """What is in a directory, in order; nothing where there is none.

    Raises
    ------
    StateError
        When it cannot be looked into.

    """
    with guarded(f"looking into '{directory}'"):
        try:
            return sorted(directory.iterdir())
        except FileNotFoundError:
            return []


def size(path: Path) -> int:
    """Bytes on disk, of a file or all below a directory; what cannot be looked at counts none.

    No link is followed.
    """
    files = [path]
    if not path.is_symlink():
        for directory, _, names in os.walk(path):
            files += (Path(directory, name) for name in names)
    return sum(map(_blocks, files)) * 512


def _blocks(path: Path) -> int:
    try:
        found = path.lstat()
    except OSError:  # somebody has just taken it away, or may not be asked
        return 0
    return 0 if stat.S_ISDIR(found.st_mode) else found.st_blocks


def remove(path: Path) -> None:
    """Remove a directory, or whatever has the name of one."""
    with guarded(f"removing '{path}'"):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            return
        if not path.name.startswith("."):
            hidden = path.with_name(f".{path.name}{PARTIAL}")
            if hidden.is_dir():  # of one that was interrupted
                shutil.rmtree(hidden)
            path.rename(hidden)  # never half of it under the name of a whole one
            path = hidden
        shutil.rmtree(path)
