"""Labs found by the marks of their objects: whose they are, and whether a journal knows them.

What a mark says is a claim: anybody can write one. One that no lab can have is passed
over. No path of a mark is ever opened, written or removed: files are found from the caller's own
state directory and the lab's name, and a mark's directory is only compared with that.
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
"""A token is hexadecimal. Providers make names and paths of it, so it never has a '/' or a '.'."""


def same_directory(one: Path, other: Path) -> bool:
    """Check whether both are the directory of one lab, also where neither is there any more.

    Links count only on the way to the state directory: below it are none. A path with a link that
    the caller may not read (``/proc/1/root``) is no path to the caller's own directory.
    """
    if one.parts[-2:] != other.parts[-2:]:
        return False
    try:
        return os.path.realpath(one.parent.parent) == os.path.realpath(other.parent.parent)
    except OSError:
        return False


def is_possible(mark: Mark) -> bool:
    """Check whether a lab can have such a mark: a name, a token, and STATE/labs/NAME."""
    path = mark.directory
    plain = path.is_absolute() and ".." not in path.parts
    named = is_name(mark.lab) and _TOKEN.fullmatch(mark.token) is not None
    return named and plain and path.parts[-2:] == ("labs", mark.lab)


Home = Literal["own", "gone", "other", "unseen"]


def home(directory: Path, own: Path) -> Home:
    """Whose a lab directory is, and so which journal can speak for what carries it.

    ``own``: of this state directory. ``other``: of another one that is there. ``gone``: of one
    that is certainly no more, for the directory that it was in is there to be looked at.
    ``unseen``: anything else, such as a home that a service manager hides from this command:
    a directory that is not there, or an empty one mounted in its place.

    ``directory``: the lab directory that a mark names. ``own``: the directory that a lab of that
    name has here.
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
    return tuple(
        mark
        for mark in provider.marks()
        if is_possible(mark) and same_directory(mark.directory, directory)
    )


def all_marks(
    providers: Mapping[str, Provider], *, all_users: bool = False
) -> tuple[tuple[str, Mark], ...]:
    """Every mark of the caller's, or of everybody's, with the name of its provider."""
    return tuple(
        (name, mark)
        for name in providers
        for mark in _marks(providers, name, all_users=all_users)
        if is_possible(mark)
    )


def _marks(providers: Mapping[str, Provider], name: str, *, all_users: bool) -> tuple[Mark, ...]:
    if isinstance(providers, Providers):
        return providers.marks(name, all_users=all_users)
    return providers[name].marks(all_users=all_users)
