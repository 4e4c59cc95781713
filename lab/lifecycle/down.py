"""Take a lab down: by the journal, by the marks of its objects, or by both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab._errors import LabError, UsageError
from lab.lifecycle.interruption import terminable
from lab.lifecycle.marks import all_marks, same_directory
from lab.lifecycle.names import check_name, unknown_lab
from lab.lifecycle.providers import choose
from lab.lifecycle.removal import (
    RemovalTarget,
    UnwrittenError,
    destroy,
    remove_files,
    take_away,
    targets,
    unwritten,
)
from lab.providers.provider import Mark, Provider
from lab.state.directory import lab_directory
from lab.state.failure import FullError
from lab.state.lock import WAIT_SECONDS, lab_lock
from lab.state.store import Store


@dataclass(frozen=True, slots=True)
class DownRequest:
    """A lab that is to go."""

    name: str
    command: str
    """What other commands say when they wait for this one: ``"lab down overlay"``."""
    wait: float = WAIT_SECONDS
    """Seconds to wait for another command on the same lab; 0 refuses at once."""


@dataclass(frozen=True, slots=True)
class DownResult:
    """What ``down`` has done."""

    lab: str
    changed: bool
    removed: tuple[str, ...]
    """What was there and is gone, in words."""
    seconds: float


def down(
    request: DownRequest,
    providers: Mapping[str, Provider],
    store: Store,
    say: Callable[[str], None],
) -> DownResult:
    """Take the lab away: every object with its marks, its files, all but the reports of runs.

    A lab that is down already is fine, and said. Nothing that belongs to another state
    directory is touched.

    Raises
    ------
    UsageError
        When there never was such a lab; lists those there are, and names the nearest.
    BrokenError
        When another command holds the lab, or a provider cannot remove something.
    UnwrittenError
        When all is gone, but the journal could not be told.
    StateError
        When the journal cannot be read or a file not removed.

    """
    begun = time.monotonic()
    check_name(request.name)
    _known(request.name, providers, store)
    directory = store.lab_directory(request.name)
    with terminable(), lab_lock(directory, request.command, wait=request.wait, say=say):
        marks = _own(directory, providers)
        row = store.lab(request.name)
        wanted = targets(row, _tokens(marks))
        if not wanted:
            remove_files(directory)
            say(f"the lab '{request.name}' is down already: nothing to do")
            return DownResult(request.name, False, (), time.monotonic() - begun)
        removed = _taken_away(request.name, wanted, providers, store, say)
    return DownResult(request.name, True, removed, time.monotonic() - begun)


def down_unwritten(
    request: DownRequest,
    providers: Mapping[str, Provider],
    state: Path,
    error: FullError,
    say: Callable[[str], None],
) -> UnwrittenError:
    """Take the lab away by its marks alone, where a full disk keeps the journal shut.

    Returns
    -------
    UnwrittenError
        What is left to be told.

    Raises
    ------
    FullError
        ``error`` itself, when nothing carries the lab's marks.
    BrokenError
        As :func:`down` does.

    """
    check_name(request.name)
    directory = lab_directory(state, request.name)
    with terminable(), lab_lock(directory, request.command, wait=request.wait, say=say):
        marks = _own(directory, providers)
        if not marks:
            raise error
        removed = destroy(request.name, directory, targets(None, _tokens(marks)), providers)
        remove_files(directory)
    return unwritten(request.name, removed, error)


def _taken_away(
    name: str,
    wanted: tuple[RemovalTarget, ...],
    providers: Mapping[str, Provider],
    store: Store,
    say: Callable[[str], None],
) -> tuple[str, ...]:
    for target in wanted:
        choose(providers, target.provider)
    try:
        return take_away(name, wanted, providers, store)
    except UnwrittenError:
        raise
    except (LabError, KeyboardInterrupt):
        say(f"the lab '{name}' is only partly down: 'lab down {name}' again takes away the rest")
        raise


def _known(name: str, providers: Mapping[str, Provider], store: Store) -> None:
    """Refuse a name that neither the journal nor any mark knows."""
    directory = store.lab_directory(name)
    if store.lab(name) is not None or directory.is_dir():
        return
    marks = all_marks(providers)
    if any(same_directory(mark.directory, directory) for _, mark in marks):
        return
    elsewhere = [mark for _, mark in marks if mark.lab == name]
    doing = f"taking down lab '{name}'"
    if elsewhere:
        raise _not_ours(doing, elsewhere[0])
    ours = [mark.lab for _, mark in marks if _is_under(mark, store)]
    raise unknown_lab(doing, name, [*(row.name for row in store.labs()), *ours])


def _not_ours(doing: str, mark: Mark) -> UsageError:
    state = mark.directory.parent.parent
    return UsageError(
        doing,
        f"{mark.object} is of a lab of that name, but in the state directory '{state}'",
        f"HYBRIDLAB_STATE={state} lab down {mark.lab}, or 'lab gc' if that directory is no more",
    )


def _tokens(marks: Iterable[tuple[str, Mark]]) -> Iterator[tuple[str, str]]:
    """Provider and token of each mark."""
    return ((provider, mark.token) for provider, mark in marks)


def _own(directory: Path, providers: Mapping[str, Provider]) -> tuple[tuple[str, Mark], ...]:
    return tuple(
        (provider, mark)
        for provider, mark in all_marks(providers)
        if same_directory(mark.directory, directory)
    )


def _is_under(mark: Mark, store: Store) -> bool:
    return same_directory(mark.directory, store.lab_directory(mark.lab))
