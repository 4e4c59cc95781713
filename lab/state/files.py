"""Small files of ours: mode 0600, whole or not there at all."""

from __future__ import annotations

import os
from pathlib import Path

from lab.state.failure import guarded_files

PRIVATE = 0o600


def write_private(path: Path, text: str) -> None:
    """Write the file; a reader sees the old text or the new one, never a part.

    Raises
    ------
    StateError
        When it cannot be written; what was there before stays.

    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with guarded_files(f"writing '{path}'"):
        try:
            draft.touch(mode=PRIVATE)
            draft.write_text(text, encoding="utf-8", newline="")
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
