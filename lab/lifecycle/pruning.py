"""Runs and nights that are kept no longer: of each lab's runs and of all nights the oldest.

A night in another directory than the state directory's own (``lab nightly --output``) is its
owner's to keep or remove. The newest of each kind always stays, so that one under way does.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from lab._log import quantity
from lab.lifecycle.night_files import runs_of, summary_in
from lab.lifecycle.session import REPORT, RESULT
from lab.state.directory import lab_directory, nights_directory
from lab.state.lock import RUNS
from lab.state.store import Store

Run = tuple[str, str]
"""A lab and the id of one of its runs."""


@dataclass(frozen=True, slots=True)
class KeptNight:
    """A night in the state directory."""

    name: str
    at: float
    """When it began, in seconds since 1970."""
    runs: frozenset[Run] = frozenset()
    """The runs that it refers to."""


@dataclass(frozen=True, slots=True)
class Surplus:
    """What is to go, or is gone, and what could not be removed, in words."""

    runs: Mapping[str, tuple[str, ...]]
    """By lab, oldest first."""
    nights: tuple[str, ...]
    failed: tuple[str, ...] = field(default=())

    def words(self) -> Iterator[str]:
        """How much of each, where there is any."""
        if self.runs:
            yield quantity(sum(map(len, self.runs.values())), "run")
        if self.nights:
            yield quantity(len(self.nights), "night")


def surplus(
    runs: Mapping[str, Sequence[str]], nights: Iterable[KeptNight], keep_runs: int, keep_nights: int
) -> Surplus:
    """What is more than is kept; a run that a kept night refers to is not.

    Parameters
    ----------
    runs
        Ids of every lab's runs, oldest first.
    nights
        All of them, in any order.
    keep_runs, keep_nights
        How many stay, of each lab and in all; at least 1.

    """
    by_age = sorted(nights, key=lambda night: (night.at, night.name))
    needed = {run for night in by_age[-keep_nights:] for run in night.runs}
    old = {
        lab: tuple(run for run in found[:-keep_runs] if (lab, run) not in needed)
        for lab, found in sorted(runs.items())
    }
    return Surplus(
        runs={lab: found for lab, found in old.items() if found},
        nights=tuple(night.name for night in by_age[:-keep_nights]),
    )


def prune(
    store: Store, keep_runs: int, keep_nights: int, say: Callable[[str], None], *, yes: bool
) -> Surplus:
    """Find what is kept no longer, say it, and with ``yes`` remove it.

    Files and what the journal has of the runs go; no link is followed.

    Raises
    ------
    StateError
        When the journal cannot be read or written.

    """
    labs = {*store.labs_with_runs(), *_directories(store.directory / "labs")}
    kept = {lab: _runs(store, lab) for lab in labs}
    shelf = nights_directory(store.directory)
    found = surplus(kept, _nights(shelf), keep_runs, keep_nights)
    verb = "removing" if yes else "would remove"
    failed: list[str] = []
    gone = dict(found.runs)
    nights = found.nights
    for lab, old in found.runs.items():
        say(f"{verb} {quantity(len(old), 'run')} of lab '{lab}'")
        if yes:
            stay = _remove_directories(store.directory, ("labs", lab, RUNS), old, failed)
            store.forget_runs(run for run in old if run not in stay)
            gone[lab] = tuple(run for run in old if run not in stay)
    if found.nights:
        say(f"{verb} {quantity(len(found.nights), 'night')}: {', '.join(found.nights)}")
        if yes:
            stay = _remove_directories(store.directory, (shelf.name,), nights, failed)
            nights = tuple(night for night in nights if night not in stay)
    return Surplus({lab: old for lab, old in gone.items() if old}, nights, tuple(failed))


def _runs(store: Store, lab: str) -> list[str]:
    """Ids of the lab's runs, oldest first: those the journal has lost before those it has."""
    written = [run.id for run in store.runs(lab)]
    shelf = lab_directory(store.directory, lab) / RUNS
    lost = [
        name
        for name in _directories(shelf)
        if name not in written and any((shelf / name / file).is_file() for file in (RESULT, REPORT))
    ]
    return [*lost, *written]


def _nights(shelf: Path) -> Iterator[KeptNight]:
    for name in _directories(shelf):
        directory = shelf / name
        summary = summary_in(directory)
        if summary is not None:
            at = _seconds(summary.get("started"))
            yield KeptNight(name, _changed(directory) if at is None else at, runs_of(summary))
        elif any(directory.glob("*/*.log")):  # one that was killed, or is under way
            yield KeptNight(name, _changed(directory))


def _seconds(moment: object) -> float | None:
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except ValueError:
        return None


def _changed(directory: Path) -> float:
    try:
        return directory.stat().st_mtime
    except OSError:  # it has just gone
        return 0.0


def _directories(parent: Path) -> list[str]:
    """Names of the directories in ``parent``, links left out; none where it cannot be read."""
    try:
        with os.scandir(parent) as found:
            return sorted(entry.name for entry in found if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _remove_directories(
    state: Path, parts: tuple[str, ...], names: Iterable[str], failed: list[str]
) -> set[str]:
    """Remove those directories of ``state/parts``; the names of those that are still there."""
    names = tuple(names)
    stay: set[str] = set()
    try:
        with _opened(state, parts) as parent:
            there = frozenset(os.listdir(parent))  # noqa: PTH208  of a descriptor
            for name in names:
                if name not in there:
                    continue
                try:
                    shutil.rmtree(name, dir_fd=parent)  # itself safe against links
                except OSError as error:
                    stay.add(name)
                    failed.append(f"'{'/'.join((*parts, name))}': {error.strerror}")
    except FileNotFoundError:
        return stay
    except OSError as error:
        failed.append(f"'{state.joinpath(*parts)}': {error.strerror}")
        stay.update(names)
    return stay


@contextmanager
def _opened(state: Path, parts: Iterable[str]) -> Iterator[int]:
    """A descriptor of a directory below ``state``, with no link on the way from there."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(state, flags)
    try:
        for part in parts:
            if part != Path(part).name:
                raise OSError(errno.EINVAL, f"'{part}' is not the name of a directory")
            inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)
