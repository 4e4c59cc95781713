"""Labs found by the marks of their objects: whose they are, and whether a journal knows them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from lab.providers.provider import Mark, Provider


def same_directory(one: Path, other: Path) -> bool:
    """Whether both paths mean one directory, also where neither is there any more."""
    return os.path.realpath(one) == os.path.realpath(other)


Home = Literal["own", "gone", "other", "unseen"]


def home(directory: Path, own: Path) -> Home:
    """Whose a lab directory is, and so which journal can speak for what carries it.

    ``own``: of this state directory. ``other``: of another one that is there. ``gone``: of one
    that is certainly no more, for the directory that it was in is there to be looked at.
    ``unseen``: anything else, such as a home that a service manager hides from this command:
    a directory that is not there, or an empty one mounted in its place.

    Parameters
    ----------
    directory
        The lab directory that a mark names.
    own
        The directory that a lab of that name has here.

    """
    if same_directory(directory, own):
        return "own"
    state = directory.parent.parent
    try:
        if state.exists():
            return "other"
        hidden = state.parent.is_mount() and not any(state.parent.iterdir())
        return "gone" if state.parent.is_dir() and not hidden else "unseen"
    except OSError:  # behind a directory that may not be read: it may well be there
        return "unseen"


def own_marks(provider: Provider, directory: Path) -> tuple[Mark, ...]:
    """The marks of the lab that has this directory.

    A lab of the same name that belongs to another state directory is another lab.
    """
    return tuple(mark for mark in provider.marks() if same_directory(mark.directory, directory))


def all_marks(providers: Mapping[str, Provider]) -> tuple[tuple[str, Mark], ...]:
    """Every mark, with the name of its provider."""
    return tuple((name, mark) for name in providers for mark in providers[name].marks())
