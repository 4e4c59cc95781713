"""Memory and disk space available for labs and their journal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lab.state.failure import ELSEWHERE, FullError

_UNLIMITED = 1 << 62
_FIGURES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""File names of the memory limit and usage, in cgroup v2 and in cgroup v1."""


def available(root: Path = Path("/")) -> int:
    """Bytes of memory available without swapping; /proc and /sys are read below ``root``.

    The minimum of the kernel's estimate for the machine and of what remains in each control group
    of this process; inactive file cache of a group counts as available.
    """
    return min([_of_machine(root), *_of_groups(root)])


def _of_machine(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return _UNLIMITED


def _of_groups(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "memory"}:
            mount = root / "sys/fs/cgroup" / controllers
            group = mount / path.lstrip("/")
            for place in (group, *group.parents):
                yield from _left_in_group(place)
                if place == mount:
                    break


def _left_in_group(group: Path) -> Iterator[int]:
    for limit, used in _FIGURES:
        with suppress(OSError, ValueError):  # "max", or no such file
            room = int((group / limit).read_text()) - int((group / used).read_text())
            yield room + sum(_inactive_files(group))


def _inactive_files(group: Path) -> Iterator[int]:
    for line in _lines(group / "memory.stat"):
        name, _, value = line.partition(" ")
        if name == "inactive_file":
            yield int(value)


def _lines(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text(encoding="utf-8").splitlines()
    return []


NEEDED_BYTES = 16 << 20
"""For the journal and results of one lab, with several runs of some thousand cells (1 MB each)."""


def check_room(directory: Path, needed: int | None = None) -> None:
    """Refuse a directory, existing or not, on a disk that is nearly full.

    ``needed``: bytes; None for :data:`NEEDED_BYTES`.

    Raises FullError naming what is free and what is needed.
    """
    existing = next(path for path in (directory, *directory.absolute().parents) if path.is_dir())
    figures = os.statvfs(existing)
    free = figures.f_bavail * figures.f_frsize
    needed = NEEDED_BYTES if needed is None else needed
    if free < needed:
        raise FullError(
            f"checking disk space in '{directory}'",
            f"{free >> 20} MiB are free, {-(-needed >> 20)} MiB are needed",
            f"free some space (see: df -h '{_find_mount_point(existing)}'), {ELSEWHERE}",
        )


def _find_mount_point(path: Path) -> Path:
    """The mount point, for a hint that stays valid if the lab's directory is removed."""
    resolved = path.resolve()
    return next(path for path in (resolved, *resolved.parents) if path.is_mount())
