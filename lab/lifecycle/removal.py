"""Taking a lab away, once it is locked: objects first, files next, the journal last."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab._errors import StateError
from lab._log import say
from lab.providers.provider import LabHandle, Provider
from lab.state.directory import open_unlinked
from lab.state.failure import FullError, guarded_files
from lab.state.lock import EVIDENCE, FILE, RUNS
from lab.state.rows import LabRow
from lab.state.store import Store

_MERGED = "kubeconfig"
"""File of the directory of a lab whose context an earlier version merged into the user's file."""


@dataclass(frozen=True, slots=True)
class RemovalTarget:
    """What carries one token, on one provider."""

    provider: str
    token: str


def targets(row: LabRow | None, marks: Iterable[tuple[str, str]]) -> tuple[RemovalTarget, ...]:
    """What is to be destroyed: what the journal says, and every other (provider, token) found."""
    found = {RemovalTarget(provider, token) for provider, token in marks}
    if row is not None and row.status != "down":
        found.add(RemovalTarget(row.provider, row.token))
    return tuple(sorted(found, key=lambda target: (target.provider, target.token)))


def take_away(
    name: str, wanted: Iterable[RemovalTarget], providers: Mapping[str, Provider], store: Store
) -> tuple[str, ...]:
    """Destroy those objects, then the lab's files, then say in the journal that it is down.

    The caller holds the lab's lock. Killed anywhere in between and called again, it goes on:
    the journal forgets the steps before the first object goes, and the lab after the last. A
    journal that takes nothing more (a full disk) keeps no object: what is not there any more is
    found not to be there.

    Returns
    -------
    tuple
        What was removed, in words.

    Raises
    ------
    UnwrittenError
        When all is gone, and the journal could not be told.

    """
    directory = store.lab_directory(name)
    with suppress(FullError), store.change(f"writing down that the lab '{name}' goes"):
        store.set_status(name, "going", "it is being taken down")
        store.keep_steps(name, ())
    removed = destroy(name, directory, wanted, providers)
    remove_files(directory)
    try:
        with store.change(f"writing down that the lab '{name}' is down"):
            store.keep_steps(name, ())
            store.gone(name)
            store.set_status(name, "down")
    except FullError as error:
        raise unwritten(name, removed, error) from error
    return removed


def destroy(
    name: str, directory: Path, wanted: Iterable[RemovalTarget], providers: Mapping[str, Provider]
) -> tuple[str, ...]:
    """Destroy every object that carries one of those tokens; what was removed, in words."""
    return tuple(
        removed
        for target in wanted
        for removed in providers[target.provider].destroy(LabHandle(name, directory, target.token))
    )


class UnwrittenError(StateError):
    """The lab is gone, and the journal could not be told."""


def unwritten(name: str, removed: Iterable[str], error: FullError) -> UnwrittenError:
    """The error for a lab that is gone while the journal could not be written."""
    gone = ", ".join(removed) or "nothing of it was there"
    return UnwrittenError(
        f"taking down lab '{name}'",
        f"all of it is gone ({gone}), but the journal could not be written: {error.happened}",
        f"free some space, then 'lab down {name}' again writes it down",
    )


def remove_files(directory: Path) -> None:
    """Remove all of the lab's directory but the reports of its runs, evidence, and the lock.

    No link is followed: what is removed stands in the lab's directory, whatever is put there
    meanwhile.

    Raises
    ------
    StateError
        When something cannot be removed, or the lab's directory is a link.

    """
    with guarded_files(f"removing the files of the lab '{directory.name}'"):
        try:
            opened = open_unlinked(directory)
        except FileNotFoundError:
            return
        try:
            names = set(os.listdir(opened)) - {FILE, RUNS, EVIDENCE}  # noqa: PTH208
            if _MERGED in names:
                context = f"hybridlab-{directory.name}"
                say(f"if it is still in your kubeconfig: kubectl config delete-context {context}")
            for name in sorted(names):
                _remove(name, opened)
            for kept in (RUNS, EVIDENCE):
                with suppress(OSError):  # there is something in it
                    os.rmdir(kept, dir_fd=opened)
        finally:
            os.close(opened)


def _remove(name: str, directory: int) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=directory)  # itself safe against links put in its way
        else:
            os.unlink(name, dir_fd=directory)
