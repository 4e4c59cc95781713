"""Labs of system containers, found without importing what makes them."""

from __future__ import annotations

from lab.providers.netns.holders import list_marks
from lab.providers.nspawn.holder import KIND
from lab.providers.provider import Mark
from lab.providers.setup import ProviderSetup


def find(setup: ProviderSetup, *, all_users: bool) -> tuple[Mark, ...]:
    """Every holder of the caller's; with ``all_users``, as root, everybody's."""
    del setup
    return list_marks(KIND, all_users=all_users)
