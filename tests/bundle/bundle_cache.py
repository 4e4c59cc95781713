"""The cache of the tool: finished folders, each created atomically."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import UsageError

UNFINISHED = ".unfinished-"
"""Prefix of the names of unfinished folders."""
TIMES = "seconds.log"
"""File in the cache: what was built, and in how many seconds."""
UNUSED_DAYS = 14
"""A finished folder unused for this long is removed when the next one is made."""


@contextlib.contextmanager
def only_one(cache: Path, deadline: Deadline) -> Iterator[None]:
    """Lock the cache against other runs, and remove unfinished folders of a killed one."""
    with (cache / "lock").open("a+") as lock:

        def taken() -> str:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                return f"held by process {lock.read().strip() or 'unknown'}"
            return ""

        if held := taken():
            say(f"waiting: {cache} is {held}")
        hint = "let the other run end, or end it, and repeat"
        deadline.wait(f"locking {cache}", taken, until=lambda held: not held, every=0.2, hint=hint)
        lock.truncate(0)
        print(os.getpid(), file=lock, flush=True)
        for left in cache.glob(f"{UNFINISHED}*"):
            shutil.rmtree(left)
        yield


def finished_folder(folder: Path, title: str, make: Callable[[Path], None]) -> Path:
    """Return ``folder``; if it does not exist, call ``make`` to fill it, and print the time."""
    if folder.is_dir():
        os.utime(folder)
        return folder
    say(f"{title}: begun")
    began = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=folder.parent))
    try:
        make(scratch)
        _seal(scratch)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    took = f"{title}: {time.monotonic() - began:.0f} s"
    say(took)
    with (folder.parent / TIMES).open("a") as times:
        print(f"{folder.name} {took}", file=times)
    _forget_unused(folder.parent)
    return folder


def link_files(source: Path, into: Path) -> None:
    """Put the files of ``source`` into ``into``, as links, or on another disk as copies."""
    for path in sorted(source.rglob("*")):
        target = into / path.relative_to(source)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            target.hardlink_to(path)
        except OSError:
            shutil.copy2(path, target)


def copy_out(made: Path, output: Path) -> None:
    """Copy a finished input directory to the user's directory.

    Raises UsageError when something else is there.
    """
    if output.is_dir() and any(output.iterdir()):
        text = f"writing the input directory {output}"
        raise UsageError(text, "it is not empty", "another --output, or remove this one")
    link_files(made, output)


def digest(told: object, *files: Path) -> str:
    """Return 12 hex digits of a hash of ``repr(told)`` and the bytes of ``files``."""
    summed = hashlib.sha256(repr(told).encode())
    for file in files:
        summed.update(file.read_bytes())
    return summed.hexdigest()[:12]


def say(line: str) -> None:
    """Print a progress message."""
    print(f"bundle: {line}", file=sys.stderr, flush=True)


def _forget_unused(cache: Path) -> None:
    for folder in cache.iterdir():
        if folder.is_dir() and folder.stat().st_mtime < time.time() - UNUSED_DAYS * 86400:
            shutil.rmtree(folder)


def _seal(folder: Path) -> None:
    """Make all files read-only: the input directories link them."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(path.stat().st_mode & 0o555 | 0o444)
