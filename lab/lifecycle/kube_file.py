"""The user's own kubeconfig: a lab's context put into it and taken out, all else untouched."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError, StateError, UsageError
from lab.cluster import kubeconfig
from lab.cluster.kubeconfig import Access, KubeconfigError
from lab.state.failure import guarded_files
from lab.state.files import write_private

RECORD = "kubeconfig"
"""File of the lab's directory: where its context was merged into, a JSON list of paths."""
_LOCK_SECONDS = 5.0
_USERS = ""
"""There is no other place for a file that is the user's own."""


def user_file(environment: Mapping[str, str]) -> Path:
    """The kubeconfig that ``kubectl`` makes new contexts in.

    That is the first of KUBECONFIG that is there, else the last; without one, its default.
    """
    parts = [Path(one) for one in environment.get("KUBECONFIG", "").split(os.pathsep) if one]
    if parts:
        return next((one for one in parts if one.exists()), parts[-1])
    return Path(environment.get("HOME") or Path.home()) / ".kube" / "config"


def merge(directory: Path, access: Access, path: Path) -> None:
    """Put a lab's context into the user's file, and note that for when the lab goes.

    Parameters
    ----------
    directory
        The lab's own.

    Raises
    ------
    UsageError
        When the file is no kubeconfig; it stays as it is.
    StateError
        When it cannot be written; it stays as it is.

    """
    doing = f"merging the context '{access.name}' into '{path}'"
    record = directory / RECORD
    noted = _noted(record)
    target = os.path.realpath(path)
    if target not in noted:
        write_private(record, json.dumps([*noted, target]))
    _change(Path(target), doing, lambda content: kubeconfig.merged(content, access))


def write(access: Access, path: Path) -> None:
    """Write a lab's kubeconfig to a file of its own; into a pipe or a device as it is.

    Raises
    ------
    UsageError
        When the file holds something else than an earlier export; it stays as it is.
    StateError
        When it cannot be written; it stays as it is.

    """
    doing = f"writing the context '{access.name}' to '{path}'"
    target = Path(os.path.realpath(path))
    with guarded_files(doing, _USERS):
        if path.exists() and not (path.is_file() or path.is_dir()):
            path.write_text(kubeconfig.text(access), encoding="utf-8")
            return
        before = target.stat() if target.exists() else None
    content = _content(target, doing)
    if content.strip() and not kubeconfig.is_export(content):
        raise UsageError(
            doing,
            "there is something else in it",
            f"give another file, or put it in beside that: KUBECONFIG='{path}' lab kubeconfig "
            f"{access.name.removeprefix(kubeconfig.PREFIX)} --merge",
        )
    write_private(target, kubeconfig.text(access), like=before, elsewhere=_USERS)


def forget(directory: Path, say: Callable[[str], None]) -> None:
    """Take a lab's context out of every file that it was merged into.

    What cannot be changed is said, and keeps no lab from going.
    """
    name = kubeconfig.context(directory.name)
    try:
        noted = _noted(directory / RECORD)
    except LabError as error:
        say(str(error))
        return
    for text in noted:
        path = Path(text)
        doing = f"taking the context '{name}' out of '{path}'"
        try:
            with guarded_files(doing, _USERS):
                there = path.exists()
            if there:
                _change(path, doing, lambda content: kubeconfig.without(content, name))
        except LabError as error:
            say(str(error))


def _noted(record: Path) -> tuple[str, ...]:
    doing = f"reading '{record}'"
    with guarded_files(doing):
        content = record.read_bytes() if record.exists() else b"[]"
    try:
        found = json.loads(content)
    except ValueError as error:
        raise StateError(doing, f"it is no JSON ({error})", f"remove '{record}'") from error
    return tuple(str(one) for one in found)


def _change(path: Path, doing: str, change: Callable[[str], str]) -> None:
    with guarded_files(doing, _USERS):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _content(path, doing)  # a file that cannot be is said without waiting for others
    with _locked(path, doing):
        content = _content(path, doing)
        try:
            changed = change(content)
        except KubeconfigError as error:
            raise _unfit(doing, str(error)) from error
        if changed != content:
            with guarded_files(doing, _USERS):
                before = path.stat() if path.exists() else None
            write_private(path, changed, like=before, elsewhere=_USERS)


def _content(path: Path, doing: str) -> str:
    """The text of a user's file; empty where there is none.

    Raises
    ------
    UsageError
        When it is no file, or no text.
    StateError
        When it cannot be read, or may not be written.

    """
    with guarded_files(doing, _USERS):
        if path.is_symlink():  # a loop: all others have been followed
            raise _unfit(doing, "it is a link that leads to itself")
        if not path.exists():
            return ""
        if not path.is_file():
            raise _unfit(doing, f"it is {'a directory' if path.is_dir() else 'no regular file'}")
        with path.open("r+", encoding="utf-8") as file:
            try:
                return file.read()
            except UnicodeDecodeError as error:
                raise _unfit(doing, "it is no text in UTF-8") from error


def _unfit(doing: str, why: str) -> UsageError:
    cure = "mend it, or use 'lab kubeconfig LAB --output FILE'"
    return UsageError(doing, f"the file is no kubeconfig: {why}", cure)


@contextmanager
def _locked(path: Path, doing: str) -> Iterator[None]:
    """Hold the file as kubectl does: by a file beside it that only one can make."""
    lock = path.with_name(f"{path.name}.lock")

    def take() -> bool:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True

    with guarded_files(doing, _USERS):
        try:
            Deadline(_LOCK_SECONDS).wait(doing, take, every=0.1)
        except DeadlineError as error:
            cure = f"if no kubectl is changing it, remove '{lock}'"
            raise DeadlineError(doing, f"'{lock}' is there", cure) from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
