"""Find labs on existing clusters, which have no marks on this machine."""

from __future__ import annotations

from lab.providers.provider import Mark
from lab.providers.setup import ProviderSetup


def find(setup: ProviderSetup, *, all_users: bool) -> tuple[Mark, ...]:
    """None: which clusters there are is known only to the journal."""
    del setup, all_users
    return ()
