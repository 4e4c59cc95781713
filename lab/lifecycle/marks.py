"""Labs found by the marks of their objects: whose they are, and whether a journal knows them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from lab.providers.provider import Mark, Provider


def same_directory(one: Path, other: Path) -> bool:
    """Whether both paths mean one directory, also where neither is there any more."""
    return os.path.realpath(one) == os.path.realpath(other)


def own_marks(provider: Provider, directory: Path) -> tuple[Mark, ...]:
    """The marks of the lab that has this directory.

    A lab of the same name that belongs to another state directory is another lab.
    """
    return tuple(mark for mark in provider.marks() if same_directory(mark.directory, directory))


def all_marks(providers: Mapping[str, Provider]) -> tuple[tuple[str, Mark], ...]:
    """Every mark, with the name of its provider."""
    return tuple((name, mark) for name in providers for mark in providers[name].marks())
