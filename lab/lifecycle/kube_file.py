"""The user's own kubeconfig: a lab's context put into it and taken out, all else untouched."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError, UsageError
from lab.cluster import kubeconfig
from lab.cluster.kubeconfig import Access, KubeconfigError
from lab.state.failure import guarded_files
from lab.state.files import write_private

RECORD = "kubeconfig"
"""File of the lab's directory: where its context was merged into, one path a line."""
_LOCK_SECONDS = 5.0


def user_file(environment: Mapping[str, str]) -> Path:
    """The kubeconfig that ``kubectl`` writes to: the first of KUBECONFIG, or its default."""
    for part in environment.get("KUBECONFIG", "").split(os.pathsep):
        if part:
            return Path(part)
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
    target = path.resolve()
    if str(target) not in noted:
        write_private(record, "".join(f"{one}\n" for one in (*noted, str(target))))
    _change(target, doing, lambda content: kubeconfig.merged(content, access))


def forget(directory: Path, say: Callable[[str], None]) -> None:
    """Take a lab's context out of every file that it was merged into.

    What cannot be changed is said, and keeps no lab from going.
    """
    name = kubeconfig.context(directory.name)
    for text in _noted(directory / RECORD):
        path = Path(text)
        doing = f"taking the context '{name}' out of '{path}'"
        try:
            if path.exists():
                _change(path, doing, lambda content: kubeconfig.without(content, name))
        except LabError as error:
            say(str(error))


def _noted(record: Path) -> tuple[str, ...]:
    with guarded_files(f"reading '{record}'"):
        return tuple(record.read_text(encoding="utf-8").splitlines()) if record.exists() else ()


def _change(path: Path, doing: str, change: Callable[[str], str]) -> None:
    with guarded_files(doing):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(path, doing), guarded_files(doing):
        content = path.read_text(encoding="utf-8") if path.exists() else ""
        try:
            changed = change(content)
        except KubeconfigError as error:
            cure = "mend it, or use 'lab kubeconfig LAB --output FILE'"
            raise UsageError(doing, f"the file is no kubeconfig: {error}", cure) from error
        if changed != content:
            write_private(path, changed)


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

    with guarded_files(doing):
        try:
            Deadline(_LOCK_SECONDS).wait(doing, take, every=0.1)
        except DeadlineError as error:
            cure = f"if no kubectl is changing it, remove '{lock}'"
            raise DeadlineError(doing, f"'{lock}' is there", cure) from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
