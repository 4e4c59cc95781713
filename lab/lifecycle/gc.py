"""Collect what is no longer needed: orphans, labs that are too old, and old runs and nights.

Safe while a lab is being brought up: ``up`` writes its token to the journal before it creates
anything, and holds the lab's lock meanwhile. So marks are read before the journal (a token missing
from the journal then will never be added), a locked lab is left alone, and a lab's age is checked
again once its lock is held.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab._errors import BrokenError, UsageError
from lab._log import quantity
from lab.lifecycle.compilation import FILE as SCENARIO
from lab.lifecycle.down import remove_files, take_away
from lab.lifecycle.interruption import terminable
from lab.lifecycle.names import NIGHTLY, TEMPORARY, in_words, is_name, user_lock
from lab.lifecycle.night_report import FoundNight, night_in, read_stamp
from lab.lifecycle.open_lab import stored_runs
from lab.lifecycle.ownership import Home, all_marks, home, same_directory
from lab.lifecycle.providers import choose
from lab.providers.provider import LabHandle, Mark, Provider
from lab.state.directory import lab_directory, nights_directory
from lab.state.files import remove_tree
from lab.state.lock import EVIDENCE, FILE, RUNS, HeldError, holder, lab_lock
from lab.state.rows import LabRow
from lab.state.store import Store


@dataclass(frozen=True, slots=True)
class GcRequest:
    """A request of ``gc``."""

    older_than: float | None
    """Seconds since a lab was last brought up, changed or tested; None for orphans alone."""
    yes: bool
    """False for a dry run."""
    all_users: bool = False
    """True to include other users' labs, but never their files."""


@dataclass(frozen=True, slots=True)
class Collected:
    """One thing to collect."""

    lab: str
    provider: str
    """Empty for files alone."""
    token: str
    orphan: Path | None
    """The lab directory in an orphan's mark; None for a lab of the journal, and for files. It is
    not trusted: it is shown, but never opened."""
    why: str
    owner: str = ""
    """The user that owns it; empty for the caller."""
    abandoned: bool = False
    """Whether the command that made it for itself was killed: its age does not matter."""


@dataclass(frozen=True, slots=True)
class GcResult:
    """The result of ``gc``."""

    dry_run: bool
    found: tuple[Collected, ...]
    removed: tuple[str, ...]
    left: tuple[str, ...]
    """Descriptions of what was kept, with the reason."""


def collect(
    labs: Iterable[LabRow],
    marks: Iterable[tuple[str, Mark]],
    home_of: Callable[[Path], Home],
    older_than: float | None,
    now: float,
) -> tuple[Collected, ...]:
    """What to collect: old labs in the journal, and orphans by their marks.

    Other users' labs are in no journal here, so the age of their objects counts. An object whose
    lab directory is in this state directory, or is gone, is an orphan if this journal does not have
    its token.

    ``labs``: the journal's labs, none of them down. ``marks``: (provider, mark) of every object
    found. ``home_of``: classifies a lab directory. ``older_than``: seconds. ``now``: seconds since
    1970.
    """
    labs = tuple(labs)
    known = {row.token for row in labs}

    def is_unneeded(mark: Mark) -> bool:
        too_old = older_than is not None and mark.age_seconds > older_than
        if mark.owner and (mark.expired or too_old):
            return True
        return home_of(mark.directory) in {"own", "gone"}

    orphans = {
        (provider, mark.token, mark.owner): _collect_orphan(provider, mark)
        for provider, mark in marks
        if mark.token not in known and is_unneeded(mark)
    }
    old = [
        Collected(row.name, row.provider, row.token, None, f"last used {in_words(age)} ago")
        for row in labs
        if older_than is not None and (age := now - row.updated) > older_than
    ]
    return (*old, *(orphans[key] for key in sorted(orphans)))


def _collect_orphan(provider: str, mark: Mark) -> Collected:
    whose = f" of user '{mark.owner}'" if mark.owner else ""
    why = f"{mark.object}{whose} is in no journal, {in_words(mark.age_seconds)} old"
    return Collected(mark.lab, provider, mark.token, mark.directory, why, mark.owner)


def gc(
    request: GcRequest,
    providers: Mapping[str, Provider],
    store: Store,
    say: Callable[[str], None],
) -> GcResult:
    """Find what is no longer needed, and with ``yes`` remove it.

    If one cannot be removed, the others are still removed.

    Raises BrokenError at the end when something could not be removed. Raises StateError when the
    journal cannot be read or written.
    """
    items, left = _look(request, providers, store)
    removed: list[str] = []
    failed: list[str] = []
    with terminable():
        for unseen in left:
            say(unseen)
        for item in items:
            say(f"{'removing' if request.yes else 'would remove'} lab '{item.lab}': {item.why}")
            if not request.yes:
                continue
            try:
                removed += (
                    _remove(item, request, providers, store)
                    if item.provider
                    else _remove_abandoned(item.lab, store)
                )
            except HeldError as held:
                left.append(f"lab '{item.lab}' is skipped: {held.happened}")
                say(left[-1])
            except (BrokenError, UsageError) as error:
                failed.append(f"lab '{item.lab}': {error}")
    if failed:
        raise BrokenError(
            "removing what is no longer needed", "; ".join(failed), "run 'lab gc --yes' again"
        )
    return GcResult(not request.yes, items, tuple(removed), tuple(left))


def _look(
    request: GcRequest, providers: Mapping[str, Provider], store: Store
) -> tuple[tuple[Collected, ...], list[str]]:
    """What to collect, and messages about what is left alone because it may be in use."""

    def home_of(directory: Path) -> Home:
        return home(directory, store.lab_directory(directory.name))

    marks = all_marks(providers, all_users=request.all_users)  # before the journal: see the module
    labs = store.labs()
    items = (
        *_collect_abandoned(labs, store),
        *collect(labs, marks, home_of, request.older_than, store.now()),
    )
    taken = {(item.token, item.owner) for item in items}
    known = {row.name for row in labs} | {mark.lab for _, mark in marks}
    return (*items, *_find_abandoned(store.directory / "labs", known)), [
        *_of_killed_nights(store, {row.name for row in labs} - {item.lab for item in items}),
        *_list_unseen(marks, taken, home_of),
    ]


def _collect_abandoned(labs: Iterable[LabRow], store: Store) -> Iterator[Collected]:
    """Labs that a command made for itself, and that it did not live to take away."""
    for row in labs:
        if row.options.get(TEMPORARY) and holder(user_lock(store.lab_directory(row.name))) is None:
            why = "the command that made it for itself was killed"
            yield Collected(row.name, row.provider, row.token, None, why, abandoned=True)


def _of_killed_nights(store: Store, labs: Collection[str]) -> Iterator[str]:
    """Messages about labs of a night that no longer runs, and so takes none of them down."""
    if holder(nights_directory(store.directory)) is None:
        for lab in sorted(filter(lambda name: name.startswith(NIGHTLY), labs)):
            yield (
                f"lab '{lab}' is left alone: it has the name of a night's lab, and no night is "
                f"running; if it is left over from one that was killed: lab down {lab}"
            )


def _list_unseen(
    marks: Iterable[tuple[str, Mark]],
    taken: Collection[tuple[str, str]],
    home_of: Callable[[Path], Home],
) -> Iterator[str]:
    return (
        f"{mark.object} of lab '{mark.lab}' is left alone: its state directory "
        f"'{mark.directory.parent.parent}' cannot be inspected from here, so it may be in use; "
        "run 'lab gc' as its owner"
        for _, mark in marks
        if (mark.token, mark.owner) not in taken and home_of(mark.directory) == "unseen"
    )


def _find_abandoned(labs: Path, known: Collection[str]) -> Iterator[Collected]:
    """Files of labs that neither the journal nor a mark knows.

    The journal was deleted, or an ``up`` was killed when it had made nothing but the lab's lock.
    """
    for name in filter(is_name, _list_directories(labs)):
        directory = labs / name
        killed = (directory / FILE).is_file() and holder(directory) is None
        if name not in known and (killed or (directory / SCENARIO).is_file()):
            yield Collected(name, "", "", None, f"the files in '{directory}' are in no journal")


def _remove(
    item: Collected, request: GcRequest, providers: Mapping[str, Provider], store: Store
) -> tuple[str, ...]:
    directory = store.lab_directory(item.lab)
    provider = choose(providers, item.provider)
    lab = LabHandle(item.lab, directory, item.token)
    if item.owner:
        return provider.destroy(lab, owner=item.owner)
    if item.orphan and not same_directory(item.orphan, directory):
        # its state directory is gone, and with it the lock
        return provider.destroy(lab)
    with lab_lock(directory, "lab gc", wait=0):
        row = store.lab(item.lab)
        live = row if row is not None and row.status != "down" else None
        if item.orphan:
            removed = provider.destroy(lab)
            if live is None:
                remove_files(directory)
            return removed
        if live is None or live.token != item.token:
            return ()
        limit = request.older_than
        too_old = limit is not None and store.now() - live.updated > limit
        if not (item.abandoned or too_old):  # it was used meanwhile
            return ()
        return take_away(item.lab, [(item.provider, item.token)], providers, store)


def _remove_abandoned(lab: str, store: Store) -> tuple[str, ...]:
    directory = store.lab_directory(lab)
    with lab_lock(directory, "lab gc", wait=0):
        if any(row.name == lab for row in store.labs()):  # brought up meanwhile
            return ()
        remove_files(directory)
    return (f"files in '{directory}'",)


_CAPTURE = re.compile(r"[0-9]{8}-[0-9]{6}-capture(-[0-9]+)?")
_ARCHIVE = re.compile(r".+-evidence-(?P<made>[0-9]{8}-[0-9]{6})\.tar\.gz")


@dataclass(frozen=True, slots=True)
class Surplus:
    """Files to remove, or removed, and messages about failures."""

    runs: Mapping[str, tuple[str, ...]]
    """By lab, oldest first."""
    nights: tuple[str, ...]
    failed: tuple[str, ...] = field(default=())
    captures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By lab, oldest first."""
    evidence: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Archives of an ``up`` that failed; by lab, oldest first."""

    def words(self) -> Iterator[str]:
        """The number of each, as text, omitting zeros."""
        if self.runs:
            yield quantity(sum(map(len, self.runs.values())), "run")
        if self.captures:
            yield quantity(sum(map(len, self.captures.values())), "capture")
        if self.evidence:
            yield quantity(sum(map(len, self.evidence.values())), "evidence archive")
        if self.nights:
            yield quantity(len(self.nights), "night")


def surplus(
    runs: Mapping[str, Sequence[str]],
    nights: Iterable[FoundNight],
    keep_runs: int,
    keep_nights: int,
) -> Surplus:
    """Runs and nights in excess of the numbers to keep; runs that a kept night refers to are kept.

    ``runs``: ids of every lab's runs, oldest first. ``nights``: all of them, in any order.
    ``keep_runs``: runs to keep of each lab. ``keep_nights``: nights to keep. Both at least 1.
    """
    by_age = sorted(nights, key=lambda night: night.place)
    needed = {run for night in by_age[-keep_nights:] for run in night.runs}
    old = {
        lab: tuple(run for run in names[:-keep_runs] if (lab, run) not in needed)
        for lab, names in sorted(runs.items())
    }
    return Surplus(
        runs={lab: names for lab, names in old.items() if names},
        nights=tuple(night.directory.name for night in by_age[:-keep_nights]),
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """How many of each to keep; at least 1."""

    runs: int
    """Runs, and captures, of each lab."""
    nights: int
    evidence: int
    """Archives of an ``up`` that failed, of all labs together: such a lab may never come again."""


def prune(store: Store, keep: Kept, say: Callable[[str], None], *, yes: bool) -> Surplus:
    """Find and report runs, nights and evidence in excess, and with ``yes`` remove them.

    Their files and their rows in the journal are removed; no link is followed.

    Raises StateError when the journal cannot be read or written.
    """
    labs = {*store.labs_with_runs(), *_list_directories(store.directory / "labs")}
    kept = {lab: stored_runs(store, lab) for lab in labs}
    shelf = nights_directory(store.directory)
    stale = surplus(kept, _list_nights(shelf), keep.runs, keep.nights)
    captures = surplus(
        {lab: _list_captures(store, lab) for lab in labs}, (), keep.runs, keep.nights
    )
    verb = "removing" if yes else "would remove"
    failed: list[str] = []
    gone = {
        "run": dict(stale.runs),
        "capture": dict(captures.runs),
        "evidence archive": _old_evidence(store, labs, keep.evidence),
    }
    nights = stale.nights
    for noun, of_labs in gone.items():
        shelf_of = EVIDENCE if noun == "evidence archive" else RUNS
        for lab, old in of_labs.items():
            say(f"{verb} {quantity(len(old), noun)} of lab '{lab}'")
            if yes:
                stay = _remove_entries(store.directory, ("labs", lab, shelf_of), old, failed)
                of_labs[lab] = tuple(run for run in old if run not in stay)
                store.forget_runs(of_labs[lab])
    if stale.nights:
        say(f"{verb} {quantity(len(stale.nights), 'night')}: {', '.join(stale.nights)}")
        if yes:
            stay = _remove_entries(store.directory, (shelf.name,), nights, failed)
            nights = tuple(night for night in nights if night not in stay)
    runs, captured, evidence = (
        {lab: old for lab, old in of.items() if old} for of in gone.values()
    )
    return Surplus(runs, nights, tuple(failed), captured, evidence)


def _old_evidence(store: Store, labs: Iterable[str], keep: int) -> dict[str, tuple[str, ...]]:
    """The archives of evidence in excess, by lab; the latest of all labs are kept."""
    archives = sorted(
        (made["made"], lab, path.name)
        for lab in labs
        for path in (lab_directory(store.directory, lab) / EVIDENCE).glob("*.tar.gz")
        if (made := _ARCHIVE.fullmatch(path.name)) and path.is_file() and not path.is_symlink()
    )
    old: dict[str, tuple[str, ...]] = {}
    for _, lab, name in archives[:-keep]:
        old[lab] = (*old.get(lab, ()), name)
    return old


def _list_captures(store: Store, lab: str) -> list[str]:
    """Directories that ``lab capture`` made beside the lab's runs, oldest first."""
    shelf = lab_directory(store.directory, lab) / RUNS
    return [name for name in _list_directories(shelf) if _CAPTURE.fullmatch(name)]


def _list_nights(shelf: Path) -> Iterator[FoundNight]:
    for name in _list_directories(shelf):
        directory = shelf / name
        if night := night_in(directory):
            yield night
        elif any(directory.glob("*/*.log")):  # killed, and from before nights had an id
            yield FoundNight(directory, began=read_stamp(directory))


def _list_directories(parent: Path) -> list[str]:
    """Names of the directories in ``parent``, without links; empty if it cannot be read."""
    try:
        with os.scandir(parent) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _remove_entries(
    state: Path, parts: tuple[str, ...], names: Iterable[str], failed: list[str]
) -> set[str]:
    """Remove directories and archives of ``state/parts``; return the names of those that remain."""
    names = tuple(names)
    stay: set[str] = set()
    try:
        with _opened(state, parts) as parent:
            present = frozenset(os.listdir(parent))  # noqa: PTH208  of a descriptor
            for name in names:
                if name not in present:
                    continue
                try:
                    if _ARCHIVE.fullmatch(name):
                        os.unlink(name, dir_fd=parent)
                    else:
                        remove_tree(name, parent)
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
    """Open a directory below ``state`` without following links; yield its descriptor."""
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
