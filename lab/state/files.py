"""Small files of ours: mode 0600, whole or not there at all."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from lab.state.failure import guarded_files

PRIVATE = 0o600
_SHOWN = 40
"""Characters of a file's name in that of its draft: a name has at most 255 bytes."""
_MOST_BYTES = 64 << 20
"""More than any of them has."""


def read_private(path: Path) -> bytes:
    """The contents of a small file of ours; at once, whatever stands in its place.

    Raises
    ------
    OSError
        When it cannot be read, or is a link, a pipe, a device, or far too large.

    """
    return read_regular(path, os.O_NOFOLLOW)


def read_regular(path: Path, flags: int = 0) -> bytes:
    """The contents of a small file from elsewhere; at once, whatever stands in its place.

    Raises
    ------
    OSError
        When it cannot be read, or is a pipe, a device, or far too large.

    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return content


def write_private(path: Path, text: str) -> None:
    """Write the file; a reader sees the old text or the new one, never a part.

    Raises
    ------
    StateError
        When it cannot be written; what was there before stays.

    """
    with guarded_files(f"writing '{path}'"), replacing(path) as file:
        file.write(text.encode())


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write to a new file of mode 0600 beside that path; it takes the path's place at the end.

    Its name cannot be guessed, and a file or link of that name is never opened: in a shared
    directory, somebody else may have put it there. A link at the path itself is replaced.

    Raises
    ------
    OSError
        When it cannot be written; what was there before stays.

    """
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:_SHOWN]}.")
    draft = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            yield file
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
