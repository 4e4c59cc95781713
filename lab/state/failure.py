"""Errors of files and of the database, as messages with hints."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lab._errors import PreflightError, StateError, UsageError, os_words

ELSEWHERE = "or point HYBRIDLAB_STATE at another directory"
NO_ROOM = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}
_FORBIDDEN = {
    errno.EACCES: "permission denied",
    errno.EPERM: "not permitted",
    errno.EROFS: "the file system is read-only",
}


_USED_UP = {
    errno.EMFILE: (
        "this process may not open more files",
        "raise the limit with 'ulimit -n 4096'",
    ),
    errno.ENFILE: (
        "this machine has as many open files as its kernel allows",
        "end programs, or raise the limit with 'sysctl fs.file-max'",
    ),
    errno.EAGAIN: (
        "no more processes or threads can be started",
        "end some, or raise the limit ('ulimit -u', or 'pids.max' of the control group)",
    ),
    errno.ENOMEM: (
        "the memory is used up",
        "end programs, or raise the limit ('ulimit -v', or 'memory.max' of the control group)",
    ),
    errno.EFBIG: (
        "the limit of the size of a file is reached",
        "raise it with 'ulimit -f unlimited'",
    ),
}
"""What happened, and a hint, by the error number of a limited resource."""


class FullError(StateError):
    """The disk is full; files on it can still be read and removed."""


def file_failure(action: str, error: OSError, elsewhere: str = ELSEWHERE) -> StateError:
    """The error for a file that could not be created, read or written.

    ``elsewhere``: an alternative for the hint, ``"or ..."``; empty for a file that the user has
    named.
    """
    number = error.errno or 0
    where = f"'{error.filename}'" if error.filename else "the file"
    if number in NO_ROOM:
        return FullError(
            action,
            f"{where}: {NO_ROOM[number]}",
            _join_hints("free some space and repeat", elsewhere),
        )
    if number in _USED_UP:
        words, hint = _USED_UP[number]
        return StateError(action, f"{where}: {words}", _join_hints(f"{hint} and repeat", elsewhere))
    if number in _FORBIDDEN:
        return StateError(
            action,
            f"{where}: {_FORBIDDEN[number]}",
            _join_hints("check that you may read and write it", elsewhere),
        )
    return StateError(
        action, f"{where}: {os_words(error)}", _join_hints("fix that and repeat", elsewhere)
    )


def exhausted(error: BaseException, action: str) -> PreflightError | None:
    """The error to report if a resource of the machine, or its limit, is used up; None otherwise.

    ``error``: an exception that nothing expected. ``action``: what was being done.
    """
    cause: BaseException | None = error
    while cause is not None:
        number = resource(cause)
        if isinstance(cause, OSError) and number in NO_ROOM:
            return file_failure(action, cause, elsewhere="")
        if number in _USED_UP:
            return PreflightError(action, *_USED_UP[number])
        cause = cause.__cause__
    return None


def resource(error: BaseException) -> int:
    """The error number of the resource that was used up; 0 if it was none."""
    if isinstance(error, OSError):
        return error.errno or 0
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, RuntimeError):  # Python's error if a thread cannot be started
        raised = error.__traceback__
        while raised is not None and raised.tb_next is not None:
            raised = raised.tb_next
        if raised is not None and raised.tb_frame.f_code is threading.Thread.start.__code__:
            return errno.EAGAIN
    return 0


def is_of_content(error: OSError) -> bool:
    """Whether an error of reading an archive is of its content, and not of the disk it is on.

    Python's decompressors raise OSError without a number, and a seek to a position that damaged
    content names fails with EINVAL.
    """
    return error.errno in {None, errno.EINVAL}


def _join_hints(hint: str, elsewhere: str) -> str:
    return f"{hint}, {elsewhere}" if elsewhere else hint


def damaged(action: str, path: Path, words: str) -> StateError:
    """The error for a state file whose contents this program did not write."""
    return StateError(
        action,
        f"the state file '{path}' is damaged ({words})",
        f"move it aside with 'mv {path} {path}.damaged' and its '{path.name}-wal' with it; "
        "labs are still found by their marks: 'lab list', 'lab down NAME', 'lab gc'",
    )


def database_failure(action: str, path: Path, code: str, words: str, *, full: bool) -> StateError:
    """The error for the state file.

    ``action``: what was being done. ``path``: the state file. ``code``: SQLite's name of the error,
    ``"SQLITE_FULL"`` or an extended one. ``words``: SQLite's message. ``full``: whether its file
    system has no space left: outside the database file itself, SQLite reports that as an I/O error.
    """
    where = f"the state file '{path}'"
    if code == "SQLITE_FULL" or (full and code.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN"))):
        happened = f"{where} cannot grow: the disk is full"
        return FullError(action, happened, f"free some space and repeat, {ELSEWHERE}")
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        happened = f"{where} is held by another process ({words})"
        return StateError(action, happened, f"find out which with 'fuser -v {path}', then repeat")
    if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged(action, path, words)
    if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        happened = f"{where} cannot be written ({words})"
        return StateError(action, happened, f"make its directory writable for you, {ELSEWHERE}")
    return StateError(action, f"{where} cannot be used ({words})", f"repeat, {ELSEWHERE}")


@contextmanager
def guarded_files(action: str, elsewhere: str = ELSEWHERE) -> Iterator[None]:
    """Turn an OSError in the block into a StateError that says what was being done."""
    try:
        yield
    except OSError as error:
        raise file_failure(action, error, elsewhere) from error


@contextmanager
def guarded_database(action: str, path: Path) -> Iterator[None]:
    """Turn errors of SQLite and the file system into a StateError.

    A name that is not UTF-8, which SQLite does not accept, becomes a UsageError. Violated
    constraints and wrong SQL are bugs, and are not converted.
    """
    import sqlite3  # noqa: PLC0415  'lab --help' must not pay for it

    try:
        with guarded_files(action):
            yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise
    except UnicodeEncodeError as error:
        raise UsageError(
            action, f"the name '{error.object}' is not UTF-8", "give it another name"
        ) from error
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorname", "")
        if code.startswith("SQLITE_CANTOPEN"):
            with guarded_files(action):
                _require_files(path.parent)
        raise database_failure(action, path, code, str(error), full=_is_full(path)) from error


def _require_files(directory: Path) -> None:
    """Check that four files can be opened, because SQLite does not report when they cannot.

    It opens the database, its directory, its write-ahead log and its shared memory. Raises OSError.
    """
    with ExitStack() as opened:
        for _ in range(4):
            opened.callback(os.close, os.open(directory, os.O_RDONLY | os.O_CLOEXEC))


def _is_full(path: Path) -> bool:
    try:
        return os.statvfs(path.parent).f_bavail == 0
    except OSError:
        return False
