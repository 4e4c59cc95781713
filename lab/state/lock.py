"""The lock of one lab, which records the command that holds it.

The lock is ``flock`` on the file ``lock`` in the lab's directory. The kernel releases it when
its process ends, however it ends. A forked child holds it too, unless it calls ``exec``.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.state.directory import PRIVATE, make_private, open_unlinked
from lab.state.failure import ELSEWHERE, guarded_files

FILE = "lock"
FAULTS = "faults.lock"
"""A second lock, to put faults in or take them out, while tests may hold the first."""
RUNS, EVIDENCE = "runs", "evidence"
"""The parts of a lab's directory that outlive the lab."""
WAIT_SECONDS = 30.0
"""Default wait for another command on the same lab."""
GRACE_SECONDS = 0.2
"""Shortest wait, also if a command asks for none: a reader holds the lock for microseconds."""


@dataclass(frozen=True, slots=True, repr=False)
class Holder:
    """The command that holds a lab, as recorded in the lock file."""

    command: str
    process: int

    def __repr__(self) -> str:
        return f"'{self.command}' (process {self.process})" if self.process else self.command


class HeldError(BrokenError):
    """Another command holds the lab; the message names it."""


NOBODY_KNOWN = Holder("another lab command", 0)


@contextmanager
def lab_lock(  # noqa: PLR0913  a lock, and how whoever waits for it does
    directory: Path,
    command: str,
    *,
    wait: float = WAIT_SECONDS,
    shared: bool = False,
    say: Callable[[str], None] = lambda _: None,
    file: str = FILE,
    elsewhere: str = ELSEWHERE,
) -> Iterator[None]:
    """Hold the lock of the lab with this directory, which is created if it does not exist.

    ``directory``: the lab's directory. ``command``: what this process is doing: ``"lab up
    overlay"``. Shown by other commands that wait for it. ``wait``: seconds to wait for another
    command; 0 to refuse at once. ``shared``: whether other shared holders (tests) may hold it at
    the same time. ``say``: called once with the command that this one waits for. ``file``: which of
    the lab's locks. ``elsewhere``: hint if the lock file cannot be created; see
    :func:`~lab.state.failure.file_failure`.

    Raises HeldError when another command still holds it. Raises StateError when the lock file
    cannot be created.
    """
    attempt = partial(_attempt, directory / file, Holder(command, os.getpid()), shared, elsewhere)
    descriptor = _take(f"locking '{directory.name}' for '{command}'", attempt, wait, say)
    try:
        yield
    finally:
        if _is_still(descriptor, directory / file):
            if file != FILE:
                (directory / file).unlink(missing_ok=True)
            elif not shared:
                _remove_stale(directory)
        os.close(descriptor)


def holder(directory: Path) -> Holder | None:
    """The command that holds the lab exclusively, or None. Creates nothing."""
    try:
        descriptor = os.open(
            directory / FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        )
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor)
    finally:
        os.close(descriptor)
    return None


def _take(
    action: str, attempt: Callable[[], int | Holder], wait: float, say: Callable[[str], None]
) -> int:
    holders: list[Holder] = []

    def look() -> int | Holder:
        lock = attempt()
        if isinstance(lock, Holder):
            holders.append(lock)
            if wait and len(holders) == 2:  # noqa: PLR2004  a reader is gone by the second attempt
                say(f"waiting for {lock!r}")
        return lock

    deadline = Deadline(max(wait, GRACE_SECONDS))
    try:
        taken = deadline.wait(action, look, until=lambda lock: isinstance(lock, int), every=0.02)
    except DeadlineError as error:
        after = f" after {wait:g} s" if wait else ""
        raise HeldError(
            action,
            f"{holders[-1]!r} still holds it{after}",
            "wait for that command, or end it, and repeat",
        ) from error
    assert isinstance(taken, int)
    return taken


def _attempt(path: Path, own: Holder, shared: bool, elsewhere: str) -> int | Holder:
    """Try to take the lock; return its descriptor, or the current holder."""
    directory = path.parent
    held = False
    make_private(directory.parent, elsewhere)
    with guarded_files(f"locking '{directory.name}'", elsewhere):
        with suppress(FileExistsError):
            directory.mkdir(mode=PRIVATE)
        try:
            descriptor = _open(path)
        except FileNotFoundError:  # the previous holder has just removed the directory
            return NOBODY_KNOWN
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            held = _is_still(descriptor, path)
            if not held:
                return NOBODY_KNOWN
            others = [each for each in _list_living(descriptor) if each.process != own.process]
            _write(descriptor, [*others, own] if shared else [own])
        except BlockingIOError:
            return _read(descriptor)
        finally:
            if not held:
                os.close(descriptor)
    return descriptor


def _open(path: Path) -> int:
    """Open the lock file, creating it if needed; neither it nor its directory may be a link."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = open_unlinked(path.parent)
    try:
        return os.open(path.name, flags, 0o600, dir_fd=directory)
    finally:
        os.close(directory)


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether the open file is still at ``path``: its previous holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def _write(descriptor: int, holders: Iterable[Holder]) -> None:
    """Record who holds the lock, a line each: tests, captures and others can share it."""
    lines = [json.dumps([each.process, each.command]) for each in holders]
    with suppress(OSError):  # only used in messages: may be lost on a full disk
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, "\n".join(lines).encode(), 0)


def _read(descriptor: int) -> Holder:
    """The first holder recorded that still runs: one that shared the lock may have ended."""
    return next(_list_living(descriptor), NOBODY_KNOWN)


def _list_living(descriptor: int) -> Iterator[Holder]:
    for line in os.pread(descriptor, 4096, 0).splitlines():
        with suppress(ValueError, TypeError, OverflowError, RecursionError):
            process, command = json.loads(line)
            record = Holder(str(command), int(process))
            if Path(f"/proc/{record.process}").exists():
                yield record


def _remove_stale(directory: Path) -> None:
    """Remove the lock and the directory if the lab does not exist (any more).

    The lock must be held: a command that waits for it notices that the file was removed.
    """
    with suppress(OSError):
        if not {entry.name for entry in directory.iterdir()} - {FILE, RUNS, EVIDENCE}:
            (directory / FILE).unlink()
            directory.rmdir()
