"""Labs found by the marks of their objects, and which state directory they belong to.

A mark is not trusted: anyone can write one. A mark that no lab can have is ignored. No path of a
mark is ever opened, written or removed: files are found from the caller's state directory and the
lab's name, and a mark's directory is only compared with that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from lab.lifecycle.names import is_name
from lab.lifecycle.providers import Providers
from lab.providers.provider import Mark, Provider

_TOKEN = re.compile(r"[0-9a-z]+")
"""A valid token. Providers put it into names and paths, so it must not contain '/' or '.'."""


def same_directory(path: Path, other: Path) -> bool:
    """Whether both are the directory of the same lab, even if neither exists any more.

    Links are resolved only up to the state directory: below it there are none. A path with a link
    that the caller may not read (``/proc/1/root``) is never the caller's directory.
    """
    if path.parts[-2:] != other.parts[-2:]:
        return False
    try:
        return os.path.realpath(path.parent.parent) == os.path.realpath(other.parent.parent)
    except OSError:
        return False


def is_possible(mark: Mark) -> bool:
    """Whether a lab can have this mark: a valid name, a token, and STATE/labs/NAME."""
    path = mark.directory
    plain = path.is_absolute() and ".." not in path.parts
    named = is_name(mark.lab) and _TOKEN.fullmatch(mark.token) is not None
    return named and plain and path.parts[-2:] == ("labs", mark.lab)


Home = Literal["own", "gone", "other", "unseen"]


def home(directory: Path, own: Path) -> Home:
    """Where a lab directory is, and so which journal has the lab.

    ``own``: in this state directory. ``other``: in another state directory that exists. ``gone``:
    in a state directory that certainly no longer exists, since its parent is readable. ``unseen``:
    anything else, such as a home that a service manager hides from this command: a missing
    directory, or an empty one mounted in its place.

    ``directory``: the lab directory in a mark. ``own``: the directory of a lab of that name in this
    state directory.
    """
    if same_directory(directory, own):
        return "own"
    state = directory.parent.parent
    try:
        if state.exists():
            return "other"
        hidden = state.parent.is_mount() and not any(state.parent.iterdir())
        return "gone" if state.parent.is_dir() and not hidden else "unseen"
    except OSError:  # below an unreadable directory: it may exist
        return "unseen"


def own_marks(provider: Provider, directory: Path) -> tuple[Mark, ...]:
    """The marks of the lab that has this directory.

    A lab of the same name in another state directory is a different lab.
    """
    return tuple(
        mark
        for mark in provider.marks()
        if is_possible(mark) and same_directory(mark.directory, directory)
    )


def all_marks(
    providers: Mapping[str, Provider], *, all_users: bool = False
) -> tuple[tuple[str, Mark], ...]:
    """Every mark of the caller's objects, or of all users', with the name of its provider."""
    return tuple(
        (name, mark)
        for name in providers
        for mark in _find_marks(providers, name, all_users=all_users)
        if is_possible(mark)
    )


def _find_marks(
    providers: Mapping[str, Provider], name: str, *, all_users: bool
) -> tuple[Mark, ...]:
    if isinstance(providers, Providers):
        return providers.marks(name, all_users=all_users)
    return providers[name].marks(all_users=all_users)
