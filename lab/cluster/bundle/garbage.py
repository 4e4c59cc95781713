"""What is collected of a store: how large it is, and its end."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.cluster.bundle.scratch import guarded

PARTIAL = ".partial"
"""At the end of the name of a bundle that is being made, or goes."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What ``gc`` has found."""

    found: tuple[str, ...]
    """Paths, relative to the cache."""
    bytes: int
    removed: bool


def size_of(path: Path) -> int:
    """Bytes on disk, of a file or all below a directory; what cannot be looked at counts none."""
    files = [path]
    for directory, _, names in os.walk(path):
        files += (Path(directory, name) for name in names)
    found = [found_stat(one) for one in files if not one.is_dir()]
    return sum(one.st_blocks * 512 for one in found if one)


def found_stat(path: Path) -> os.stat_result | None:
    """None where somebody has just taken it away."""
    try:
        return path.stat()
    except OSError:
        return None


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
            path.rename(hidden)  # never half a bundle under a whole one's name
            path = hidden
        shutil.rmtree(path)
