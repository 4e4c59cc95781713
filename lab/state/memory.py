"""How much memory there is left for a lab or a matrix: the machine's, and the control group's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_UNLIMITED = 1 << 62
_FIGURES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Names of the limit and of what is used, in version 2 of control groups and in version 1."""


def available(root: Path = Path("/")) -> int:
    """Bytes that can be had without swapping; files are looked for below ``root``.

    The smallest of what the kernel estimates for the machine and of what each control group
    that this process is in has left; what a group holds of files and does not use is left too.
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
                yield from _left(place)
                if place == mount:
                    break


def _left(group: Path) -> Iterator[int]:
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
