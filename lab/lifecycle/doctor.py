"""Everything that labs need, examined: this machine, and every hypervisor."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from lab._errors import StateError
from lab.inventory.inventory import Inventory
from lab.lifecycle.providers import Providers, choose, chosen
from lab.providers.diagnosis import Diagnosis
from lab.state.capacity import check_room
from lab.state.directory import state_directory
from lab.state.failure import ELSEWHERE
from lab.state.store import FILE

_JOURNAL = "journal and reports"


def examine(
    asked: str | None, inventory: Inventory | None, environment: Mapping[str, str]
) -> tuple[Diagnosis, ...]:
    """What was seen, of one provider, or of all if none is asked for.

    Where the provider that labs come up on by default lacks nothing, what another lacks is
    worth a warning alone.
    """
    found = [journal(environment)]
    default = chosen(asked, inventory)
    try:
        state = state_directory(environment)
    except StateError:  # the journal's finding says why, and must be fixed first
        return tuple(found)
    providers = Providers(inventory=lambda: inventory)
    for name in (asked,) if asked else providers:
        seen = choose(providers, name).examine(state)
        found += weighed(seen, is_default=name == default)
    return tuple(found)


def weighed(found: Iterable[Diagnosis], *, is_default: bool) -> tuple[Diagnosis, ...]:
    """The findings, failures made warnings where labs do without."""
    if is_default:
        return tuple(found)
    return tuple(replace(one, level="warn") if one.level == "fail" else one for one in found)


def journal(environment: Mapping[str, str]) -> Diagnosis:
    """Whether what labs are can be written down, and kept. Nothing is made."""
    try:
        directory = state_directory(environment)
        there = _there(directory)
        check_room(directory)
    except StateError as error:
        return Diagnosis(_JOURNAL, "state", "fail", error.happened, error.hint)
    for path in (there, directory / FILE):
        if path.exists() and not os.access(path, os.W_OK):
            seen = f"'{path}' cannot be written"
            return Diagnosis(
                _JOURNAL, "state", "fail", seen, f"make it writable for you, {ELSEWHERE}"
            )
    return Diagnosis(_JOURNAL, "state", "ok", f"kept in '{directory}'")


def _there(directory: Path) -> Path:
    """The nearest directory above it, or itself, that there is."""
    return next(path for path in (directory, *directory.parents) if path.is_dir())
