"""Small files of ours: mode 0600, whole or not there at all."""

from __future__ import annotations

import os
from pathlib import Path

from lab.state.failure import ELSEWHERE, guarded_files

PRIVATE = 0o600


def write_private(
    path: Path, text: str, *, like: os.stat_result | None = None, elsewhere: str = ELSEWHERE
) -> None:
    """Write the file; a reader sees the old text or the new one, never a part.

    Parameters
    ----------
    like
        Of the file that is replaced, where its owner must stay the same.
    elsewhere
        What else can be tried when it cannot be written; see ``guarded_files``.

    Raises
    ------
    StateError
        When it cannot be written; what was there before stays.

    """
    draft = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    with guarded_files(f"writing '{path}'", elsewhere):
        try:
            # A new file, and no link that somebody else has put there: in /tmp anybody can.
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                if like is not None:
                    os.fchown(descriptor, like.st_uid, like.st_gid)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
