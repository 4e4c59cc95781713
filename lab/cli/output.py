"""Files that the user asked for by name."""

from __future__ import annotations

from pathlib import Path

from lab._errors import UsageError


def write_file(path: Path, content: bytes, doing: str) -> None:
    """Write the file, over one that is there.

    Raises
    ------
    UsageError
        When it cannot be written.

    """
    try:
        path.write_bytes(content)
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise UsageError(
            doing, f"'{path}' cannot be written: {words}", "name another file with -o"
        ) from error
