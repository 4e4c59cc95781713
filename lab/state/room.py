"""Whether the disk has room for a lab's journal and the results of its runs."""

from __future__ import annotations

import os
from pathlib import Path

from lab.state.failure import ELSEWHERE, FullError

NEEDED_BYTES = 16 << 20
"""Journal and results of one lab, several runs of some thousand cells (1 MB each) included."""


def check_room(directory: Path, needed: int | None = None) -> None:
    """Refuse a directory, there or not yet, on a disk that is as good as full.

    Parameters
    ----------
    needed
        Bytes; None for :data:`NEEDED_BYTES`.

    Raises
    ------
    FullError
        Naming what is free and what is needed.

    """
    there = next(path for path in (directory, *directory.absolute().parents) if path.is_dir())
    figures = os.statvfs(there)
    free = figures.f_bavail * figures.f_frsize
    needed = NEEDED_BYTES if needed is None else needed
    if free < needed:
        raise FullError(
            f"checking disk space in '{directory}'",
            f"{free >> 20} MiB are free, {-(-needed >> 20)} MiB are needed",
            f"free some space (see: df -h '{_mounted(there)}'), {ELSEWHERE}",
        )


def _mounted(there: Path) -> Path:
    """Where that disk is mounted: a lab's directory may be gone before anybody looks at it."""
    resolved = there.resolve()
    return next(path for path in (resolved, *resolved.parents) if path.is_mount())
