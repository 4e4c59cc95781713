"""Taking a lab away, once it is locked: objects first, files next, the journal last."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab.providers.provider import LabHandle, Provider
from lab.state.failure import guarded_files
from lab.state.lock import FILE, RUNS
from lab.state.rows import LabRow
from lab.state.store import Store


@dataclass(frozen=True, slots=True)
class Target:
    """What carries one token, on one provider."""

    provider: str
    token: str


def targets(row: LabRow | None, marks: Iterable[tuple[str, str]]) -> tuple[Target, ...]:
    """What is to be destroyed: what the journal says, and every other (provider, token) found."""
    found = {Target(provider, token) for provider, token in marks}
    if row is not None and row.status != "down":
        found.add(Target(row.provider, row.token))
    return tuple(sorted(found, key=lambda target: (target.provider, target.token)))


def take_away(
    name: str, wanted: Iterable[Target], providers: Mapping[str, Provider], store: Store
) -> tuple[str, ...]:
    """Destroy those objects, then the lab's files, then say in the journal that it is down.

    The caller holds the lab's lock. Killed anywhere in between and called again, it goes on:
    the journal forgets the steps before the first object goes, and the lab after the last.

    Returns
    -------
    tuple
        What was removed, in words.

    """
    directory = store.lab_directory(name)
    with store.change(f"writing down that the lab '{name}' goes"):
        store.set_status(name, "going", "it is being taken down")
        store.keep_steps(name, ())
    removed: list[str] = []
    for target in wanted:
        handle = LabHandle(name, directory, target.token)
        removed.extend(providers[target.provider].destroy(handle))
    remove_files(directory)
    with store.change(f"writing down that the lab '{name}' is down"):
        store.gone(name)
        store.set_status(name, "down")
    return tuple(removed)


def remove_files(directory: Path) -> None:
    """Remove all of the lab's directory but the reports of its runs and the lock.

    Raises
    ------
    StateError
        When something cannot be removed.

    """
    with guarded_files(f"removing the files of the lab '{directory.name}'"):
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            if path.name in {FILE, RUNS}:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        with suppress(OSError):  # there are reports in it
            (directory / RUNS).rmdir()
