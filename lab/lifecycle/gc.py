"""Collect what nobody needs any more: orphans, and labs that are too old.

Safe beside a lab that is being brought up: an ``up`` writes its token to the journal before it
makes anything, and holds the lab's lock meanwhile. So marks are read before the journal (a token
that is not in it then never will be), a lab that is locked is left alone, and whether a lab is
old is asked again once its lock is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab._errors import BrokenError, UsageError
from lab.lifecycle.age import in_words
from lab.lifecycle.interruption import terminable
from lab.lifecycle.marks import Home, all_marks, home, same_directory
from lab.lifecycle.providers import choose
from lab.lifecycle.removal import RemovalTarget, remove_files, take_away
from lab.providers.provider import LabHandle, Mark, Provider
from lab.state.lock import HeldError, lab_lock
from lab.state.rows import LabRow
from lab.state.store import Store


@dataclass(frozen=True, slots=True)
class GcRequest:
    """What is to be collected."""

    older_than: float | None
    """Seconds since a lab was last brought up, changed or tested; None for orphans alone."""
    yes: bool
    """False for a dry run."""
    all_users: bool = False
    """Whether other users' labs are looked at; their files never are."""
    command: str = "lab gc"


@dataclass(frozen=True, slots=True)
class Collected:
    """One thing to collect."""

    lab: str
    provider: str
    token: str
    orphan: Path | None
    """The directory that an orphan says it belongs to; None for a lab of the journal. A claim:
    it is shown, and never opened."""
    why: str
    owner: str = ""
    """Whose it is; empty for the caller's own."""


@dataclass(frozen=True, slots=True)
class GcResult:
    """What ``gc`` has found and done."""

    dry_run: bool
    found: tuple[Collected, ...]
    removed: tuple[str, ...]
    """What is gone, in words."""
    left: tuple[str, ...]
    """What was left alone, and why."""


def collect(
    labs: Iterable[LabRow],
    marks: Iterable[tuple[str, Mark]],
    home_of: Callable[[Path], Home],
    older_than: float | None,
    now: float,
) -> tuple[Collected, ...]:
    """What there is to collect: old labs by the journal, orphans by their marks.

    No journal here speaks for other users' labs, so that the age of their objects counts.

    Parameters
    ----------
    labs
        The journal's labs, none of them down.
    marks
        (provider, mark) of every object found.
    home_of
        Whose a lab directory is. What is in this state directory, or in none any more, only
        this journal can speak for.
    older_than, now
        Seconds, and seconds since 1970.

    """
    labs = tuple(labs)
    known = {row.token for row in labs}

    def is_unneeded(mark: Mark) -> bool:
        too_old = older_than is not None and mark.age_seconds > older_than
        if mark.owner and (mark.expired or too_old):
            return True
        return home_of(mark.directory) in {"own", "gone"}

    orphans = {
        (provider, mark.token, mark.owner): _orphan(provider, mark)
        for provider, mark in marks
        if mark.token not in known and is_unneeded(mark)
    }
    old = [
        Collected(row.name, row.provider, row.token, None, f"last used {in_words(age)} ago")
        for row in labs
        if older_than is not None and (age := now - row.updated) > older_than
    ]
    return (*old, *(orphans[key] for key in sorted(orphans)))


def _orphan(provider: str, mark: Mark) -> Collected:
    whose = f" of user '{mark.owner}'" if mark.owner else ""
    why = f"no journal knows of {mark.object}{whose}, {in_words(mark.age_seconds)} old"
    return Collected(mark.lab, provider, mark.token, mark.directory, why, mark.owner)


def gc(
    request: GcRequest,
    providers: Mapping[str, Provider],
    store: Store,
    say: Callable[[str], None],
) -> GcResult:
    """Find what nobody needs, and with ``yes`` take it away.

    One that cannot be removed is said and left; the others still go.

    Raises
    ------
    BrokenError
        At the end, when something could not be removed.
    StateError
        When the journal cannot be read or written.

    """
    found, left = _look(request, providers, store)
    removed: list[str] = []
    failed: list[str] = []
    with terminable():
        for unseen in left:
            say(unseen)
        for item in found:
            say(f"{'removing' if request.yes else 'would remove'} lab '{item.lab}': {item.why}")
            if not request.yes:
                continue
            try:
                removed += _remove(item, request, providers, store)
            except HeldError as held:
                left.append(f"lab '{item.lab}' is left alone: {held.happened}")
                say(left[-1])
            except (BrokenError, UsageError) as error:
                failed.append(f"lab '{item.lab}': {error}")
    if failed:
        raise BrokenError("collecting what nobody needs", "; ".join(failed), "lab gc --yes, again")
    return GcResult(not request.yes, found, tuple(removed), tuple(left))


def _look(
    request: GcRequest, providers: Mapping[str, Provider], store: Store
) -> tuple[tuple[Collected, ...], list[str]]:
    """What there is to collect, and what is left alone because nothing is sure of it."""

    def home_of(directory: Path) -> Home:
        return home(directory, store.lab_directory(directory.name))

    marks = all_marks(providers, all_users=request.all_users)  # before the journal: see above
    found = collect(store.labs(), marks, home_of, request.older_than, store.now())
    taken = {(item.token, item.owner) for item in found}
    return found, [
        _unseen(mark)
        for _, mark in marks
        if (mark.token, mark.owner) not in taken and home_of(mark.directory) == "unseen"
    ]


def _unseen(mark: Mark) -> str:
    return (
        f"{mark.object} of lab '{mark.lab}' is left alone: its state directory "
        f"'{mark.directory.parent.parent}' cannot be looked at from here, so it may be in use; "
        "run 'lab gc' as its owner"
    )


def _remove(
    item: Collected, request: GcRequest, providers: Mapping[str, Provider], store: Store
) -> tuple[str, ...]:
    provider = choose(providers, item.provider)
    directory = store.lab_directory(item.lab)
    lab = LabHandle(item.lab, directory, item.token)
    if item.owner:
        return provider.destroy(lab, owner=item.owner)
    if item.orphan and not same_directory(item.orphan, directory):
        # its state directory is no more, and its lock with it
        return provider.destroy(lab)
    with lab_lock(directory, request.command, wait=0):
        row = store.lab(item.lab)
        live = row if row is not None and row.status != "down" else None
        if item.orphan:
            return _remove_orphan(lab, provider, alone=live is None)
        if live is None or live.token != item.token or not _is_old(live, request, store):
            return ()
        return take_away(item.lab, [RemovalTarget(item.provider, item.token)], providers, store)


def _remove_orphan(lab: LabHandle, provider: Provider, *, alone: bool) -> tuple[str, ...]:
    removed = provider.destroy(lab)
    if alone:
        remove_files(lab.directory)
    return removed


def _is_old(row: LabRow, request: GcRequest, store: Store) -> bool:
    return request.older_than is not None and store.now() - row.updated > request.older_than
