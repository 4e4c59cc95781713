"""Lines in this account's known_hosts, the only file that ssh reads, whatever ``HOME`` is."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable

from lab.remote.transport import ssh_path

FILE = ssh_path("~/.ssh/known_hosts")


def add(address: str, key: str, mark: str) -> None:
    """Trust the key at the address, replacing a line of an earlier run."""
    _change(lambda lines: [*_without(lines, address, mark), f"{address} {key} {mark}"])


def remove(address: str, mark: str) -> None:
    """Remove the line again, and the file if it is then empty."""
    _change(lambda lines: _without(lines, address, mark))


def sweep(mark: str, forlorn: Callable[[str], bool]) -> None:
    """Remove lines of killed runs, which are recognized by ``mark``."""

    def edit(lines: list[str]) -> list[str]:
        parts = [(line, *line.partition(f" {mark} ")[1:]) for line in lines]
        return [line for line, found, rest in parts if not (found and forlorn(f"{mark} {rest}"))]

    if FILE.exists():
        _change(edit)


def _without(lines: list[str], address: str, mark: str) -> list[str]:
    return [
        line for line in lines if not (line.startswith(f"{address} ") and line.endswith(f" {mark}"))
    ]


def _change(edit: Callable[[list[str]], list[str]]) -> None:
    FILE.parent.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(FILE.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = edit(FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else [])
        if lines:
            FILE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        else:
            FILE.unlink(missing_ok=True)
    finally:
        os.close(lock)
