"""Take a lab down, found by the journal, by the marks of its objects, or by both."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab._errors import LabError, StateError, UsageError
from lab._log import say
from lab.lifecycle.interruption import terminable
from lab.lifecycle.names import check_name, is_attached, removal, unknown_lab
from lab.lifecycle.ownership import all_marks, same_directory
from lab.lifecycle.providers import choose
from lab.providers.provider import LabHandle, Mark, Provider
from lab.state.directory import lab_directory, open_unlinked
from lab.state.failure import FullError, guarded_files
from lab.state.files import remove_tree
from lab.state.lock import EVIDENCE, FILE, RUNS, WAIT_SECONDS, lab_lock
from lab.state.rows import LabRow
from lab.state.store import Store


@dataclass(frozen=True, slots=True)
class DownResult:
    """The result of ``down``."""

    lab: str
    changed: bool
    removed: tuple[str, ...]
    seconds: float


def down(
    name: str,
    providers: Mapping[str, Provider],
    store: Store,
    say: Callable[[str], None],
    *,
    wait: float = WAIT_SECONDS,
) -> DownResult:
    """Remove the lab: every object with its marks, and its files, except reports of runs.

    If the lab is already down, a message says so. Nothing that belongs to another state directory
    is touched. ``wait``: seconds to wait for another command on the same lab; 0 refuses at once.

    Raises UsageError, with the nearest name and the existing labs, when there never was such a lab.
    Raises BrokenError when another command holds the lab, or a provider cannot remove something.
    Raises UnwrittenError when everything is removed, but the journal could not be written. Raises
    StateError when the journal cannot be read or a file cannot be removed.
    """
    begun = time.monotonic()
    check_name(name)
    _require_known(name, providers, store)
    directory = store.lab_directory(name)
    with terminable(), lab_lock(directory, f"lab down {name}", wait=wait, say=say):
        marks = _marks_in(directory, providers)
        row = store.lab(name)
        wanted = targets(row, marks)
        if not wanted:
            remove_files(directory)
            say(f"lab '{name}' is already down: nothing to do")
            return DownResult(name, False, (), time.monotonic() - begun)
        for provider, _ in wanted:
            choose(providers, provider)
        try:
            removed = take_away(name, wanted, providers, store)
        except UnwrittenError:
            raise
        except (LabError, KeyboardInterrupt):
            command = removal(row) if row else f"lab down {name}"
            say(f"lab '{name}' is only partly down: run '{command}' again for the rest")
            raise
    return DownResult(name, True, removed, time.monotonic() - begun)


def forget(name: str, store: Store, say: Callable[[str], None]) -> DownResult:
    """Remove the lab's files and its entry in the journal; its objects stay where they are.

    Raises as :func:`down` does.
    """
    begun = time.monotonic()
    check_name(name)
    with terminable(), lab_lock(store.lab_directory(name), f"lab detach {name}", say=say):
        row = store.lab(name)
        if row is None:
            raise unknown_lab(f"forgetting lab '{name}'", name, [row.name for row in store.labs()])
        take_away(name, (), {}, store)
    return DownResult(name, row.status != "down", (), time.monotonic() - begun)


def down_unwritten(
    name: str,
    providers: Mapping[str, Provider],
    state: Path,
    error: FullError,
    say: Callable[[str], None],
) -> UnwrittenError:
    """Remove the lab by its marks alone, when a full disk prevents opening the journal.

    Returns the error to raise. Raises ``error`` itself when no object has the lab's marks, and
    BrokenError as :func:`down` does.
    """
    check_name(name)
    directory = lab_directory(state, name)
    with terminable(), lab_lock(directory, f"lab down {name}", say=say):
        marks = _marks_in(directory, providers)
        if not marks:
            raise error
        removed = destroy(name, directory, targets(None, marks), providers)
        remove_files(directory)
    return make_unwritten_error(name, removed, error)


def _require_known(name: str, providers: Mapping[str, Provider], store: Store) -> None:
    """Refuse a name that is neither in the journal nor in any mark."""
    directory = store.lab_directory(name)
    if store.lab(name) is not None or directory.is_dir():
        return
    marks = all_marks(providers)
    if any(same_directory(mark.directory, directory) for _, mark in marks):
        return
    elsewhere = [mark for _, mark in marks if mark.lab == name]
    action = f"taking down lab '{name}'"
    if elsewhere:
        mark, state = elsewhere[0], elsewhere[0].directory.parent.parent
        raise UsageError(
            action,
            f"{mark.object} belongs to a lab of that name in the state directory '{state}'",
            f"HYBRIDLAB_STATE={state} lab down {name}, or 'lab gc' if that directory is gone",
        )
    ours = [
        mark.lab
        for _, mark in marks
        if same_directory(mark.directory, store.lab_directory(mark.lab))
    ]
    raise unknown_lab(action, name, [*(row.name for row in store.labs()), *ours])


def _marks_in(directory: Path, providers: Mapping[str, Provider]) -> tuple[tuple[str, Mark], ...]:
    return tuple(
        (provider, mark)
        for provider, mark in all_marks(providers)
        if same_directory(mark.directory, directory)
    )


_MERGED = "kubeconfig"
"""File in a lab's directory that an earlier version merged into the user's kubeconfig."""


RemovalTarget = tuple[str, str]
"""A provider, and the token that objects on it carry."""


def targets(row: LabRow | None, marks: Iterable[tuple[str, Mark]]) -> list[RemovalTarget]:
    """What to destroy: what the journal has, and everything that was found by its mark."""
    pairs = {(provider, mark.token) for provider, mark in marks}
    if row is not None and row.status != "down":
        pairs.add((row.provider, row.token))
    return sorted(pairs)


def take_away(
    name: str, wanted: Iterable[RemovalTarget], providers: Mapping[str, Provider], store: Store
) -> tuple[str, ...]:
    """Destroy the objects, then the lab's files, then record in the journal that it is down.

    The caller holds the lab's lock. If killed at any point, a second call continues: the steps
    leave the journal before the first object is removed, and the lab after the last. A full disk
    that prevents journal writes does not stop the removal.

    Returns descriptions of what was removed.

    Raises UnwrittenError when everything is removed, but the journal could not be written.
    """
    directory = store.lab_directory(name)
    row = store.lab(name)
    if row is not None and is_attached(row):  # its provider needs the record
        from lab.lifecycle.compilation import write_scenario  # noqa: PLC0415  slow to import

        with suppress(FullError):
            write_scenario(directory, row.scenario_text)
    with suppress(FullError), store.change(f"recording that lab '{name}' is being taken down"):
        store.set_status(name, "going", "it is being taken down")
        store.keep_steps(name, ())
    removed = destroy(name, directory, wanted, providers)
    remove_files(directory)
    try:
        with store.change(f"recording that lab '{name}' is down"):
            store.keep_steps(name, ())
            store.mark_resources_gone(name)
            for fault in store.faults(name):
                store.forget_fault(name, fault.number)
            store.set_status(name, "down")
    except FullError as error:
        raise make_unwritten_error(name, removed, error) from error
    return removed


def destroy(
    name: str, directory: Path, wanted: Iterable[RemovalTarget], providers: Mapping[str, Provider]
) -> tuple[str, ...]:
    """Destroy every object that carries one of the tokens; return descriptions of them."""
    return tuple(
        removed
        for provider, token in wanted
        for removed in providers[provider].destroy(LabHandle(name, directory, token))
    )


class UnwrittenError(StateError):
    """The lab is removed, but the journal could not be written."""


def make_unwritten_error(name: str, removed: Iterable[str], error: FullError) -> UnwrittenError:
    """The error for a lab that is removed although the journal could not be written."""
    gone = ", ".join(removed) or "nothing of it existed"
    return UnwrittenError(
        f"taking down lab '{name}'",
        f"it is removed ({gone}), but the journal could not be written: {error.happened}",
        f"free some space, then run 'lab down {name}' again to record it",
    )


def remove_files(directory: Path) -> None:
    """Remove the contents of the lab's directory, except reports of runs, evidence and the lock.

    No link is followed, so nothing outside the lab's directory is removed, even if the directory
    changes meanwhile.

    Raises StateError when something cannot be removed, or the lab's directory is a link.
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
                with suppress(OSError):  # not empty
                    os.rmdir(kept, dir_fd=opened)
        finally:
            os.close(opened)


def _remove(name: str, directory: int) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            remove_tree(name, directory)
        else:
            os.unlink(name, dir_fd=directory)
