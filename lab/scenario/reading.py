"""The text of a file that a user wrote, or the one finding that says why there is none."""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from lab.scenario.document import Position
from lab.scenario.findings import FileFinding

MAX_BYTES = 256 * 1024
"""Largest file read. A scenario of a thousand nodes, a line each, takes a quarter of it."""

UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class StopError(Exception):
    """Nothing more can be read; carries the finding that says why."""

    def __init__(self, finding: FileFinding) -> None:
        self.finding = finding
        super().__init__(finding)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file, as messages speak of it."""

    noun: str
    """``"scenario"``."""
    absent: str
    """What to do where there is no such file."""
    large: str
    """What to do where it is too large."""
    language: str
    """``"YAML"``."""
    example: str = "my-lab"
    """A name that such a thing may have."""
    repeated: str = "write each value out"
    """What to do instead of repeating a part by an alias."""


def read(path: Path, kind: Kind) -> bytes:
    """The bytes of a file, of one that is too large enough to tell; the null device is empty.

    Raises
    ------
    StopError
        When it is not there, no regular file, or cannot be read.
    OSError
        When no file can have so long a name.

    """
    try:
        if not stat.S_ISREG(path.stat().st_mode) and str(path) != os.devnull:
            what = "a directory" if path.is_dir() else "no regular file"
            raise _whole(f"this is {what}", f"give the path of the {kind.noun} file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _whole("there is no such file", kind.absent) from None
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise  # its name would be the longest part of the finding
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _whole(f"it cannot be read: {reason}", "check the path and its permissions") from None
    return raw


def decoded(raw: bytes, kind: Kind) -> str:
    """The text of a file's bytes.

    Raises
    ------
    StopError
        When there are too many of them, or at the first byte that is not UTF-8, or character that
        no such file may hold.

    """
    if len(raw) > MAX_BYTES:
        raise _whole(f"the file is larger than {MAX_BYTES // 1024} KiB", kind.large)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = after(raw[: error.start].decode("utf-8-sig", errors="replace"))
        what = f"the byte 0x{raw[error.start]:02x} here is not UTF-8"
        hint = "save the file as UTF-8"
        raise StopError(FileFinding((), at.line, at.col, what, hint)) from None
    bad = UNPRINTABLE.search(text)
    if bad:
        at = after(text[: bad.start()])
        code = f"U+{ord(bad.group()):04X}"
        what = f"the character {code} here cannot be part of a {kind.language} file"
        raise StopError(FileFinding((), at.line, at.col, what, "delete it"))
    return text


def after(before: str) -> Position:
    """Where the character stands that comes next."""
    return Position(before.count("\n") + 1, len(before) - before.rfind("\n"))


def _whole(what: str, hint: str) -> StopError:
    return StopError(FileFinding((), 0, 0, what, hint))
